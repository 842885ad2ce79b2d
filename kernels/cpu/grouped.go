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

// part is a task: columns [from, to) of the result of group g, whose rows begin at at.
type part struct{ g, at, m, from, to int }

// groups runs large groups one after the other on all threads, and then the small ones as tasks. wide is the
// dimension of the result that tasks are cut along, in multiples of unit; each of its elements costs depth
// multiplications a row. Rows before and after all groups are cleared in rows, if it is not a nil tensor.
func (b *Backend) groups(c *kernels.Call, rows *tensor.Tensor, wide, depth, unit int,
	large func(g, at, m int), small func(w *worker, p part)) {
	off, most := c.In[2].I32(), smallGroup[c.Op].floats
	if b.k.amx && c.In[0].DType == tensor.BF16 {
		most = smallGroup[c.Op].pairs
	}
	if rows != nil {
		b.clearRows(rows, 0, int(off[0]))
		b.clearRows(rows, int(off[len(off)-1]), rows.Shape[0])
	}
	var parts []part
	work := 0
	for g := range len(off) - 1 {
		at, m := int(off[g]), int(off[g+1]-off[g])
		if m == 0 && rows != nil {
			continue
		}
		if m > most {
			large(g, at, m)
			continue
		}
		step := roundUp(max(unit, groupedWork/max(1, max(m, 1)*depth)), unit)
		for j := 0; j < wide; j += step {
			parts = append(parts, part{g, at, m, j, min(j+step, wide)})
		}
		work += m * wide * depth
	}
	b.shareWork(len(parts), max(work, len(parts)*1024), func(w *worker, i int) { small(w, parts[i]) })
}

// clearRows sets rows [from, to) to 0.
func (b *Backend) clearRows(t *tensor.Tensor, from, to int) {
	n := lastDim(t) * t.DType.Size()
	clear(t.Bytes()[from*n : to*n])
}

func groupedLinear(b *Backend, c *kernels.Call) {
	x, w, y := rowMajor(c.In[0]), rowMajor(c.In[1]), result{v: viewOf(c.Out[0]), ld: lastDim(c.Out[0])}
	n, k := c.In[1].Shape[1], c.In[1].Shape[2]
	b.groups(c, c.Out[0], n, k, b.k.mr, func(g, at, m int) {
		b.blocked(y.from(at), x.from(at), w.from(g*n), m, n, k)
	}, func(wk *worker, p part) {
		if p.m > 0 {
			wk.turned(y.from(p.at), x.from(p.at), w.from(p.g*n), p, k)
		}
	})
}

func groupedLinearDX(b *Backend, c *kernels.Call) {
	dy, w, dx := rowMajor(c.In[0]), columnMajor(c.In[1]), result{v: viewOf(c.Out[0]), ld: lastDim(c.Out[0])}
	n, k := c.In[1].Shape[1], c.In[1].Shape[2]
	b.groups(c, c.Out[0], k, n, b.k.nr, func(g, at, m int) {
		b.blocked(dx.from(at), dy.from(at), w.from(g*n), m, k, n)
	}, func(wk *worker, p part) {
		if p.m > 0 {
			wk.rowsTimes(dx.from(p.at), dy.from(p.at), w.from(p.g*n), p, n)
		}
	})
}

func groupedLinearDW(b *Backend, c *kernels.Call) {
	dy, x, dw := columnMajor(c.In[0]), columnMajor(c.In[1]), c.Out[0]
	n, k := dw.Shape[1], dw.Shape[2]
	r := result{v: viewOf(dw), ld: k, acc: c.Attr.I[0] == kernels.Accumulate}
	b.groups(c, nil, n, k, b.k.mr, func(g, at, m int) {
		b.gemm(r.from(g*n), dy.from(at), x.from(at), n, k, m)
	}, func(wk *worker, p part) {
		if d := r.from(p.g*n + p.from); p.m > 0 {
			wk.outer(d, dy.from(p.at), x.from(p.at), p, k)
		} else if !r.acc {
			clear(d.v.f[:(p.to-p.from)*k])
		}
	})
}

// from is the operand from a row of its tensor on.
func (m matrix) from(row int) matrix { m.v = m.v.from(row * m.ld); return m }

func (r result) from(row int) result { r.v = r.v.from(row * r.ld); return r }

// turned computes the transpose of columns [from, to): rows of y, where they lie, times the packed rows of
// x.
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
func (w *worker) timesColumns(c []float32, ldc, m int, left operand, y matrix, from, to, p0, kn int,
	acc bool) {
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
