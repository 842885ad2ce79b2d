package cpu

import "unsafe"

// floats sees pairs of bfloat16 as float32s, for transposing them.
func floats(v []uint16) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(v))), cap(v)/2)
}

// amxRight packs 32 columns of the right operand, from j on: tiles of pairs along the sum by 16 columns.
func (w *worker) amxRight(dst []uint16, y matrix, j, n, k int) {
	ks := ceilDiv(k, amxSide)
	if y.trans {
		w.pairRows(dst, dst[ks*tileHalf:], y, j, n, k)
		return
	}
	defer w.arena.release(w.arena.mark())
	for h := range 2 {
		rows := w.wholeRows(y, j+16*h, n, k)
		w.k.transpose(floats(dst[h*ks*tileHalf:]), 16, floats(rows.h), rows.ld/2, ks)
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

// pairRows interleaves pairs of rows of a column-major operand: 32 columns from j of n, over k rows, filled up with zeros.
func (w *worker) pairRows(lo, hi []uint16, y matrix, j, n, k int) {
	whole := 0
	if j+amxSide <= n {
		whole = k / 2
		w.k.vnni(lo, hi, y.v.h[j:], y.ld, whole)
	}
	if rest := ceilDiv(k, amxSide) * 16; whole < rest {
		defer w.arena.release(w.arena.mark())
		s := w.arena.u16((rest - whole) * 2 * amxSide)
		clear(s)
		width := min(amxSide, n-j)
		for p := 2 * whole; p < k; p++ {
			copy(s[(p-2*whole)*amxSide:][:width], y.v.h[p*y.ld+j:])
		}
		w.k.vnni(lo[whole*amxSide:], hi[whole*amxSide:], s, amxSide, rest-whole)
	}
}

// amxLeft packs 32 rows of the left operand, from i on: tiles of 16 rows by 32 elements along the sum.
func (w *worker) amxLeft(dst []uint16, x matrix, i, m, k int) {
	ks := ceilDiv(k, amxSide)
	defer w.arena.release(w.arena.mark())
	if x.trans {
		lo, hi := w.arena.u16(ks*tileHalf), w.arena.u16(ks*tileHalf)
		w.pairRows(lo, hi, x, i, m, k)
		for h, s := range [2][]uint16{lo, hi} {
			for t := range ks {
				w.k.transpose(floats(dst[(h*ks+t)*tileHalf:]), 16, floats(s[t*tileHalf:]), 16, 1)
			}
		}
		return
	}
	for h := range 2 {
		rows := w.wholeRows(x, i+16*h, m, k)
		for t := range ks {
			w.k.copyRows(floats(dst[(h*ks+t)*tileHalf:]), 16, floats(rows.h[t*amxSide:]), rows.ld/2, 16)
		}
	}
}
