package ref

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.Conv], table[kernels.ConvDX], table[kernels.ConvDW] = inSpace, inSpaceDX, inSpaceDW
}

// grid is three axes of space, the outermost first; those that a tensor lacks have one place.
type grid [kernels.Space]int

// spaceOf is the axes of space of [n, s…, c] or, behind the first two, of weights.
func spaceOf(shape []int) (g grid) {
	g = grid{1, 1, 1}
	copy(g[kernels.Space-len(shape):], shape)
	return g
}

func (g grid) places() int { return g[0] * g[1] * g[2] }

// at is the coordinates of place i.
func (g grid) at(i int) grid { return grid{i / (g[1] * g[2]), i / g[2] % g[1], i % g[2]} }

// windowsOf are the windows of all three axes of a call: those of weights w, or of sizes in the attributes.
func windowsOf(at kernels.Attr, rank int, size []int) (l [kernels.Space]kernels.Window) {
	for i := range l {
		l[i] = kernels.Window{Size: 1, Stride: 1, Dilation: 1}
		if j := i - (kernels.Space - rank); j >= 0 {
			l[i] = kernels.WindowOf(at.I[1+j])
			if size != nil {
				l[i].Size = size[j]
			}
		}
	}
	return l
}

// eachTap calls f with every output, tap and the input that meet.
func eachTap(in, out, size grid, win [kernels.Space]kernels.Window, f func(o, k, i int)) {
	for o := range out.places() {
		at := out.at(o)
		for k := range size.places() {
			tap, i, inside := size.at(k), 0, true
			for a, w := range win {
				p := at[a]*w.Stride - w.Before + tap[a]*w.Dilation
				inside = inside && p >= 0 && p < in[a]
				i = i*in[a] + p
			}
			if inside {
				f(o, k, i)
			}
		}
	}
}

// eachProduct calls f with the places of x, w and y of every product of a convolution.
func eachProduct(c *kernels.Call, x, w, y *tensor.Tensor, f func(xi, wi, yi int)) {
	rank := len(w.Shape) - 2
	in, out, size := spaceOf(x.Shape[1:1+rank]), spaceOf(y.Shape[1:1+rank]), spaceOf(w.Shape[2:])
	ch, each, outs := lastDim(x), w.Shape[1], lastDim(y)
	if outs == 0 {
		return
	}
	perGroup := outs / kernels.Groups(ch, w.Shape)
	win, taps := windowsOf(c.Attr, rank, w.Shape[2:]), size.places()
	eachTap(in, out, size, win, func(o, k, i int) {
		for n := range x.Shape[0] {
			for j := range outs {
				first := j / perGroup * each
				for q := range each {
					f((n*in.places()+i)*ch+first+q, (j*each+q)*taps+k, (n*out.places()+o)*outs+j)
				}
			}
		}
	})
}

// biased is v with a bias added to each row, if there is one.
func biased(c *kernels.Call, v []float64) []float64 {
	for i, b := 0, optional(c.In, 2); b != nil && i < len(v); i++ {
		v[i] += b[i%len(b)]
	}
	return v
}

// inSpace sets y to the sums of the products, and the bias.
func inSpace(c *kernels.Call) {
	x, w, y := load(c.In[0]), load(c.In[1]), make([]float64, c.Out[0].Len())
	eachProduct(c, c.In[0], c.In[1], c.Out[0], func(xi, wi, yi int) { y[yi] += x[xi] * w[wi] })
	store(c.Out[0], biased(c, y))
}

// inSpaceDX is its gradient to x, and a transposed convolution where there is a bias.
func inSpaceDX(c *kernels.Call) {
	dy, w, dx := load(c.In[0]), load(c.In[1]), make([]float64, c.Out[0].Len())
	eachProduct(c, c.Out[0], c.In[1], c.In[0], func(xi, wi, yi int) { dx[xi] += dy[yi] * w[wi] })
	store(c.Out[0], biased(c, dx))
}

// inSpaceDW sets or adds its gradient to w.
func inSpaceDW(c *kernels.Call) {
	dy, x, dw := load(c.In[0]), load(c.In[1]), make([]float64, c.Out[0].Len())
	eachProduct(c, c.In[1], c.Out[0], c.In[0], func(xi, wi, yi int) { dw[wi] += dy[yi] * x[xi] })
	storeOrAdd(c.Out[0], dw, c.Attr.I[0])
}
