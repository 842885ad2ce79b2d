package cpu

import "github.com/lfactor/lfactor/kernels/tensor"

// Products of which one dimension of the result is short, as those with the factors of an adapter: packing
// the long operand would take longer than multiplying it, since each packed number is used a few times. So
// it is multiplied where it lies. Sums have the order of blocked's, and results its bits.
const (
	thinMost  = 32      // rows or columns of a result that are few
	thinLeast = 1 << 20 // multiplications below which nothing is gained
)

// skinny computes r = x·yᵀ if it is such a product, in float32.
// In the words of the field: skinny matrices.
func (b *Backend) skinny(r result, x, y matrix, m, n, k int) bool {
	if x.v.d != tensor.F32 || y.v.d != tensor.F32 || r.v.d != tensor.F32 || r.bias != nil || r.then != nil ||
		y.few != nil || m*n*k < thinLeast || b.keeps(y) {
		return false
	}
	var task func(w *worker, from, to int)
	long, unit := m, b.k.mr
	switch {
	case n <= thinMost && m > 4*n && !x.trans:
		task = func(w *worker, from, to int) {
			w.whole(product{r.from(from), x.from(from), y, to - from, n, k})
		}
	case n <= thinMost && m > 4*n:
		unit = b.k.nr
		task = func(w *worker, from, to int) { w.skinnyTurned(r, x, y, from, to, n, k) }
	case m <= thinMost && n > 4*m && y.trans:
		long, unit = n, b.k.nr
		task = func(w *worker, from, to int) {
			c := r
			c.v = c.v.from(from)
			w.skinnyColumns(c, y, x, m, from, to, k, r.acc)
		}
	default:
		return false
	}
	step := roundUp(ceilDiv(long, 2*len(b.team.workers)), unit)
	b.shareWork(ceilDiv(long, step), m*n*k, func(w *worker, i int) {
		mark := w.arena.mark()
		task(w, i*step, min((i+1)*step, long))
		w.arena.release(mark)
	})
	return true
}

// skinnyColumns computes columns [from, to) of a product of few rows, those of left, with right, which is
// summed along its columns; r begins with the first of them.
func (w *worker) skinnyColumns(r result, right, left matrix, rows, from, to, k int, acc bool) {
	mr, kc := w.k.mr, sumPart(k)
	next := panelLen(mr, kc)
	packed := w.arena.f32(ceilDiv(rows, mr) * next)
	for p0 := 0; p0 < k; p0 += kc {
		kn := min(kc, k-p0)
		w.panels(packed, next, mr, ceilDiv(rows, mr), left, 0, rows, p0, kn)
		w.timesColumns(r.v.f, r.ld, rows, operand{v: packed, row: 1, step: mr, next: next}, right, from, to, p0, kn,
			acc || p0 > 0)
	}
}

// skinnyTurned computes rows [from, to) of a product of few columns with a left operand that is summed along
// its columns: as columns of the product turned.
func (w *worker) skinnyTurned(r result, x, y matrix, from, to, n, k int) {
	wide, tall := roundUp(to-from, 16), roundUp(n, 16)
	c, t := w.arena.zero(tall*wide+16), w.arena.f32(tall*wide+16)
	if r.acc {
		for i := from; i < to; i++ {
			for j, v := range r.v.f[i*r.ld:][:n] {
				c[j*wide+i-from] = v
			}
		}
	}
	w.skinnyColumns(result{v: view{f: c}, ld: wide}, x, y, n, from, to, k, r.acc)
	for j := 0; j < n; j += 16 {
		w.k.transpose(t[j:], tall, c[j*wide:], wide, wide/16)
	}
	for i := from; i < to; i++ {
		copy(r.v.f[i*r.ld:][:n], t[(i-from)*tall:])
	}
}

// narrowCols is the columns of isa.narrowRows.
const narrowCols = 16

// wholeNarrow is whole for rows of float32s, where they lie, and few columns.
func (w *worker) wholeNarrow(p product) {
	mr, kc := w.k.mr, sumPart(p.k)
	next := panelLen(narrowCols, kc)
	right, t := w.arena.f32(next), w.arena.f32(mr*narrowCols)
	c, ldc := w.arenaFor(p.r, part{m: p.m, to: p.n})
	atOnce := max(1, callMax/(mr*narrowCols*max(kc, 1)))
	for p0 := 0; p0 < p.k; p0 += kc {
		kn, acc := min(kc, p.k-p0), b2i(p.r.acc || p0 > 0)
		w.panels(right, next, narrowCols, 1, p.y, 0, p.n, p0, kn)
		for i := 0; i < p.m; {
			mark, n := w.arena.mark(), 1
			if p.n == narrowCols {
				n = max(1, min(atOnce, (p.m-i)/mr))
			}
			rows := min(n*mr, p.m-i)
			x, d := w.leftRows(p.x, i, rows, p0, kn), c[i*ldc:]
			if p.n == narrowCols && rows == n*mr {
				w.k.narrowRows(x.v, x.row, x.next, right, narrowCols, d, ldc, mr*ldc, kn, n, acc)
			} else {
				w.k.narrowRows(x.v, x.row, x.next, right, narrowCols, t, narrowCols, 0, kn, 1, 0)
				w.place(d, ldc, rows, p.n, t, narrowCols, acc)
			}
			i += rows
			w.arena.release(mark)
		}
	}
	if p.r.v.d != tensor.F32 {
		for i := range p.m {
			w.k.write(p.r.v, i*p.r.ld, c[i*ldc:i*ldc+p.n])
		}
	}
}
