package cpu

import (
	"unsafe"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// b2i is 1 for true.
func b2i(v bool) int {
	if v {
		return 1
	}
	return 0
}

// packRows packs the weights w [cols, each, taps] of some taps: column j of the product is output j, and its
// sum runs over the inputs of tap after tap.
func (b *Backend) packRows(d *direct, w *tensor.Tensor, all int, taps []int) {
	natural := d.piece == d.run*d.each && !d.pairs // nothing lies between the taps
	d.next = d.panelWords()
	made := false
	d.packed, made = b.lasting(packedOf{viewOf(w).at(), 'r',
		[8]int{d.cols, d.each, all, len(taps), d.run, d.piece, d.next, b2i(d.pairs)}}, d.panels()*d.next)
	if made {
		return
	}
	b.shareWork(d.panels(), d.cols*d.sum()*16, func(k *worker, p int) {
		if natural {
			k.outputPanel(d.packed[p*d.next:], viewOf(w), p, d.cols, d.each, all)
			return
		}
		turned := k.arena.f32(16*d.each*all + 16)
		k.outputPanel(turned, viewOf(w), p, d.cols, d.each, all)
		k.packTurned(d, p, turned, d.each*halfPanel, taps)
	})
}

// outputPanel turns 16 outputs, from 16·p on, of weights [outs, each, taps] to [taps, each, 16].
func (w *worker) outputPanel(dst []float32, v view, p, outs, each, taps int) {
	n := each * taps
	blocks := ceilDiv(n, 16)
	if taps == 1 && n%16 == 0 && w.turnRows(dst, v, 16*p*n, outs-16*p, n, blocks) {
		return
	}
	defer w.arena.release(w.arena.mark())
	blocks = taps // of 16 inputs at a time, in first-level cache
	turned, rows := w.arena.f32(16*16*blocks+16), w.arena.zero(16*16*blocks+16)
	for c := 0; c < each; c += 16 {
		some := min(16, each-c)
		if at := 16*p*n + c*taps; !w.turnRows(turned, v, at, outs-16*p, n, ceilDiv(some*taps, 16)) {
			for i := range max(0, min(16, outs-16*p)) {
				w.k.read(rows[16*blocks*i:][:some*taps], v, at+i*n)
			}
			w.k.transpose(turned, 16, rows, 16*blocks, blocks)
		}
		for t := range taps {
			to, from := dst[(t*each+c)*16:][:some*16], turned[t*16:]
			for len(to) >= 16 {
				*(*[16]float32)(to) = *(*[16]float32)(from)
				if to = to[16:]; len(to) > 0 {
					from = from[16*taps:]
				}
			}
		}
	}
}

// turnRows transposes rows of float32s from at on as they lie, ld apart, where there are 16 and all that is
// read is there.
func (w *worker) turnRows(dst []float32, v view, at, rows, ld, blocks int) bool {
	if v.d != tensor.F32 || rows < 16 || at+15*ld+16*blocks > len(v.f) {
		return false
	}
	w.k.transpose(dst, 16, v.f[at:], ld, blocks)
	return true
}

// packColumns packs weights w [each, cols, taps] of some taps for each of several products: column j is input
// j, and its sum runs over the outputs of tap after tap.
func (b *Backend) packColumns(ds []*direct, w view, all int, taps [][]int) {
	each, cols := ds[0].each, ds[0].cols
	b.shareWork(ds[0].panels(), cols*each*all*16, func(k *worker, p int) {
		turned, ld := k.inputPanel(w, p, cols, each, all)
		for i, d := range ds {
			mark := k.arena.mark()
			k.packTurned(d, p, turned, ld, taps[i])
			k.arena.release(mark)
		}
	})
}

// inputPanel is 16 inputs, from 16·p on, of weights [outs, ins, taps], turned to [taps, outs, 16], in which
// taps are ld apart: no power of two.
func (w *worker) inputPanel(v view, p, ins, outs, taps int) (dst []float32, ld int) {
	blocks, n := ceilDiv(taps, 16), max(0, min(16, ins-16*p))
	ld = outs*16 + line
	dst = w.arena.f32(16*blocks*ld + 16)
	rows := w.arena.zero(32 * (taps + 16))
	for i := range outs {
		at := (i*ins + 16*p) * taps
		if v.d == tensor.F32 && n == 16 && at+15*taps+16*blocks <= len(v.f) {
			w.k.transpose(dst[i*16:], ld, v.f[at:], taps, blocks)
			continue
		}
		if n > 0 { // the last panel of a tile may have none
			w.k.read(rows[:n*taps], v, at)
		}
		w.k.transpose(dst[i*16:], ld, rows, taps, blocks)
	}
	return dst, ld
}

// packTurned packs panel p from rows of 16 columns, [taps, each], whose taps are ld apart.
func (w *worker) packTurned(d *direct, p int, turned []float32, ld int, taps []int) {
	sums, each := d.packed[p*d.next:][:d.sum()*halfPanel/d.word()], d.each
	dst := sums
	if d.pairs && d.piece == d.run*each && ld == each*halfPanel && inOrder(taps) { // as they are to lie
		dst = turned[:len(taps)*ld]
	} else {
		if d.pairs {
			dst = w.arena.f32(d.sum() * halfPanel)
		}
		if d.piece != d.run*each {
			clear(dst)
		}
		for q, t := range taps {
			copy(dst[d.position(q)*halfPanel:][:each*halfPanel], turned[t*ld:])
		}
	}
	if d.pairs {
		h, unused := w.arena.u16(len(dst)+halfPanel), w.arena.u16(len(dst))
		w.k.toBF16(h[:len(dst)], dst)
		w.k.vnni(halfWords(sums), unused, 0, 1, h, halfPanel, d.sum()/2)
	}
}

// inOrder tells whether taps are the first of all, in their order.
func inOrder(taps []int) bool {
	for q, t := range taps {
		if q != t {
			return false
		}
	}
	return true
}

// halfWords sees float32s as pairs of 16-bit elements.
func halfWords(v []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(v))), 2*len(v))
}
