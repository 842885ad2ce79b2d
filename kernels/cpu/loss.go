package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Without gradients, logits are computed for ceRows rows by ceCols entries of the vocabulary at a time, 16
// MiB in float32.
const (
	ceRows = 2048
	ceCols = kernels.LSEBlock
	// cePad lengthens rows of a block: at a power of two all rows of a tile would share few sets of
	// the first-level cache.
	cePad = 2 * line
	// ceBelow is how far exponentials in float16 lie above 1 at most, in powers of e; see linear_lse.
	ceBelow = 8
)

// logits computes z = x[i0:i0+m]·w[j0:j0+n]ᵀ in float32, rows ld apart.
func (b *Backend) logits(z []float32, ld int, x, w *tensor.Tensor, i0, j0, m, n int) {
	d := lastDim(x)
	a, v := rowMajor(x), rowMajor(w)
	a.v, v.v = a.v.from(i0*d), v.v.from(j0*d)
	b.gemm(result{v: view{f: z}, ld: ld}, a, v, m, n, d)
}

// logitBlock is scratch for the largest block of logits of m rows.
func (b *Backend) logitBlock(m, v int) []float32 {
	return b.shared.f32(m * (min(ceCols, v) + cePad))
}

// ceLoss is the way from logits to lse and hit of linear_lse.
type ceLoss struct {
	x, w     *tensor.Tensor
	target   []int32
	first    int
	lse, hit []float32
	kept     *ceKept   // nil to keep no numerators
	z        []float32 // a block of logits; nil to compute them where numerators are kept, in float32
	top, sum []float32 // of rows
	cap      float32   // soft cap of the logits, 0 for none
}

// linearLSE computes for each row the logarithm of the sum of exponentials of its logits, and the logit of its target.
// The logits exist for some rows at a time only, since all of them would be the largest tensor of a step.
func linearLSE(b *Backend, c *kernels.Call) {
	l := &ceLoss{x: c.In[0], w: c.In[1], target: c.In[2].I32(), first: c.Attr.I[0], lse: c.Out[0].F32(),
		hit: c.Out[1].F32(), kept: numeratorsOf(c.Out[2:]), cap: float32(c.Attr.F[0])}
	t := l.x.Rows()
	l.z = b.logitBlock(min(ceRows, t), l.w.Shape[0])
	l.top, l.sum = b.shared.f32(ceRows), b.shared.f32(ceRows)
	for i0 := 0; i0 < t; i0 += ceRows {
		b.lossRows(l, i0, min(ceRows, t-i0))
	}
}

// lossRows is ceLoss of rows i0 to i0+m.
func (b *Backend) lossRows(l *ceLoss, i0, m int) {
	for i := range m {
		l.top[i], l.sum[i], l.hit[i0+i] = float32(math.Inf(-1)), 0, 0
	}
	v := l.w.Shape[0]
	for j0 := 0; j0 < v; j0 += ceCols {
		n := min(ceCols, v-j0)
		z, ld := l.z, n+cePad
		if z == nil {
			e, _ := l.kept.at(i0, j0)
			z, ld = e.f, l.kept.ld
		}
		b.logits(z, ld, l.x, l.w, i0, j0, m, n)
		b.rows(m, n, func(k *worker, from, to int) {
			for i := from; i < to; i++ {
				row := z[i*ld:][:n]
				if r := int(l.target[i0+i]) - l.first - j0; r >= 0 && r < n {
					l.hit[i0+i] = cappedBy(row[r], l.cap)
				}
				k.addExp(l.kept, l.x.DType, row, i0+i, j0, &l.top[i], &l.sum[i], l.cap)
			}
		})
	}
	for i := range m {
		l.lse[i0+i] = l.top[i] + float32(math.Log(float64(l.sum[i])))
	}
}

// ceKept is e and top of linear_lse, or of the rows that linear_ce has at work.
type ceKept struct {
	e        view
	ld, next int // elements from one row to the next, from one block of columns to the next
	top      []float32
	blocks   int  // columns of top
	from     int  // the first row
	reused   bool // e becomes the gradient of the logits
}

// numeratorsOf reads the optional operands e and top; nil without them.
func numeratorsOf(l []*tensor.Tensor) *ceKept {
	if len(l) == 0 || l[0] == nil {
		return nil
	}
	return &ceKept{e: viewOf(l[0]), ld: lastDim(l[0]), next: ceCols, top: l[1].F32(), blocks: lastDim(l[1])}
}

// reusedNumerators are those that linear_ce has in work, with room for their maxima.
func reusedNumerators(work *tensor.Tensor, top []float32) *ceKept {
	return &ceKept{e: viewOf(work), ld: work.Shape[2], next: work.Shape[1] * work.Shape[2], top: top,
		blocks: work.Shape[0], reused: true}
}

// at is the numerators of row i from column j0 on, the first of a block, and where their maximum is.
func (k *ceKept) at(i, j0 int) (e view, top *float32) {
	i, j := i-k.from, j0/ceCols
	return k.e.from(i*k.ld + j*k.next), &k.top[i*k.blocks+j]
}

// addExp adds Σ exp(z) over row i of a block from column j0 to a sum of exponentials below the maximum top,
// and keeps the exponentials, of dtype d, if kept is not nil; z is used up.
func (w *worker) addExp(kept *ceKept, d tensor.DType, z []float32, i, j0 int, top, sum *float32, most float32) {
	defer w.arena.release(w.arena.mark())
	e, below := view{d: d}, new(float32)
	switch {
	case kept != nil:
		e, below = kept.at(i, j0)
	case d == tensor.F32:
		e.f = z
	default: // the same sum as if they were kept
		e.h = w.arena.u16(len(z))
	}
	m, s := w.numerators(e, z, kept != nil && !kept.reused && len(kept.top)*ceCols >= pastCaches, most)
	*below = m
	all := max(*top, m)
	*sum = *sum*exp32(*top-all) + s*exp32(m-all)
	*top = all
}

// numerators sets e = exp(z - top) and returns top and the sum of e before it is rounded; z is used up. past
// tells whether e should go past the caches. With a soft cap of most > 0, z are the logits before it, and e
// is multiplied with the cap's slope after it was added up.
func (w *worker) numerators(e view, z []float32, past bool, most float32) (top, sum float32) {
	if most > 0 {
		return w.cappedNumerators(e, z, most)
	}
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
	top, sum = w.exponentials(e.d, z)
	w.k.write(e, 0, z)
	return top, sum
}

// cappedNumerators is numerators of logits under a soft cap.
func (w *worker) cappedNumerators(e view, z []float32, most float32) (top, sum float32) {
	defer w.arena.release(w.arena.mark())
	slope := w.arena.f32(len(z))
	w.softCap(z, slope, 1, most)
	top, sum = w.exponentials(e.d, z)
	w.k.mul(z, z, slope)
	if e.f != nil || e.h != nil {
		w.k.write(e, 0, z)
	}
	return top, sum
}

// exponentials sets z = exp(z - top), for a dtype d that they will have, and returns top and their sum.
func (w *worker) exponentials(d tensor.DType, z []float32) (top, sum float32) {
	if top = w.k.max(z); d == tensor.F16 {
		top -= ceBelow
	}
	if math.IsInf(float64(top), -1) {
		top = 0
	}
	return top, w.k.exp(z, z, 1, -top, 1)
}

// cappedBy is one logit under a soft cap, 0 for none.
func cappedBy(z, most float32) float32 {
	if most == 0 {
		return z
	}
	return most * float32(math.Tanh(float64(z/most)))
}

// lseJoin joins the logarithms of sums that members with parts of the vocabulary have got.
func lseJoin(_ *Backend, c *kernels.Call) {
	x, y, n := c.In[0].F32(), c.Out[0].F32(), lastDim(c.In[0])
	for i := range y {
		y[i] = float32(logSumExp(x[i*n : (i+1)*n]))
	}
}

// logSumExp is ln Σ exp(x), shifted by the maximum; it is -∞ if all are.
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

// nll is the weighted sum of lse minus the target's logit, the loss of the whole microbatch.
func nll(_ *Backend, c *kernels.Call) {
	lse, hit, target, weight := c.In[0].F32(), c.In[1].F32(), c.In[2].I32(), c.In[3].F32()
	c.Out[0].F32()[0] = weighted(lse, hit, target, weight)
}

// weighted is Σ weight·(lse - hit) of rows that have a target.
func weighted(lse, hit []float32, target []int32, weight []float32) float32 {
	s := 0.0
	for i := range lse {
		if target[i] >= 0 {
			s += float64(weight[i]) * (float64(lse[i]) - float64(hit[i]))
		}
	}
	return float32(s)
}

// linearCE is linear_ce_dx, linear_ce_dw and linear_ce_bwd. The last two take the same blocks of rows in the
// same order, and no sum of dx runs over rows, so that a gradient has the same bits alone and with the other.
func linearCE(b *Backend, c *kernels.Call) {
	g := &ceGrad{x: c.In[0], w: c.In[1], target: c.In[2].I32(), lse: c.In[3].F32(), weight: c.In[4].F32(),
		seed: c.In[5].F32()[0], kept: numeratorsOf(c.In[6:]),
		cap: float32(c.Attr.F[0]), first: c.Attr.I[0], accDW: c.Attr.I[1] == kernels.Accumulate}
	switch c.Op {
	case kernels.LinearCEDX:
		g.dx = c.Out[0]
	case kernels.LinearCEDW:
		g.dw = c.Out[0]
	default:
		g.dx, g.dw = c.Out[0], c.Out[1]
	}
	t, rows := g.x.Rows(), kernels.LossRows(g.x.DType, g.w.Shape[0])
	if g.dw == nil { // no sum runs over rows
		rows = ceRows
	}
	g.z = b.logitBlock(min(rows, t), g.w.Shape[0])
	for i0 := 0; i0 < t; i0 += rows {
		b.gradRows(g, i0, min(rows, t-i0))
	}
	g.noRows(t)
}

// lossAndGradients is linear_ce: rows of logits become a loss and gradients before the next ones are computed.
func lossAndGradients(b *Backend, c *kernels.Call) {
	x, w, target, weight, work := c.In[0], c.In[1], c.In[2].I32(), c.In[3].F32(), c.Out[1]
	t, v, rows := x.Rows(), w.Shape[0], work.Shape[1]
	kept := reusedNumerators(work, b.shared.f32(rows*work.Shape[0]))
	l := &ceLoss{x: x, w: w, target: target, lse: b.shared.f32(t), hit: b.shared.f32(t), kept: kept,
		top: b.shared.f32(rows), sum: b.shared.f32(rows), cap: float32(c.Attr.F[0])}
	if x.DType != tensor.F32 {
		l.z = b.logitBlock(rows, v)
	}
	g := &ceGrad{x: x, w: w, dx: c.Out[2], dw: c.Out[3], target: target, lse: l.lse, weight: weight,
		seed: c.In[4].F32()[0], kept: kept, cap: float32(c.Attr.F[0]), accDW: c.Attr.I[1] == kernels.Accumulate}
	for i0 := 0; i0 < t; i0 += rows {
		kept.from = i0
		b.lossRows(l, i0, min(rows, t-i0))
		b.gradRows(g, i0, min(rows, t-i0))
	}
	g.noRows(t)
	c.Out[0].F32()[0] = weighted(l.lse, l.hit, target, weight)
	if len(c.Out) > 4 {
		copy(c.Out[4].F32(), l.lse)
		copy(c.Out[5].F32(), l.hit)
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
	kept         *ceKept   // nil to compute the logits again
	z            []float32 // a block of logits, if they are not reused
	cap          float32   // soft cap of the logits, 0 for none
}

// noRows sets the weights' gradient of none.
func (g *ceGrad) noRows(t int) {
	if g.dw != nil && t == 0 && !g.accDW {
		clear(g.dw.F32())
	}
}

// gradRows adds the gradients of rows i0 to i0+m.
func (b *Backend) gradRows(g *ceGrad, i0, m int) {
	defer b.shared.release(b.shared.mark())
	d, v := lastDim(g.x), g.w.Shape[0]
	dx := b.dxRows(g, i0, m, d)
	for j0 := 0; j0 < v; j0 += ceCols {
		b.ceBlock(g, dx, i0, j0, m, min(ceCols, v-j0), d)
	}
	if g.dx != nil && g.dx.DType != tensor.F32 {
		b.round(result{v: viewOf(g.dx), ld: d}, dx, d, i0, 0, m, d)
	}
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
		dx = b.shared.f32(m * d)
	}
	clear(dx)
	return dx
}

// ceBlock turns a block of logits into dz and multiplies it into both gradients.
func (b *Backend) ceBlock(g *ceGrad, dx []float32, i0, j0, m, n, d int) {
	defer b.shared.release(b.shared.mark())
	dz, ld := g.gradients(b, i0, j0, m, n)
	if g.kept == nil {
		b.logits(g.z, ld, g.x, g.w, i0, j0, m, n)
	}
	b.rows(m, n, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			var z []float32
			if g.z != nil {
				z = g.z[i*ld:][:n]
			}
			w.gradLogits(g, z, dz.from(i*ld), n, i0+i, j0)
		}
	})
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

// gradients is where a block of dz goes: into the numerators if they are reused, into the logits in float32,
// else into scratch.
func (g *ceGrad) gradients(b *Backend, i0, j0, m, n int) (dz view, ld int) {
	switch d := g.x.DType; {
	case g.kept != nil && g.kept.reused:
		dz, _ = g.kept.at(i0, j0)
		return dz, g.kept.ld
	case d == tensor.F32:
		return view{f: g.z}, n + cePad
	default:
		return view{h: b.shared.u16(m * (n + cePad)), d: d}, n + cePad
	}
}

// gradLogits sets dz to the gradient of row i of the logits, from column j0 on; z are the logits, used up,
// unless numerators are kept.
func (w *worker) gradLogits(g *ceGrad, z []float32, dz view, n, i, j0 int) {
	if g.target[i] < 0 {
		clear(dz.f[:min(n, len(dz.f))])
		clear(dz.h[:min(n, len(dz.h))])
		return
	}
	var e view
	var top float32
	if g.kept != nil {
		k, m := g.kept.at(i, j0)
		e, top = k, *m
	} else {
		e = dz
		top, _ = w.numerators(e, z, false, g.cap) // rounded as the kept ones are
	}
	s := g.seed * g.weight[i]
	// lse is rounded, and where logits are large by so much that it may be below top.
	f, r := s*exp32(min(top-g.lse[i], 0)), int(g.target[i])-g.first-j0
	var hit [1]float32
	if r >= 0 && r < n {
		w.k.read(hit[:], e, r)
	}
	switch {
	case dz.d == tensor.F32:
		w.k.scale(dz.f[:n], e.f[:n], f)
	case dz.d == tensor.BF16 && w.k.half != nil:
		w.k.half.scale(dz.h[:n], e.h[:n], f)
	default:
		defer w.arena.release(w.arena.mark())
		wide := w.arena.f32(n)
		w.k.read(wide, e, 0)
		w.k.scale(wide, wide, f)
		w.k.write(dz, 0, wide)
	}
	if r >= 0 && r < n {
		hit[0] = hit[0]*f - s*w.slopeAt(g, i, int(g.target[i])-g.first)
		w.k.write(dz, r, hit[:])
	}
}

// slopeAt is the derivative of logit r of row i by the product that it is a soft cap of.
func (w *worker) slopeAt(g *ceGrad, i, r int) float32 {
	if g.cap == 0 {
		return 1
	}
	defer w.arena.release(w.arena.mark())
	d := lastDim(g.x)
	z := cappedBy(w.k.dot(w.in(viewOf(g.x), i*d, d), w.in(viewOf(g.w), r*d, d)), g.cap) / g.cap
	return 1 - z*z
}
