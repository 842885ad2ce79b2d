package cpu

import (
	"unsafe"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// packRows packs the weights w [cols, each, taps] of some taps: column j of the product is output j, and its
// sum runs over the inputs of tap after tap.
func (b *Backend) packRows(d *direct, w *tensor.Tensor, all int, taps []int) {
	natural := d.piece == d.run*d.each // nothing lies between the taps
	b.shareWork(d.panels(), d.cols*d.sum()*16, func(k *worker, p int) {
		if natural {
			k.outputPanel(d.packed[p*d.next:], viewOf(w), p, d.cols, d.each, all, d.pairs)
			return
		}
		turned := k.arena.f32(16*roundUp(d.each*all, 32) + 16)
		k.outputPanel(turned, viewOf(w), p, d.cols, d.each, all, false)
		k.packTurned(d, p, turned, taps)
	})
}

// outputPanel turns 16 outputs, from 16·p on, of weights [outs, each, taps] to [taps, each, 16]; as pairs of
// bfloat16 to [taps, each/2, 16, 2].
func (w *worker) outputPanel(dst []float32, v view, p, outs, each, taps int, pairs bool) {
	wide, ld, n := roundUp(each, 16), roundUp(each*taps, 32), max(0, min(16, outs-16*p))
	defer w.arena.release(w.arena.mark())
	rows := w.arena.f32(16*ld + 16)
	if n < 16 || ld != each*taps {
		clear(rows)
	}
	row, turned := w.arena.f32((wide+16)*(taps+16)), w.arena.f32(roundUp(taps, 16)*wide+16)
	clear(row[each*taps:])
	for i := range n {
		w.k.read(row[:each*taps], v, (16*p+i)*each*taps)
		for c := 0; c < each; c += 16 {
			w.k.transpose(turned[c:], wide, row[c*taps:], taps, ceilDiv(taps, 16))
		}
		for t := range taps {
			copy(rows[i*ld+t*each:][:each], turned[t*wide:])
		}
	}
	if pairs {
		h := w.arena.u16(16 * ld)
		w.k.toBF16(h, rows[:16*ld])
		rows, ld = floats(h), ld/2
	}
	w.k.transpose(dst, 16, rows, ld, ld/16)
}

// packColumns packs weights w [each, cols, taps] of some taps for each of several products: column j is input
// j, and its sum runs over the outputs of tap after tap.
func (b *Backend) packColumns(ds []*direct, w view, all int, taps [][]int) {
	each, cols := ds[0].each, ds[0].cols
	b.shareWork(ds[0].panels(), cols*each*all*16, func(k *worker, p int) {
		turned := k.inputPanel(w, p, cols, each, all)
		for i, d := range ds {
			mark := k.arena.mark()
			k.packTurned(d, p, turned, taps[i])
			k.arena.release(mark)
		}
	})
}

// inputPanel is 16 inputs, from 16·p on, of weights [outs, ins, taps], turned to [taps, outs, 16].
func (w *worker) inputPanel(v view, p, ins, outs, taps int) []float32 {
	blocks, n := ceilDiv(taps, 16), max(0, min(16, ins-16*p))
	dst, rows := w.arena.f32(16*blocks*outs*16+16), w.arena.zero(32*(taps+16))
	for i := range outs {
		if n > 0 { // the last panel of a tile may have none
			w.k.read(rows[:n*taps], v, (i*ins+16*p)*taps)
		}
		w.k.transpose(dst[i*16:], outs*16, rows, taps, blocks)
	}
	return dst
}

// packTurned packs panel p from rows of 16 columns, [taps, each].
func (w *worker) packTurned(d *direct, p int, turned []float32, taps []int) {
	sums, each := d.packed[p*d.next:][:d.sum()*halfPanel/d.word()], d.each
	dst := sums
	if d.pairs {
		dst = w.arena.f32(d.sum() * halfPanel)
	}
	if d.piece != d.run*each {
		clear(dst)
	}
	for q, t := range taps {
		copy(dst[d.position(q)*halfPanel:][:each*halfPanel], turned[t*each*halfPanel:])
	}
	if d.pairs {
		h, unused := w.arena.u16(len(dst)+halfPanel), w.arena.u16(len(dst))
		w.k.toBF16(h[:len(dst)], dst)
		w.k.vnni(halfWords(sums), unused, 0, 1, h, halfPanel, d.sum()/2)
	}
}

// halfWords sees float32s as pairs of 16-bit elements.
func halfWords(v []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(v))), 2*len(v))
}
