package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// muonMomentum moves m towards the gradient, and gives the direction that is orthogonalized.
func muonMomentum(b *Backend, c *kernels.Call) {
	h, clip := c.In[1].F64(), c.In[2].F64()
	g, u, m := c.In[0].F32(), c.Out[0].F32(), c.Out[1].F32()
	if clip[kernels.ClipOverflow] == 1 {
		clear(u)
		return
	}
	factor, beta, rest := float32(clip[kernels.ClipFactor]), float32(h[kernels.HyperBeta1]),
		float32(1-h[kernels.HyperBeta1])
	plain := c.Attr.I[0] == 1
	b.elements(len(g), func(_ *worker, at, n int) {
		for i := at; i < at+n; i++ {
			x := float32(g[i] * factor)
			m[i] += float32(rest * (x - m[i]))
			if u[i] = m[i]; !plain {
				u[i] = x + float32(beta*(m[i]-x))
			}
		}
	})
}

// muonStep moves p against a direction.
func muonStep(b *Backend, c *kernels.Call) {
	h := c.In[1].F64()
	if c.In[2].F64()[kernels.ClipOverflow] == 1 {
		return
	}
	keep, by := float32(1-h[kernels.HyperLR]*h[kernels.HyperDecay]), float32(h[kernels.HyperLR]*h[kernels.HyperScale])
	if c.Attr.I[0] == 1 {
		keep = 1
	}
	u, p, q := c.In[0].F32(), c.Out[0].F32(), modelCopy(c, 1)
	b.elements(len(u), func(w *worker, at, n int) {
		for i := at; i < at+n; i++ {
			p[i] = float32(p[i]*keep) - float32(by*u[i])
		}
		if q != nil {
			w.k.write(*q, at, p[at:at+n])
		}
	})
}

// orthogonalize brings the singular values of each matrix to about 1. Its sums are those of products, in an
// order that no number of threads changes.
func orthogonalize(b *Backend, c *kernels.Call) {
	shape := c.In[0].Shape
	n, k := shape[len(shape)-2], shape[len(shape)-1]
	if n*k == 0 {
		return
	}
	x, y := c.In[0].F32(), c.Out[0].F32()
	one := tensor.Make(tensor.F64, 1)
	defer b.shared.release(b.shared.mark())
	rows := min(n, k)
	o := orthogonal{rows: rows, columns: max(n, k), gram: b.shared.f32(rows * rows), poly: b.shared.f32(rows * rows),
		from: b.shared.f32(n * k), to: b.shared.f32(n * k)}
	for at := 0; at < len(x); at += n * k {
		in := tensor.Of(tensor.F32, x[at:at+n*k], n*k)
		sumSquares(b, &kernels.Call{Op: kernels.SumSquares, In: []*tensor.Tensor{in}, Out: []*tensor.Tensor{one}})
		by := float32(1 / max(math.Sqrt(one.F64()[0]), kernels.OrthogonalLeast))
		if n > k {
			transposed(o.from, x[at:at+n*k], n, k, by)
		} else {
			for i, v := range x[at : at+n*k] {
				o.from[i] = v * by
			}
		}
		for range c.Attr.I[0] {
			o.iterate(b)
		}
		if n > k {
			transposed(y[at:at+n*k], o.from, k, n, 1)
		} else {
			copy(y[at:at+n*k], o.from)
		}
	}
}

// transposed writes a matrix [n k] times a factor as [k n].
func transposed(to, from []float32, n, k int, by float32) {
	for i := range n {
		for j := range k {
			to[j*n+i] = from[i*k+j] * by
		}
	}
}

// orthogonal is a matrix on its way, from, of no more rows than columns.
type orthogonal struct {
	rows, columns        int
	gram, poly, from, to []float32
}

// iterate is one step: A = X·Xᵀ, X = a·X + (b·A + c·A·A)·X.
func (o *orthogonal) iterate(b *Backend) {
	plain := func(v []float32, n int) matrix { return matrix{v: view{f: v}, ld: n} }
	into := func(v []float32, n int) result { return result{v: view{f: v}, ld: n} }
	x, a := plain(o.from, o.columns), plain(o.gram, o.rows)
	b.gemm(into(o.gram, o.rows), x, x, o.rows, o.rows, o.columns)
	b.gemm(into(o.poly, o.rows), a, a, o.rows, o.rows, o.rows) // A is its own transpose
	b.elements(len(o.gram), func(_ *worker, at, n int) {
		for i := at; i < at+n; i++ {
			o.poly[i] = float32(kernels.OrthogonalB*o.gram[i]) + float32(kernels.OrthogonalC*o.poly[i])
		}
	})
	b.elements(len(o.from), func(_ *worker, at, n int) {
		for i := at; i < at+n; i++ {
			o.to[i] = kernels.OrthogonalA * o.from[i]
		}
	})
	y := matrix{v: view{f: o.from}, ld: o.columns, trans: true}
	r := into(o.to, o.columns)
	r.acc = true
	b.gemm(r, plain(o.poly, o.rows), y, o.rows, o.columns, o.rows)
	o.from, o.to = o.to, o.from
}
