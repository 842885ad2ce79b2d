package cpu

import "unsafe"

// floats sees pairs of bfloat16 as float32s, for transposing them.
func floats(v []uint16) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(v))), cap(v)/2)
}

// amxRight packs n panels of 32 columns of the right operand, from j on: tiles of pairs along the sum by 16 columns.
func (w *worker) amxRight(dst []uint16, panels int, y matrix, j, n, k int) {
	ks := ceilDiv(k, amxSide)
	if y.trans {
		w.pairRows(dst, dst[halfLen(ks):], 2*halfLen(ks), panels, y, j, n, 0, k)
		return
	}
	for p := range panels {
		for h := range 2 {
			m := w.arena.mark()
			rows := w.wholeRows(y, j+p*amxSide+16*h, n, k)
			w.k.transpose(floats(dst[(2*p+h)*halfLen(ks):]), 16, floats(rows.h), rows.ld/2, ks)
			w.arena.release(m)
		}
	}
}

// evenRows are rows of bfloat16 that can be read as pairs.
type evenRows struct {
	h  []uint16
	ld int
}

// wholeRows is 16 rows from i of m, readable up to a multiple of 32: in place, or as a copy filled up with zeros.
func (w *worker) wholeRows(x matrix, i, m, k int) evenRows {
	if i+16 <= m && k%amxSide == 0 && x.ld%2 == 0 {
		return evenRows{x.v.h[i*x.ld:], x.ld}
	}
	ld := roundUp(k, amxSide)
	s := w.arena.u16(16 * ld)
	clear(s)
	for r := range max(0, min(16, m-i)) {
		copy(s[r*ld:r*ld+k], x.v.h[(i+r)*x.ld:])
	}
	return evenRows{s, ld}
}

// pairRows interleaves pairs of rows [p0, p1) of a column-major operand in panels of 32 columns from j of n,
// filled up with zeros to a multiple of 32 rows.
func (w *worker) pairRows(lo, hi []uint16, next, panels int, y matrix, j, n, p0, p1 int) {
	whole := 0
	if j+panels*amxSide <= n {
		whole = (p1 - p0) / 2
		w.k.vnni(lo, hi, next, panels, y.v.h[p0*y.ld+j:], y.ld, whole)
	}
	rest := ceilDiv(p1-p0, amxSide)*16 - whole
	if rest == 0 {
		return
	}
	defer w.arena.release(w.arena.mark())
	wide := panels * amxSide
	s := w.arena.u16(rest * 2 * wide)
	clear(s)
	for p := p0 + 2*whole; p < p1; p++ {
		copy(s[(p-p0-2*whole)*wide:][:min(wide, n-j)], y.v.h[p*y.ld+j:])
	}
	w.k.vnni(lo[whole*amxSide:], hi[whole*amxSide:], next, panels, s, wide, rest)
}

// turnRows is the rows that amxLeft interleaves at a time before it turns them.
const turnRows = 256

// amxLeft packs panels of 32 rows of the left operand, from i on: tiles of 16 rows by 32 elements along the sum.
func (w *worker) amxLeft(dst []uint16, panels int, x matrix, i, m, k int) {
	ks := ceilDiv(k, amxSide)
	defer w.arena.release(w.arena.mark())
	if !x.trans {
		for h := range 2 * panels {
			mark := w.arena.mark()
			rows := w.wholeRows(x, i+16*h, m, k)
			for t := range ks {
				w.k.copyRows(floats(dst[h*halfLen(ks)+t*tileHalf:]), floats(rows.h[t*amxSide:]), rows.ld/2, 16)
			}
			w.arena.release(mark)
		}
		return
	}
	const steps = turnRows / amxSide
	s := w.arena.u16(panels * 2 * halfLen(steps))
	for p := 0; p < k; p += turnRows {
		end := min(p+turnRows, k)
		w.pairRows(s, s[halfLen(steps):], 2*halfLen(steps), panels, x, i, m, p, end)
		for h := range 2 * panels {
			for t := range ceilDiv(end-p, amxSide) {
				w.k.transpose(floats(dst[h*halfLen(ks)+(p/amxSide+t)*tileHalf:]), 16,
					floats(s[h*halfLen(steps)+t*tileHalf:]), 16, 1)
			}
		}
	}
}
