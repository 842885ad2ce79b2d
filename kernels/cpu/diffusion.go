package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	for op, f := range map[kernels.Op]func(*Backend, *kernels.Call){
		kernels.Modulate: modulate, kernels.ModulateDX: modulateDX, kernels.ModulateDW: modulateDW,
		kernels.Gate: gateRowsBy, kernels.Sinusoids: sinusoids, kernels.PointLoss: pointLoss,
		kernels.PointLossDX: pointLossDX,
	} {
		table[op] = f
	}
}

// present is operand i of a list, nil where it is absent.
func present(l []*tensor.Tensor, i int) *tensor.Tensor {
	if i < len(l) {
		return l[i]
	}
	return nil
}

// runs are numbers of runs of rows of one length.
type runs[T any] struct {
	v            []T
	rows, length int
}

func runsOf[T any](x *tensor.Tensor, v []T) runs[T] {
	r := runs[T]{v: v, rows: x.Rows()}
	r.length = r.rows / max(1, len(v))
	return r
}

// of is the number of row i.
func (r runs[T]) of(i int) T { return r.v[i/r.length] }

// rowsBy is a table of rows of d, of which one is wanted after the other; rows that follow each other mostly
// want the same.
type rowsBy struct {
	t    *tensor.Tensor
	plus float32
	d    int
	last int32
	row  []float32
	none bool // no row was read yet
}

func (w *worker) rowsBy(t *tensor.Tensor, d int, plus float64) *rowsBy {
	return &rowsBy{t: t, plus: float32(plus), d: d, row: w.arena.f32(d), none: true}
}

// at is row i and the constant in float32; zeros and the constant outside the table.
func (r *rowsBy) at(w *worker, i int32) []float32 {
	if i == r.last && !r.none {
		return r.row
	}
	r.last, r.none = i, false
	if r.t == nil || i < 0 || int(i) >= r.t.Shape[0] {
		clear(r.row)
	} else {
		w.k.read(r.row, viewOf(r.t), int(i)*r.d)
	}
	if r.plus != 0 {
		w.k.shift(r.row, r.row, r.plus)
	}
	return r.row
}

// modulate is y = norm(x)·(c + scale) + shift, with scale and shift chosen per run of rows and c of the attribute.
// The outputs present tell the norm: with mean and deviation, with deviation alone, or none.
func modulate(b *Backend, c *kernels.Call) {
	x, y, at, d := viewOf(c.In[0]), viewOf(c.Out[0]), runsOf(c.In[0], c.In[3].I32()), lastDim(c.In[0])
	rstd, mean := optional(c.Out, 1), optional(c.Out, 2)
	b.rows(at.rows, 2*d, func(w *worker, from, to int) {
		s, shift := w.rowsBy(c.In[1], d, c.Attr.F[1]), w.rowsBy(c.In[2], d, 0)
		for i := from; i < to; i++ {
			m := w.arena.mark()
			row, out, scale := w.in(x, i*d, d), w.out(y, i*d, d), s.at(w, at.of(i))
			center, r := float32(0), float32(1)
			switch {
			case mean != nil:
				sum, squares := w.k.moments(row, float32(d))
				mean[i], rstd[i] = sum/float32(d), rootInverse(squares, d, c.Attr.F[0])
				center, r = mean[i], rstd[i]
			case rstd != nil:
				rstd[i] = rootInverse(w.k.dot(row, row), d, c.Attr.F[0])
				r = rstd[i]
			}
			w.k.layer(out, row, scale, shift.at(w, at.of(i)), center, r)
			w.done(y, i*d, out)
			w.arena.release(m)
		}
	})
}

// modulateDX is the gradient of modulate to x. Without a norm it is a product; with one it is the
// norm's gradient, whose weight is the scale.
func modulateDX(b *Backend, c *kernels.Call) {
	dy, x, dx, at, d := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.Out[0]), runsOf(c.In[0], c.In[3].I32()),
		lastDim(c.In[0])
	rstd, mean := optional(c.In, 4), optional(c.In, 5)
	b.rows(at.rows, 2*d, func(w *worker, from, to int) {
		s, z := w.rowsBy(c.In[2], d, c.Attr.F[1]), w.arena.f32(d)
		for i := from; i < to; i++ {
			m := w.arena.mark()
			g, out, scale := w.in(dy, i*d, d), w.out(dx, i*d, d), s.at(w, at.of(i))
			if rstd == nil {
				w.k.mul(out, g, scale)
			} else {
				row := w.in(x, i*d, d)
				if mean != nil {
					w.k.shift(z, row, -mean[i])
					row = z
				}
				r := flushed(rstd[i])
				w.k.normDX(out, g, row, scale, r, flushed(r*r)*w.k.dot3(g, row, scale)/float32(d))
				if mean != nil {
					w.k.shift(out, out, -r*w.k.dot(g, scale)/float32(d))
				}
			}
			w.done(dx, i*d, out)
			w.arena.release(m)
		}
	})
}

// modulateDW sums by columns: a task goes through all rows in their order.
func modulateDW(b *Backend, c *kernels.Call) {
	dy, x, at, d := viewOf(c.In[0]), viewOf(c.In[1]), runsOf(c.In[0], c.In[2].I32()), lastDim(c.In[0])
	rstd, mean := optional(c.In, 3), optional(c.In, 4)
	ds, shift := viewOf(c.Out[0]), present(c.Out, 1)
	groups := c.Out[0].Shape[0]
	b.shareWork(ceilDiv(d, stripe), 2*at.rows*d*elementCost, func(w *worker, task int) {
		j, n := task*stripe, min(stripe, d-task*stripe)
		sums, plain, z := w.arena.zero(groups*stripe), w.arena.zero(groups*stripe), w.arena.f32(n)
		for i := range at.rows {
			g := at.of(i)
			if g < 0 || int(g) >= groups {
				continue
			}
			m := w.arena.mark()
			row, in, r := w.in(dy, i*d+j, n), w.in(x, i*d+j, n), float32(1)
			if mean != nil {
				w.k.shift(z, in, -mean[i])
				in = z
			}
			if rstd != nil {
				r = rstd[i]
			}
			w.k.mulAcc(sums[int(g)*stripe:][:n], row, in, r)
			if shift != nil {
				w.k.axpy(plain[int(g)*stripe:][:n], row, 1)
			}
			w.arena.release(m)
		}
		for g := range groups {
			w.k.write(ds, g*d+j, sums[g*stripe:][:n])
			if shift != nil {
				w.k.write(viewOf(shift), g*d+j, plain[g*stripe:][:n])
			}
		}
	})
}

// gateRowsBy is y·gate, plus x where it is given, with the gate chosen per run of rows.
func gateRowsBy(b *Backend, c *kernels.Call) {
	y, z, at, d := viewOf(c.In[0]), viewOf(c.Out[0]), runsOf(c.In[0], c.In[2].I32()), lastDim(c.In[0])
	x := present(c.In, 3)
	b.rows(at.rows, d, func(w *worker, from, to int) {
		g := w.rowsBy(c.In[1], d, 0)
		for i := from; i < to; i++ {
			m := w.arena.mark()
			out, gate, row := w.out(z, i*d, d), g.at(w, at.of(i)), w.in(y, i*d, d)
			if x == nil {
				w.k.mul(out, row, gate)
			} else {
				w.k.read(out, viewOf(x), i*d)
				w.k.mulAcc(out, row, gate, 1)
			}
			w.done(z, i*d, out)
			w.arena.release(m)
		}
	})
}

// sinusoids are the sines and cosines of t·f for each frequency f, sines first, or cosines first if
// the attribute says so.
func sinusoids(b *Backend, c *kernels.Call) {
	t, f, y := c.In[0].F32(), c.In[1].F32(), viewOf(c.Out[0])
	h, by := len(f), float32(c.Attr.F[0])
	b.rows(len(t), 8*h, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			out := w.arena.f32(2 * h)
			for j, v := range f {
				s, q := math.Sincos(float64(by * (t[i] * v)))
				if c.Attr.I[0] == 1 {
					s, q = q, s
				}
				out[j], out[h+j] = float32(s), float32(q)
			}
			w.k.write(y, i*2*h, out)
			w.arena.release(m)
		}
	})
}

// pointTerms are the operands of a loss of numbers.
type pointTerms struct {
	x, y, mask view
	weight     runs[float32]
	masked     bool
	d, kind    int
	most       float32
}

// termsOf reads the operands of a loss between single elements; the mask may be absent.
func termsOf(c *kernels.Call) *pointTerms {
	p := &pointTerms{x: viewOf(c.In[0]), y: viewOf(c.In[1]), weight: runsOf(c.In[0], c.In[2].F32()),
		d: lastDim(c.In[0]), kind: c.Attr.I[0], most: float32(c.Attr.F[0])}
	if m := present(c.In, 3); m != nil {
		p.mask, p.masked = viewOf(m), true
	}
	return p
}

// row reads row i: its numbers, its weights, and whether any counts.
func (p *pointTerms) row(w *worker, i int) (x, y, weight []float32, counts bool) {
	if p.weight.of(i) == 0 {
		return nil, nil, nil, false
	}
	weight = w.arena.f32(p.d)
	if p.masked {
		mask := w.in(p.mask, i*p.d, p.d)
		w.k.scale(weight, mask, p.weight.of(i))
		for j, f := range mask {
			if f == 0 { // of a row whose weight is not finite
				weight[j] = 0
			}
		}
	} else {
		for j := range weight {
			weight[j] = p.weight.of(i)
		}
	}
	return w.in(p.x, i*p.d, p.d), w.in(p.y, i*p.d, p.d), weight, true
}

// loss is l(x, y).
func (p *pointTerms) loss(x, y float32) float32 {
	e := x - y
	switch p.kind {
	case kernels.SquaredLoss:
		return e * e
	case kernels.VarianceLoss:
		return float32((math.Expm1(float64(e)) - float64(e)) / 2)
	case kernels.LogisticLoss:
		return max(x, 0) - x*y + float32(math.Log1p(math.Exp(-math.Abs(float64(x)))))
	}
	size := float32(math.Abs(float64(e)))
	switch {
	case p.kind == kernels.AbsoluteLoss:
		return size
	case size > p.most:
		return p.most * (size - p.most/2)
	}
	return e * e / 2
}

// slope is its derivative to x.
func (p *pointTerms) slope(x, y float32) float32 {
	e := x - y
	switch p.kind {
	case kernels.SquaredLoss:
		return 2 * e
	case kernels.VarianceLoss:
		return float32(math.Expm1(float64(e)) / 2)
	case kernels.LogisticLoss:
		return float32(1/(1+math.Exp(-float64(x)))) - y
	case kernels.HuberLoss:
		return max(-p.most, min(e, p.most))
	}
	switch {
	case e > 0:
		return 1
	case e < 0:
		return -1
	}
	return e
}

// pointRows is the rows whose losses are added up in one: what the order of sums depends on.
const pointRows = 64

// pointLoss sums the weighted losses. Each task has a fixed run of rows and the runs are added in
// order, so the result is the same whatever the threads.
func pointLoss(b *Backend, c *kernels.Call) {
	p := termsOf(c)
	sums := make([]float64, ceilDiv(p.weight.rows, pointRows))
	b.shareWork(len(sums), c.In[0].Len()*elementCost, func(w *worker, task int) {
		for i := task * pointRows; i < min((task+1)*pointRows, p.weight.rows); i++ {
			m := w.arena.mark()
			if x, y, weight, counts := p.row(w, i); counts {
				for j, f := range weight {
					if f != 0 {
						sums[task] += float64(f * p.loss(x[j], y[j]))
					}
				}
			}
			w.arena.release(m)
		}
	})
	total := 0.0
	for _, s := range sums {
		total += s
	}
	c.Out[0].F32()[0] = float32(total)
}

// pointLossDX is the gradient to the prediction; elements that do not count have 0.
func pointLossDX(b *Backend, c *kernels.Call) {
	p, dx, seed := termsOf(c), viewOf(c.Out[0]), c.In[4].F32()[0]
	b.rows(p.weight.rows, p.d, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			out := w.out(dx, i*p.d, p.d)
			clear(out)
			if x, y, weight, counts := p.row(w, i); counts {
				for j, f := range weight {
					if f != 0 {
						out[j] = seed * f * p.slope(x[j], y[j])
					}
				}
			}
			w.done(dx, i*p.d, out)
			w.arena.release(m)
		}
	})
}

// mish sets y = x·tanh(log(1+exp(x))), or, with dy, dy times its derivative: from sigmoids s of x and q of
// -x, with which tanh(log(1+exp(x))) = s·(1+q)/(1+q²) loses no digits at either end.
func (w *worker) mish(y, x, dy []float32) {
	s, q := w.arena.f32(len(x)), w.arena.f32(len(x))
	w.k.gate(s, x, 1, 0)
	w.k.gate(q, x, -1, 0)
	for i, v := range x {
		under := 1 + q[i]*q[i]
		t := s[i] * (1 + q[i]) / under
		if dy == nil {
			y[i] = v * t
			continue
		}
		root := 2 * q[i] / under
		y[i] = dy[i] * (t + v*s[i]*root*root)
	}
}
