package cpu

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.GroupedLinear], table[kernels.GroupedLinearDX],
		table[kernels.GroupedLinearDW] = groupedLinear, groupedLinearDX, groupedLinearDW
}

// smallGroup is the most rows of a group whose matrix is multiplied where it lies: packing it would cost
// more than it gains. Reading columns in place, as the input gradient does, is the slower way. Products of
// pairs of bfloat16 are so fast that packing pays always, and their sums have another order than those of
// float32. A row's sums have one order in groups of any size.
var smallGroup = map[kernels.Op]struct{ floats, pairs int }{kernels.GroupedLinear: {64, 0},
	kernels.GroupedLinearDX: {48, 0}, kernels.GroupedLinearDW: {64, 16}}

// groupedWork is the multiplications that one task of small groups should have.
const groupedWork = 1 << 21

// wholeMax is the multiplications up to which a group's product is a task of one thread, which packs for itself:
// threads that share one product wait for each other twice. Larger ones would leave threads idle at the end.
const wholeMax = 32 << 20

// part is a task: columns [from, to) of the result of group g, whose rows begin at at.
type part struct {
	g, at, m, from, to int
	whole              bool // the group's product as it is, not one for few rows
}

// product is r (+)= x·yᵀ: m rows and n columns, summed over k.
type product struct {
	r       result
	x, y    matrix
	m, n, k int
}

// grouped is one product a group.
type grouped struct {
	rows *tensor.Tensor // whose rows before and after all groups are cleared, nil for none
	// Tasks of small groups are cut along a dimension of the result, wide, in multiples of unit; each of its
	// elements costs depth multiplications a row.
	wide, depth, unit int
	of                func(g, at, m int) product
	small             func(w *worker, p part)
}

// groups runs groups of many multiplications one after the other on all threads, and then the others as tasks.
func (b *Backend) groups(c *kernels.Call, o grouped) {
	off, most := c.In[2].I32(), smallGroup[c.Op].floats
	if b.k.amx && c.In[0].DType == tensor.BF16 {
		most = smallGroup[c.Op].pairs
	}
	if o.rows != nil {
		b.clearRows(o.rows, 0, int(off[0]))
		b.clearRows(o.rows, int(off[len(off)-1]), o.rows.Shape[0])
	}
	var parts []part
	work := 0
	for g := range len(off) - 1 {
		at, m := int(off[g]), int(off[g+1]-off[g])
		if m == 0 && o.rows != nil {
			continue
		}
		all := m * o.wide * o.depth
		if m > most && (all > wholeMax || all == 0) {
			p := o.of(g, at, m)
			b.blocked(p.r, p.x, p.y, p.m, p.n, p.k)
			continue
		}
		work += all
		if m > most {
			parts = append(parts, part{g: g, at: at, m: m, whole: true})
			continue
		}
		step := roundUp(max(o.unit, groupedWork/max(1, max(m, 1)*o.depth)), o.unit)
		for j := 0; j < o.wide; j += step {
			parts = append(parts, part{g: g, at: at, m: m, from: j, to: min(j+step, o.wide)})
		}
	}
	b.shareWork(len(parts), max(work, len(parts)*1024), func(w *worker, i int) {
		if p := parts[i]; p.whole {
			w.whole(o.of(p.g, p.at, p.m))
		} else {
			o.small(w, p)
		}
	})
}

// whole is blocked on this worker alone, to the same bits.
func (w *worker) whole(p product) {
	if w.k.amx && p.x.v.d == tensor.BF16 && p.y.v.d == tensor.BF16 {
		w.amxWhole(p)
		return
	}
	if p.n <= narrowCols && w.k.narrowRows != nil && p.x.v.d == tensor.F32 && !p.x.trans {
		w.wholeNarrow(p)
		return
	}
	mr, nr, kc := w.k.mr, w.k.nr, sumPart(p.k)
	next := panelLen(nr, kc)
	right := w.arena.f32(ceilDiv(p.n, nr) * next)
	c, ldc := w.arenaFor(p.r, part{m: p.m, to: p.n})
	for p0 := 0; p0 < p.k; p0 += kc {
		mark, kn, acc := w.arena.mark(), min(kc, p.k-p0), p.r.acc || p0 > 0
		w.panels(right, next, nr, ceilDiv(p.n, nr), p.y, 0, p.n, p0, kn)
		y := columns{v: right, step: nr, next: next}
		if p.x.trans {
			step := panelLen(mr, kc)
			left := w.arena.f32(ceilDiv(p.m, mr) * step)
			w.panels(left, step, mr, ceilDiv(p.m, mr), p.x, 0, p.m, p0, kn)
			w.product(c, ldc, p.m, p.n, kn, operand{v: left, row: 1, step: mr, next: step}, y, acc)
		} else {
			whole := p.m / mr * mr
			w.product(c, ldc, whole, p.n, kn, w.leftRows(p.x, 0, whole, p0, kn), y, acc)
			if rest := p.m - whole; rest > 0 {
				w.product(c[whole*ldc:], ldc, rest, p.n, kn, w.leftRows(p.x, whole, rest, p0, kn), y, acc)
			}
		}
		w.arena.release(mark)
	}
	if p.r.v.d != tensor.F32 {
		for i := range p.m {
			w.k.write(p.r.v, i*p.r.ld, c[i*ldc:i*ldc+p.n])
		}
	}
}

// clearRows sets rows [from, to) to 0.
func (b *Backend) clearRows(t *tensor.Tensor, from, to int) {
	n := lastDim(t) * t.DType.Size()
	clear(t.Bytes()[from*n : to*n])
}

// groupedLinear is y = x·wᵀ with a matrix w [g,n,k] per group of rows, as of experts. Groups of
// heads lie side by side in each row instead of one below the other.
func groupedLinear(b *Backend, c *kernels.Call) {
	x, w := rowMajor(c.In[0]), rowMajor(c.In[1])
	n, k := c.In[1].Shape[1], c.In[1].Shape[2]
	if ofHeads(c) {
		for i := range c.In[1].Shape[0] {
			r := ofHead(rowMajor(c.Out[0]), c.Out[0], i)
			b.blocked(result{v: r.v, ld: r.ld}, ofHead(x, c.In[0], i), w.from(i*n), c.In[0].Shape[0], n, k)
		}
		return
	}
	if kernels.Parts(c) > 1 {
		b.groupedInParts(c)
		return
	}
	b.groupsOf(c, c.Out[0], x, w, k)
}

// groupsOf sets y to the products of a call with sums over k.
func (b *Backend) groupsOf(c *kernels.Call, to *tensor.Tensor, x, w matrix, k int) {
	n, y := c.In[1].Shape[1], result{v: viewOf(to), ld: lastDim(to)}
	b.groups(c, grouped{rows: to, wide: n, depth: k, unit: b.k.mr,
		of: func(g, at, m int) product { return product{y.from(at), x.from(at), w.from(g * n), m, n, k} },
		small: func(wk *worker, p part) {
			wk.turned(y.from(p.at), x.from(p.at), w.from(p.g*n), p, k)
		}})
}

// groupedLinearDX is dx = dy·w, group by group.
func groupedLinearDX(b *Backend, c *kernels.Call) {
	dy, w, dx := rowMajor(c.In[0]), columnMajor(c.In[1]), result{v: viewOf(c.Out[0]), ld: lastDim(c.Out[0])}
	n, k := c.In[1].Shape[1], c.In[1].Shape[2]
	if ofHeads(c) {
		for i := range c.In[1].Shape[0] {
			r := ofHead(rowMajor(c.Out[0]), c.Out[0], i)
			b.blocked(result{v: r.v, ld: r.ld}, ofHead(dy, c.In[0], i), w.from(i*n), c.In[0].Shape[0], k, n)
		}
		return
	}
	b.groups(c, grouped{rows: c.Out[0], wide: k, depth: n, unit: b.k.nr,
		of: func(g, at, m int) product { return product{dx.from(at), dy.from(at), w.from(g * n), m, k, n} },
		small: func(wk *worker, p part) {
			wk.rowsTimes(dx.from(p.at), dy.from(p.at), w.from(p.g*n), p, n)
		}})
}

// groupedLinearDW is dw = dyᵀ·x, group by group, in float32. A group without rows has the gradient 0.
func groupedLinearDW(b *Backend, c *kernels.Call) {
	dy, x, dw := columnMajor(c.In[0]), columnMajor(c.In[1]), c.Out[0]
	n, k := dw.Shape[1], dw.Shape[2]
	r := result{v: viewOf(dw), ld: k, acc: c.Attr.I[0] == kernels.Accumulate}
	if ofHeads(c) {
		for i := range dw.Shape[0] {
			b.gemm(r.from(i*n), ofHead(dy, c.In[0], i), ofHead(x, c.In[1], i), n, k, c.In[0].Shape[0])
		}
		return
	}
	b.groups(c, grouped{wide: n, depth: k, unit: b.k.mr,
		of: func(g, at, m int) product { return product{r.from(g * n), dy.from(at), x.from(at), n, k, m} },
		small: func(wk *worker, p part) {
			if d := r.from(p.g*n + p.from); p.m > 0 {
				wk.outer(d, dy.from(p.at), x.from(p.at), p, k)
			} else if !r.acc {
				clear(d.v.f[:(p.to-p.from)*k])
			}
		}})
}

// ofHeads reports whether groups are heads: each has a row of every token.
func ofHeads(c *kernels.Call) bool { return len(c.In) < 3 || c.In[2] == nil }

// ofHead is the rows of head i of a tensor [rows, heads, width] that m has all of.
func ofHead(m matrix, t *tensor.Tensor, i int) matrix {
	m.v, m.ld = m.v.from(min(i*lastDim(t), t.Len())), t.Shape[1]*lastDim(t)
	return m
}

// from is the operand from a row of its tensor on.
func (m matrix) from(row int) matrix { m.v = m.v.from(row * m.ld); return m }

func (r result) from(row int) result { r.v = r.v.from(row * r.ld); return r }

// turned computes the transpose of columns [from, to): rows of y, where they lie, times the packed rows of x.
func (w *worker) turned(r result, x, y matrix, p part, k int) {
	mr, nr := w.k.mr, w.k.nr
	n, panels, kc := p.to-p.from, ceilDiv(p.m, nr), sumPart(k)
	next, ldc := panelLen(nr, kc), roundUp(roundUp(p.m, nr), 16)
	packed, c := w.arena.f32(panels*next), w.arena.f32(roundUp(n, 16)*ldc)
	if k == 0 {
		clear(c)
	}
	full := n / mr * mr
	for p0 := 0; p0 < k; p0 += kc {
		kn := min(kc, k-p0)
		w.panels(packed, next, nr, panels, x, 0, p.m, p0, kn)
		right := columns{v: packed, step: nr, next: next}
		for i := 0; i < n; i += max(full, mr) { // whole tiles of rows, then the rest
			mark, rows := w.arena.mark(), min(max(full, mr), n-i)
			w.product(c[i*ldc:], ldc, rows, p.m, kn, w.leftRows(y, p.from+i, rows, p0, kn), right, p0 > 0)
			w.arena.release(mark)
		}
	}
	w.writeTurned(r, c, ldc, p)
}

// sumPart is the part of a sum over k that is done at a time.
func sumPart(k int) int { return max(1, ceilDiv(k, max(1, ceilDiv(k, kcMax)))) }

// leftRows is rows of y as the left side of a product: in place if they fill tiles, else a copy that does.
func (w *worker) leftRows(y matrix, row, rows, p0, kn int) operand {
	if y.v.d == tensor.F32 && rows%w.k.mr == 0 {
		return operand{v: y.v.f[row*y.ld+p0:], row: y.ld, step: 1, next: w.k.mr * y.ld}
	}
	s := w.arena.zero(roundUp(rows, w.k.mr) * kn)
	for i := range rows {
		w.k.read(s[i*kn:(i+1)*kn], y.v, (row+i)*y.ld+p0)
	}
	return operand{v: s, row: kn, step: 1, next: w.k.mr * kn}
}

// writeTurned writes the columns of c, which has a row for each column of the part.
func (w *worker) writeTurned(r result, c []float32, ldc int, p part) {
	n := roundUp(p.to-p.from, 16)
	t := w.arena.f32(ldc * n)
	for j := 0; j < n; j += 16 {
		w.k.transpose(t[j:], n, c[j*ldc:], ldc, ldc/16)
	}
	for i := range p.m {
		w.k.write(r.v, i*r.ld+p.from, t[i*n:i*n+p.to-p.from])
	}
}

// rowsTimes computes columns [from, to) of rows of x times y, which is summed along its rows, where it lies.
func (w *worker) rowsTimes(r result, x, y matrix, p part, k int) {
	mr, n, kc := w.k.mr, p.to-p.from, sumPart(k)
	next := panelLen(mr, kc)
	packed := w.arena.f32(ceilDiv(p.m, mr) * next)
	c, ldc := w.arenaFor(r, p)
	if k == 0 {
		for i := range p.m {
			clear(c[i*ldc : i*ldc+n])
		}
	}
	for p0 := 0; p0 < k; p0 += kc {
		kn := min(kc, k-p0)
		w.panels(packed, next, mr, ceilDiv(p.m, mr), x, 0, p.m, p0, kn)
		left := operand{v: packed, row: 1, step: mr, next: next}
		w.timesColumns(c, ldc, p.m, left, y, p.from, p.to, p0, kn, p0 > 0)
	}
	if r.v.d != tensor.F32 {
		for i := range p.m {
			w.k.write(r.v, i*r.ld+p.from, c[i*ldc:i*ldc+n])
		}
	}
}

// arenaFor is where a part of the result is computed: in place if it is float32.
func (w *worker) arenaFor(r result, p part) ([]float32, int) {
	if r.v.d == tensor.F32 {
		return r.v.f[p.from:], r.ld
	}
	return w.arena.f32(p.m * (p.to - p.from)), p.to - p.from
}

// timesColumns multiplies with columns [from, to) of y, rows [p0, p0+kn): those of whole tiles where they
// lie, the rest packed.
func (w *worker) timesColumns(c []float32, ldc, m int, left operand, y matrix, from, to, p0, kn int, acc bool) {
	nr, whole := w.k.nr, 0
	if y.v.d == tensor.F32 {
		whole = (to - from) / nr * nr
		w.product(c, ldc, m, whole, kn, left, columns{v: y.v.f[p0*y.ld+from:], step: y.ld, next: nr}, acc)
	}
	if rest := to - from - whole; rest > 0 {
		defer w.arena.release(w.arena.mark())
		next := panelLen(nr, kn)
		s := w.arena.f32(ceilDiv(rest, nr) * next)
		w.panels(s, next, nr, ceilDiv(rest, nr), y, from+whole, to, p0, kn)
		w.product(c[whole:], ldc, m, rest, kn, left, columns{v: s, step: nr, next: next}, acc)
	}
}

// outer adds up products of rows of x and y: rows [from, to) of the result, of k columns.
func (w *worker) outer(r result, x, y matrix, p part, k int) {
	mr, n := w.k.mr, p.to-p.from
	next := panelLen(mr, p.m)
	packed := w.arena.f32(ceilDiv(n, mr) * next)
	w.panels(packed, next, mr, ceilDiv(n, mr), x, p.from, p.to, 0, p.m)
	w.timesColumns(r.v.f, r.ld, n, operand{v: packed, row: 1, step: mr, next: next}, y, 0, k, 0, p.m, r.acc)
}
