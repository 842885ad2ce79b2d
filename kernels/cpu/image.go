package cpu

import (
	"math"
	"unsafe"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.Resize], table[kernels.ResizeBwd] = resize, resizeBwd
	table[kernels.Pool], table[kernels.PoolBwd] = pool, poolBwd
	table[kernels.Pad], table[kernels.Permute] = pad, permute
}

// portion is a place along an axis of what is read, and its weight.
type portion struct {
	i int
	w float32
}

// portions are, for each place along an axis of a result, those of what is read.
type portions [][]portion

// back turns them round: for each of n places of what is read, the results that it is in, in their order.
func (p portions) back(n int) portions {
	l := make(portions, n)
	for o, in := range p {
		for _, s := range in {
			l[s.i] = append(l[s.i], portion{o, s.w})
		}
	}
	return l
}

// resized are the portions of a resize along one axis.
func resized(kind, in, out int) portions {
	l := make(portions, out)
	for o := range l {
		switch {
		case in == 0:
		case kind == kernels.Nearest:
			l[o] = []portion{{o * in / out, 1}}
		default:
			s := max(0, (float64(o)+0.5)*float64(in)/float64(out)-0.5)
			i := min(int(s), in-1)
			l[o] = []portion{{i, float32(1 - (s - float64(i)))}, {min(i+1, in-1), float32(s - float64(i))}}
		}
	}
	return l
}

// meant are the portions of a mean over windows along one axis.
func meant(kind int, w kernels.Window, in, out int) portions {
	l := make(portions, out)
	for o := range l {
		for k := range w.Size {
			if i := o*w.Stride - w.Before + k*w.Dilation; i >= 0 && i < in {
				l[o] = append(l[o], portion{i: i})
			}
		}
		n := w.Size
		if kind == kernels.MeanIn {
			n = len(l[o])
		}
		for k := range l[o] {
			l[o][k].w = 1 / float32(n)
		}
	}
	return l
}

// weighted sets each place of y, rows of d channels, to the sum of its portions of x on three axes.
func (b *Backend) weighted(y, x *tensor.Tensor, from grid, axes [kernels.Space]portions) {
	d, to := lastDim(x), grid{len(axes[0]), len(axes[1]), len(axes[2])}
	v, out := viewOf(x), viewOf(y)
	b.rows(x.Shape[0]*to.places(), d*len(axes), func(w *worker, lo, hi int) {
		for row := lo; row < hi; row++ {
			m := w.arena.mark()
			at, first := to.at(row%to.places()), row/to.places()*from.places()
			sum := w.out(out, row*d, d)
			clear(sum)
			for _, p := range axes[0][at[0]] {
				for _, q := range axes[1][at[1]] {
					for _, r := range axes[2][at[2]] {
						m := w.arena.mark()
						i := first + (p.i*from[1]+q.i)*from[2] + r.i
						w.k.axpy(sum, w.in(v, i*d, d), p.w*q.w*r.w)
						w.arena.release(m)
					}
				}
			}
			w.done(out, row*d, sum)
			w.arena.release(m)
		}
	})
}

// space is the axes of space of [n, s…, c].
func space(t *tensor.Tensor) grid { return spaceOf(t.Shape[1 : len(t.Shape)-1]) }

// alongAxes are the portions of each axis, forwards or back.
func alongAxes(in, out grid, back bool, f func(a, in, out int) portions) (l [kernels.Space]portions) {
	for a := range l {
		if l[a] = f(a, in[a], out[a]); back {
			l[a] = l[a].back(in[a])
		}
	}
	return l
}

// resize scales images [n,h,w,c] along each axis in turn, each output being a weighted sum of inputs.
func resize(b *Backend, c *kernels.Call) {
	in, out := space(c.In[0]), space(c.Out[0])
	b.weighted(c.Out[0], c.In[0], in, alongAxes(in, out, false, func(_, in, out int) portions {
		return resized(c.Attr.I[0], in, out)
	}))
}

// resizeBwd is the gradient of resize: the same weights, read from the inputs' side.
func resizeBwd(b *Backend, c *kernels.Call) {
	in, out := space(c.Out[0]), space(c.In[0])
	b.weighted(c.Out[0], c.In[0], out, alongAxes(in, out, true, func(_, in, out int) portions {
		return resized(c.Attr.I[0], in, out)
	}))
}

// windowsIn are the windows of all three axes of a call on [n, s…, c].
func windowsIn(at kernels.Attr, rank int) (l [kernels.Space]kernels.Window) {
	for i := range l {
		l[i] = kernels.Window{Size: 1, Stride: 1, Dilation: 1}
		if j := i - (kernels.Space - rank); j >= 0 {
			l[i] = kernels.WindowOf(at.I[1+j])
		}
	}
	return l
}

// pool takes the mean or the largest of each window. Means are weighted sums, as in resize.
func pool(b *Backend, c *kernels.Call) {
	in, out, win := space(c.In[0]), space(c.Out[0]), windowsIn(c.Attr, len(c.In[0].Shape)-2)
	if c.Attr.I[0] != kernels.MaxPool {
		b.weighted(c.Out[0], c.In[0], in, alongAxes(in, out, false, func(a, in, out int) portions {
			return meant(c.Attr.I[0], win[a], in, out)
		}))
		return
	}
	x, y, d := viewOf(c.In[0]), viewOf(c.Out[0]), lastDim(c.In[0])
	g := windowRows(c.In[0].Shape[0], in, out, win)
	b.rows(g.count(), d*len(g.offs), func(w *worker, lo, hi int) {
		best := w.arena.f32(d)
		for row := lo; row < hi; row++ {
			w.largest(g, x, row, 0, d, d, best, nil)
			w.k.write(y, row*d, best)
		}
	})
}

// windowRows is the places of an input that are in the window of each output.
func windowRows(n int, in, out grid, win [kernels.Space]kernels.Window) *gathered {
	g := &gathered{n: n, from: in, rows: out}
	size := grid{win[0].Size, win[1].Size, win[2].Size}
	for a, w := range win {
		g.step[a] = w.Stride
	}
	for k := range size.places() {
		at := size.at(k)
		for a, w := range win {
			at[a] = at[a]*w.Dilation - w.Before
		}
		g.offs = append(g.offs, at)
	}
	return g
}

// largest is, for channels [j, j+n) of d, the largest number in the window of a row and its place, -1 for
// none: the first of them, and a NaN before any. Places are not wanted where at is nil.
func (w *worker) largest(g *gathered, x view, row, j, n, d int, best []float32, at []int32) {
	first, sample := true, row/g.rows.places()
	from := g.rows.at(row - sample*g.rows.places())
	for k := range g.offs {
		o, p, inside := &g.offs[k], sample, true
		for a := range from {
			i := from[a]*g.step[a] + o[a]
			inside = inside && uint(i) < uint(g.from[a])
			p = p*g.from[a] + i
		}
		if !inside {
			continue
		}
		m := w.arena.mark()
		seen := w.in(x, p*d+j, n)
		switch {
		case first:
			first = false
			copy(best[:n], seen)
			for i := range at[:min(n, len(at))] {
				at[i] = int32(p)
			}
		case at == nil:
			w.k.larger(best[:n], seen)
		default:
			w.k.largerAt(best[:n], seen, at[:n], int32(p))
		}
		w.arena.release(m)
	}
	if first {
		for i := range n {
			best[i] = float32(math.Inf(-1))
		}
		for i := range at[:min(n, len(at))] {
			at[i] = -1
		}
	}
}

// goLarger puts numbers of v in the place of smaller ones in best, of which none is larger than a NaN.
func goLarger(best, v []float32) {
	v = v[:len(best)]
	for i, b := range best {
		best[i] = max(b, v[i]) // without a branch, which numbers at random would mislead
	}
}

// goLargerAt is goLarger, and puts p where it has done so.
func goLargerAt(best, v []float32, at []int32, p int32) {
	v, at = v[:len(best)], at[:len(best)]
	for i, b := range best {
		x, where := v[i], at[i]
		if x > b {
			where = p
		}
		if x != x && b == b {
			where = p
		}
		best[i], at[i] = max(b, x), where
	}
}

// poolColumns is the channels that a task of the gradient of a largest number goes through all windows with.
const poolColumns = 64

// poolBwd is the gradient of pool. For the largest it goes to where the largest was, which is searched for again;
// a task has some channels of one sample, so that overlapping windows need no lock.
func poolBwd(b *Backend, c *kernels.Call) {
	in, out, win := space(c.Out[0]), space(c.In[0]), windowsIn(c.Attr, len(c.In[0].Shape)-2)
	if c.Attr.I[0] != kernels.MaxPool {
		b.weighted(c.Out[0], c.In[0], out, alongAxes(in, out, true, func(a, in, out int) portions {
			return meant(c.Attr.I[0], win[a], in, out)
		}))
		return
	}
	dy, x, dx, d := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.Out[0]), lastDim(c.Out[0])
	stripes, g := ceilDiv(d, poolColumns), windowRows(c.In[0].Shape[0], in, out, win)
	b.shareWork(g.n*stripes, c.Out[0].Len()*elementCost, func(w *worker, task int) {
		n, j := task/stripes, task%stripes*poolColumns
		cols := min(poolColumns, d-j)
		best, at := w.arena.f32(cols), make([]int32, cols)
		sums, ld := w.poolSums(dx, n*in.places()*d+j, in.places(), cols, d)
		for row := n * out.places(); row < (n+1)*out.places(); row++ {
			m := w.arena.mark()
			w.largest(g, x, row, j, cols, d, best, at)
			for i, v := range w.in(dy, row*d+j, cols) {
				if at[i] >= 0 {
					sums[(int(at[i])-n*in.places())*ld+i] += v
				}
			}
			w.arena.release(m)
		}
		for p := range in.places() {
			if dx.d != tensor.F32 {
				w.k.write(dx, (n*in.places()+p)*d+j, sums[p*cols:(p+1)*cols])
			}
		}
	})
}

// poolSums is zeros for some channels of places, and how far apart these are: those of dx itself, from at on
// and d apart, if it has float32s.
func (w *worker) poolSums(dx view, at, places, cols, d int) (sums []float32, ld int) {
	if dx.d != tensor.F32 {
		return w.arena.zero(places * cols), cols
	}
	for p := range places {
		clear(dx.f[at+p*d:][:cols])
	}
	return dx.f[min(at, len(dx.f)):], d
}

// pad puts zeros around images, or cuts borders off where the padding is negative.
func pad(b *Backend, c *kernels.Call) {
	in, out, win := space(c.In[0]), space(c.Out[0]), windowsIn(c.Attr, len(c.In[0].Shape)-2)
	size := lastDim(c.In[0]) * c.In[0].DType.Size()
	x, y := c.In[0].Bytes(), c.Out[0].Bytes()
	b.rows(c.In[0].Shape[0]*out.places(), size/4, func(_ *worker, lo, hi int) {
		for row := lo; row < hi; row++ {
			at, from := out.at(row%out.places()), row/out.places()
			for a, w := range win {
				if i := at[a] - w.Before; from >= 0 && i >= 0 && i < in[a] {
					from = from*in[a] + i
				} else {
					from = -1
				}
			}
			if dst := y[row*size : (row+1)*size]; from >= 0 {
				copy(dst, x[from*size:])
			} else {
				clear(dst)
			}
		}
	})
}

// permute goes through y row by row of its last axis, which lie apart in x.
func permute(b *Backend, c *kernels.Call) {
	x, y := c.In[0], c.Out[0]
	if y.Len() == 0 {
		return
	}
	order := kernels.Order(c.Attr, len(x.Shape))
	stride, n := make([]int, len(order)), 1
	for a := len(order) - 1; a >= 0; a-- {
		stride[a] = n
		n *= x.Shape[a]
	}
	last, size := len(order)-1, x.DType.Size()
	width := y.Shape[last]
	b.rows(y.Len()/width, width, func(_ *worker, lo, hi int) {
		for row := lo; row < hi; row++ {
			from, rest := 0, row
			for a := last - 1; a >= 0; a-- {
				from += rest % y.Shape[a] * stride[order[a]]
				rest /= y.Shape[a]
			}
			dst := y.Bytes()[row*width*size:][:width*size]
			copyApart(dst, x.Bytes()[from*size:], width, stride[order[last]], size)
		}
	})
}

// copyApart copies n elements of size bytes that lie step elements apart.
func copyApart(dst, src []byte, n, step, size int) {
	switch {
	case step == 1:
		copy(dst, src[:n*size])
	case size == 4:
		elementsApart[uint32](dst, src, n, step)
	case size == 2:
		elementsApart[uint16](dst, src, n, step)
	default:
		for i := range n {
			copy(dst[i*size:(i+1)*size], src[i*step*size:])
		}
	}
}

// elementsApart copies n elements that lie step apart, as plain bits, whatever number they stand for.
func elementsApart[T uint16 | uint32](dst, src []byte, n, step int) {
	y := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(dst))), n)
	x := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(src))), (n-1)*step+1)
	for i := range y {
		y[i] = x[i*step]
	}
}
