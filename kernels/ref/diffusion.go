package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// The operations of diffusion models beside convolutions.
func init() {
	table[kernels.Modulate], table[kernels.ModulateDX] = modulate, modulateDX
	table[kernels.ModulateDW], table[kernels.Gate] = modulateDW, gate
	table[kernels.Sinusoids] = sinusoids
	table[kernels.PointLoss], table[kernels.PointLossDX] = pointLoss, pointLossDX
}

// optional is the elements of operand i, nil where it is absent.
func optional(l []*tensor.Tensor, i int) []float64 {
	if i >= len(l) || l[i] == nil {
		return nil
	}
	return load(l[i])
}

// inRuns gives each row of x what its run of rows has.
func inRuns[T any](x *tensor.Tensor, v []T) (l []T) {
	for i := range x.Rows() {
		l = append(l, v[i/(x.Rows()/len(v))])
	}
	return l
}

// rowOf is row i of a table of rows of d, zeros outside it.
func rowOf(v []float64, i int32, d int) []float64 {
	if i < 0 || d == 0 || int(i) >= len(v)/d {
		return make([]float64, d)
	}
	return v[int(i)*d : (int(i)+1)*d]
}

// normed puts the rows of x, each of d, in place of z of modulate; nil statistics are those of plain rows.
func normed(x, mean, rstd []float64, d int) {
	for i := range x {
		if mean != nil {
			x[i] -= mean[i/d]
		}
		if rstd != nil {
			x[i] *= rstd[i/d]
		}
	}
}

// modulate sets y = z·(F[1] + s) + b, with z the rows of x as I[0] norms them.
func modulate(c *kernels.Call) {
	x, s, b, at, d := load(c.In[0]), load(c.In[1]), optional(c.In, 2), inRuns(c.In[0], c.In[3].I32()), lastDim(c.In[0])
	var mean, rstd []float64
	switch c.Attr.I[0] {
	case kernels.LayerRows:
		mean = make([]float64, len(at))
		for i, v := range x {
			mean[i/d] += v / float64(d)
		}
		fallthrough
	case kernels.RMSRows:
		rstd = make([]float64, len(at))
		for i := range rstd {
			row := append([]float64(nil), x[i*d:(i+1)*d]...)
			if mean != nil {
				normed(row, mean[i:], nil, d)
			}
			rstd[i] = 1 / math.Sqrt(dot(row, row)/float64(d)+c.Attr.F[0])
		}
	}
	normed(x, mean, rstd, d)
	for i, g := range at {
		scale, shift := rowOf(s, g, d), rowOf(b, g, d)
		for j := range d {
			x[i*d+j] = x[i*d+j]*(c.Attr.F[1]+scale[j]) + shift[j]
		}
	}
	store(c.Out[0], x)
	if mean != nil {
		store(c.Out[2], mean)
	}
	if rstd != nil {
		store(c.Out[1], rstd)
	}
}

// modulateDX is the gradient to x: that of the norm, for dy·(F[1] + s).
func modulateDX(c *kernels.Call) {
	dy, z, s, at, d := load(c.In[0]), load(c.In[1]), load(c.In[2]), inRuns(c.In[0], c.In[3].I32()), lastDim(c.In[0])
	rstd, mean := optional(c.In, 4), optional(c.In, 5)
	normed(z, mean, rstd, d)
	for i, g := range at {
		row, zr, scale := dy[i*d:(i+1)*d], z[i*d:(i+1)*d], rowOf(s, g, d)
		m1, m2 := 0.0, 0.0
		for j := range row {
			row[j] *= c.Attr.F[1] + scale[j]
			m1 += row[j] / float64(d)
			m2 += row[j] * zr[j] / float64(d)
		}
		if mean == nil {
			m1 = 0
		}
		for j := range row {
			if rstd != nil {
				row[j] = rstd[i] * (row[j] - m1 - zr[j]*m2)
			}
		}
	}
	store(c.Out[0], dy)
}

// modulateDW sums dy·z and dy over the rows of each modulation.
func modulateDW(c *kernels.Call) {
	dy, z, at, d := load(c.In[0]), load(c.In[1]), inRuns(c.In[0], c.In[2].I32()), lastDim(c.In[0])
	normed(z, optional(c.In, 4), optional(c.In, 3), d)
	ds, db := make([]float64, c.Out[0].Len()), make([]float64, c.Out[0].Len())
	for i, g := range at {
		for j := range d {
			if g >= 0 && int(g) < c.Out[0].Shape[0] {
				ds[int(g)*d+j] += dy[i*d+j] * z[i*d+j]
				db[int(g)*d+j] += dy[i*d+j]
			}
		}
	}
	store(c.Out[0], ds)
	if len(c.Out) > 1 && c.Out[1] != nil {
		store(c.Out[1], db)
	}
}

// gate sets z = x + g·y.
func gate(c *kernels.Call) {
	y, g, at, x, d := load(c.In[0]), load(c.In[1]), inRuns(c.In[0], c.In[2].I32()), optional(c.In, 3), lastDim(c.In[0])
	for i, r := range at {
		for j, f := range rowOf(g, r, d) {
			y[i*d+j] *= f
			if x != nil {
				y[i*d+j] += x[i*d+j]
			}
		}
	}
	store(c.Out[0], y)
}

// sinusoids sets sines and cosines of each time at each frequency; I[0] = 1 puts cosines first.
func sinusoids(c *kernels.Call) {
	t, f, y := c.In[0].F32(), c.In[1].F32(), make([]float64, c.Out[0].Len())
	h := len(f)
	for i := range t {
		for j := range f {
			s, q := math.Sincos(float64(float32(c.Attr.F[0]) * (t[i] * f[j])))
			if c.Attr.I[0] == 1 {
				s, q = q, s
			}
			y[i*2*h+j], y[i*2*h+h+j] = s, q
		}
	}
	store(c.Out[0], y)
}

// elementLoss is l(x, y) and its derivative to x.
func elementLoss(at kernels.Attr, x, y float64) (l, d float64) {
	e := x - y
	size := math.Abs(e)
	switch at.I[0] {
	case kernels.SquaredLoss:
		return e * e, 2 * e
	case kernels.VarianceLoss:
		return (math.Expm1(e) - e) / 2, math.Expm1(e) / 2
	case kernels.LogisticLoss:
		return max(x, 0) - x*y + math.Log1p(math.Exp(-math.Abs(x))), sigmoid(x) - y
	case kernels.HuberLoss:
		if most := at.F[0]; size > most {
			return most * (size - most/2), most * sign(e)
		}
		return e * e / 2, e
	}
	return size, sign(e)
}

// sign is that of x, 0 at 0 and a NaN of a NaN.
func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}

// eachTerm calls f with the loss of each element that counts, its derivative and its weight.
func eachTerm(c *kernels.Call, f func(i int, l, d, weight float64)) {
	x, y, mask := load(c.In[0]), load(c.In[1]), optional(c.In, 3)
	weight := inRuns(c.In[0], load(c.In[2]))
	for i := range x {
		w, m := weight[i/lastDim(c.In[0])], 1.0
		if mask != nil {
			m = mask[i]
		}
		if w != 0 && m != 0 {
			l, d := elementLoss(c.Attr, x[i], y[i])
			f(i, l, d, w*m)
		}
	}
}

// pointLoss sums the weighted losses of all elements.
func pointLoss(c *kernels.Call) {
	sum := 0.0
	eachTerm(c, func(_ int, l, _, w float64) { sum += w * l })
	store(c.Out[0], []float64{sum})
}

// pointLossDX is the gradient to x, times the seed.
func pointLossDX(c *kernels.Call) {
	dx, seed := make([]float64, c.Out[0].Len()), load(c.In[4])[0]
	eachTerm(c, func(i int, _, d, w float64) { dx[i] = seed * w * d })
	store(c.Out[0], dx)
}
