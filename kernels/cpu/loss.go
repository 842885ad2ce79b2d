package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Logits are computed for ceRows rows by ceCols entries of the vocabulary at a time, 16 MiB in float32.
const (
	ceRows = 2048
	ceCols = kernels.LSEBlock
	// cePad lengthens rows of a block: at a power of two all rows of a tile would share few sets of the first-level cache.
	cePad = 2 * line
	// ceBelow is how far exponentials in float16 lie above 1 at most, in powers of e; see linear_lse.
	ceBelow = 8
)

// logits computes z = x[i0:i0+m]·w[j0:j0+n]ᵀ in float32, rows n+cePad apart.
func (b *Backend) logits(z []float32, x, w *tensor.Tensor, i0, j0, m, n int) {
	d := last(x)
	a, v := rowMajor(x), rowMajor(w)
	a.v, v.v = a.v.from(i0*d), v.v.from(j0*d)
	b.gemm(result{v: view{f: z}, ld: n + cePad}, a, v, m, n, d)
}

// logitBlock is scratch for the largest block of logits.
func (b *Backend) logitBlock(t, v int) []float32 {
	return b.shared.f32(min(ceRows, t) * (min(ceCols, v) + cePad))
}

func linearLSE(b *Backend, c *kernels.Call) {
	x, w, target := c.In[0], c.In[1], c.In[2].I32()
	lse, hit := c.Out[0].F32(), c.Out[1].F32()
	kept := numeratorsOf(c.Out[2:])
	t, v := x.Rows(), w.Shape[0]
	z := b.logitBlock(t, v)
	top, sum := b.shared.f32(ceRows), b.shared.f32(ceRows)
	for i0 := 0; i0 < t; i0 += ceRows {
		m := min(ceRows, t-i0)
		for i := range m {
			top[i], sum[i], hit[i0+i] = float32(math.Inf(-1)), 0, 0
		}
		for j0 := 0; j0 < v; j0 += ceCols {
			n := min(ceCols, v-j0)
			b.logits(z, x, w, i0, j0, m, n)
			b.rows(m, n, func(k *worker, from, to int) {
				for i := from; i < to; i++ {
					row := z[i*(n+cePad):][:n]
					if r := int(target[i0+i]) - c.Attr.I[0] - j0; r >= 0 && r < n {
						hit[i0+i] = row[r]
					}
					k.addExp(kept, x.DType, row, i0+i, j0, &top[i], &sum[i])
				}
			})
		}
		for i := range m {
			lse[i0+i] = top[i] + float32(math.Log(float64(sum[i])))
		}
	}
}

// ceKept is e and top of linear_lse.
type ceKept struct {
	e      view
	v      int // columns of e
	top    []float32
	blocks int // columns of top
}

// numeratorsOf reads the optional operands e and top; nil without them.
func numeratorsOf(l []*tensor.Tensor) *ceKept {
	if len(l) == 0 || l[0] == nil {
		return nil
	}
	return &ceKept{viewOf(l[0]), last(l[0]), l[1].F32(), last(l[1])}
}

// addExp adds Σ exp(z) over row i of a block from column j0 to a sum of exponentials below the maximum top, and keeps the
// exponentials, of dtype d, if kept is not nil; z is used up.
func (w *worker) addExp(kept *ceKept, d tensor.DType, z []float32, i, j0 int, top, sum *float32) {
	defer w.arena.release(w.arena.mark())
	e := view{d: d}
	switch {
	case kept != nil:
		e = kept.e.from(i*kept.v + j0)
	case d == tensor.F32:
		e.f = z
	default: // the same sum as if they were kept
		e.h = w.arena.u16(len(z))
	}
	m, s := w.numerators(e, z, kept != nil && len(kept.top)*ceCols >= pastCaches)
	if kept != nil {
		kept.top[i*kept.blocks+j0/ceCols] = m
	}
	most := max(*top, m)
	*sum = *sum*exp32(*top-most) + s*exp32(m-most)
	*top = most
}

// numerators sets e = exp(z - top) and returns top and the sum of e before it is rounded; z is used up. past tells whether e should
// go past the caches.
func (w *worker) numerators(e view, z []float32, past bool) (top, sum float32) {
	low := float32(math.Inf(-1))
	switch past = past && e.address()%tensor.Align == 0; {
	case e.d == tensor.F32 && past:
		top, sum = w.k.softPast(e.f[:len(z)], z, log2e, low)
	case e.d == tensor.F32:
		top, sum = w.k.soft(e.f[:len(z)], z, log2e, low)
	case e.d == tensor.BF16 && w.k.softHalf != nil && past:
		top, sum = w.k.softHalfPast(e.h[:len(z)], z, log2e, low)
	case e.d == tensor.BF16 && w.k.softHalf != nil:
		top, sum = w.k.softHalf(e.h[:len(z)], z, log2e, low)
	default:
		return w.wideNumerators(e, z)
	}
	if top *= math.Ln2; math.IsInf(float64(top), -1) {
		top = 0
	}
	return top, sum
}

// wideNumerators is numerators through float32.
func (w *worker) wideNumerators(e view, z []float32) (top, sum float32) {
	if top = w.k.max(z); e.d == tensor.F16 {
		top -= ceBelow
	}
	if math.IsInf(float64(top), -1) {
		top = 0
	}
	sum = w.k.exp(z, z, 1, -top, 1)
	w.k.write(e, 0, z)
	return top, sum
}

func lseJoin(_ *Backend, c *kernels.Call) {
	x, y, n := c.In[0].F32(), c.Out[0].F32(), last(c.In[0])
	for i := range y {
		y[i] = float32(logSumExp(x[i*n : (i+1)*n]))
	}
}

func logSumExp(x []float32) float64 {
	m := math.Inf(-1)
	for _, v := range x {
		m = math.Max(m, float64(v))
	}
	if math.IsInf(m, -1) {
		return m
	}
	s := 0.0
	for _, v := range x {
		s += math.Exp(float64(v) - m)
	}
	return m + math.Log(s)
}

func nll(_ *Backend, c *kernels.Call) {
	lse, hit, target, weight := c.In[0].F32(), c.In[1].F32(), c.In[2].I32(), c.In[3].F32()
	s := 0.0
	for i := range lse {
		if target[i] >= 0 {
			s += float64(weight[i]) * (float64(lse[i]) - float64(hit[i]))
		}
	}
	c.Out[0].F32()[0] = float32(s)
}

// linearCE is linear_ce_dx, linear_ce_dw and linear_ce_bwd. All take the same blocks in the same order, so that a gradient
// has the same bits alone and with the other.
func linearCE(b *Backend, c *kernels.Call) {
	g := &ceGrad{x: c.In[0], w: c.In[1], target: c.In[2].I32(), lse: c.In[3].F32(), weight: c.In[4].F32(), seed: c.In[5].F32()[0], kept: numeratorsOf(c.In[6:]),
		first: c.Attr.I[0], accDW: c.Attr.I[1] == kernels.Accumulate}
	switch c.Op {
	case kernels.LinearCEDX:
		g.dx = c.Out[0]
	case kernels.LinearCEDW:
		g.dw = c.Out[0]
	default:
		g.dx, g.dw = c.Out[0], c.Out[1]
	}
	t, v, d := g.x.Rows(), g.w.Shape[0], last(g.x)
	if g.dw != nil && t == 0 && !g.accDW {
		clear(g.dw.F32())
	}
	z := b.logitBlock(t, v)
	for i0 := 0; i0 < t; i0 += ceRows {
		m, mark := min(ceRows, t-i0), b.shared.mark()
		dx := b.dxRows(g, i0, m, d)
		for j0 := 0; j0 < v; j0 += ceCols {
			b.ceBlock(g, z, dx, i0, j0, m, min(ceCols, v-j0), d)
		}
		if g.dx != nil && g.dx.DType != tensor.F32 {
			b.round(result{v: viewOf(g.dx), ld: d}, dx, d, i0, 0, m, d)
		}
		b.shared.release(mark)
	}
}

// ceGrad is one call of linear_ce_*; dx or dw is nil if not wanted.
type ceGrad struct {
	x, w, dx, dw *tensor.Tensor
	target       []int32
	lse, weight  []float32
	seed         float32
	first        int
	accDW        bool
	kept         *ceKept // nil to compute the logits again
}

// dxRows is where dx of m rows is summed up over blocks of the vocabulary, set to 0.
func (b *Backend) dxRows(g *ceGrad, i0, m, d int) []float32 {
	if g.dx == nil {
		return nil
	}
	var dx []float32
	if g.dx.DType == tensor.F32 {
		dx = g.dx.F32()[i0*d : (i0+m)*d]
	} else {
		dx = b.shared.f32(ceRows * d)[:m*d]
	}
	clear(dx)
	return dx
}

// ceBlock turns a block of logits into dz and multiplies it into both gradients.
func (b *Backend) ceBlock(g *ceGrad, z, dx []float32, i0, j0, m, n, d int) {
	if g.kept == nil {
		b.logits(z, g.x, g.w, i0, j0, m, n)
	}
	ld := n + cePad
	dz, release := b.activation(g.x.DType, m*ld)
	defer release()
	b.rows(m, n, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			w.gradLogits(g, z[i*ld:][:n], dz.from(i*ld), i0+i, j0)
		}
	})
	if dz.d == tensor.F32 {
		dz = view{f: z}
	}
	if dx != nil {
		v := columnMajor(g.w)
		v.v = v.v.from(j0 * d)
		b.gemm(result{v: view{f: dx}, ld: d, acc: true}, matrix{v: dz, ld: ld}, v, m, d, n)
	}
	if g.dw != nil {
		x := columnMajor(g.x)
		x.v = x.v.from(i0 * d)
		r := result{v: view{f: g.dw.F32()[j0*d:]}, ld: d, acc: g.accDW || i0 > 0}
		b.gemm(r, matrix{v: dz, ld: ld, trans: true}, x, n, d, m)
	}
}

// activation is scratch for n elements of an activation dtype; none for float32.
func (b *Backend) activation(d tensor.DType, n int) (view, func()) {
	m := b.shared.mark()
	if d == tensor.F32 {
		return view{}, func() {}
	}
	return view{h: b.shared.u16(n), d: d}, func() { b.shared.release(m) }
}

// gradLogits sets z, or dz if that is of half width, to the gradient of row i of the logits, from column j0 on.
func (w *worker) gradLogits(g *ceGrad, z []float32, dz view, i, j0 int) {
	if dz.d == tensor.F32 {
		dz.f = z
	}
	if g.target[i] < 0 {
		clear(dz.f[:min(len(z), len(dz.f))])
		clear(dz.h[:min(len(z), len(dz.h))])
		return
	}
	var e view
	var top float32
	if g.kept != nil {
		e, top = g.kept.e.from(i*g.kept.v+j0), g.kept.top[i*g.kept.blocks+j0/ceCols]
	} else {
		e = dz
		top, _ = w.numerators(e, z, false) // rounded as the kept ones are
	}
	s := g.seed * g.weight[i]
	f, r := s*exp32(top-g.lse[i]), int(g.target[i])-g.first-j0
	var hit [1]float32
	if r >= 0 && r < len(z) {
		w.k.read(hit[:], e, r)
	}
	switch {
	case dz.d == tensor.F32:
		w.k.scale(z, e.f[:len(z)], f)
	case dz.d == tensor.BF16 && w.k.half != nil:
		w.k.half.scale(dz.h[:len(z)], e.h[:len(z)], f)
	default:
		w.k.read(z, e, 0)
		w.k.scale(z, z, f)
		w.k.write(dz, 0, z)
	}
	if r >= 0 && r < len(z) {
		hit[0] = hit[0]*f - s
		w.k.write(dz, r, hit[:])
	}
}
