package webp

import (
	"encoding/binary"
	"unsafe"
)

// The macroblock at hand is made in a small area, luma above the two kinds of chroma, each with the row
// above it and the column left of it; luma's row above goes on for four pixels.
const (
	workStride = 32
	workRows   = 26
	lumaAt     = 1*workStride + 8
	uAt        = 18*workStride + 8
	vAt        = 18*workStride + 24
)

// Modes of prediction (section 8): 4×4 blocks have all, larger areas the first four.
const (
	modeDC = iota
	modeTM
	modeVE
	modeHE
	modeRD
	modeVR
	modeLD
	modeVL
	modeHD
	modeHU
	modes
)

// macroblock reads a macroblock and makes its pixels.
func (d *lossy) macroblock(mx, my int) {
	r, above := &d.first, &d.above[mx]
	if d.segments.mapped {
		d.segment = 0
		if r.bit(d.segments.probs[0]) {
			d.segment = 2
		}
		if r.bit(d.segments.probs[1+d.segment/2]) {
			d.segment++
		}
	}
	empty := d.skips && r.bit(d.skipProb)
	d.readModes(above)
	if d.dirty {
		clear(d.coef[:])
		d.dirty = false
	}
	var filled uint32
	if empty {
		kept := [2]byte{above.filled[8], d.left.filled[8]}
		above.filled, d.left.filled = [9]byte{}, [9]byte{}
		if !d.whole { // there is no block of constant terms: what was said of it stays
			above.filled[8], d.left.filled[8] = kept[0], kept[1]
		}
	} else {
		filled = d.readCoefficients(&d.parts[my&(d.nParts-1)], above)
	}
	d.borders(mx, my)
	d.reconstruct(mx, my, filled)
	d.copyOut(mx, my)
	blocks := 1
	if d.whole {
		blocks = 0
	}
	s := d.strength[d.segment][blocks]
	s.all = s.all || filled != 0
	d.strengths[mx] = s
}

// readModes reads how a macroblock is predicted (section 11).
func (d *lossy) readModes(above *macroblock) {
	r := &d.first
	if d.whole = r.bit(145); d.whole {
		switch {
		case !r.bit(156):
			d.lumaMode = modeDC
			if r.bit(163) {
				d.lumaMode = modeVE
			}
		case !r.bit(128):
			d.lumaMode = modeHE
		default:
			d.lumaMode = modeTM
		}
		m := d.lumaMode
		above.modes = [4]byte{m, m, m, m}
		d.left.modes = above.modes
	} else if native {
		readModes((*byte)(unsafe.Pointer(r)), &modeProbs[0][0][0], &above.modes[0], &d.left.modes[0], &d.modes[0])
	} else {
		for y := range 4 {
			m := d.left.modes[y]
			for x := range 4 {
				m = r.blockMode(&modeProbs[above.modes[x]][m])
				d.modes[4*y+x] = m
				above.modes[x] = m
			}
			d.left.modes[y] = m
		}
	}
	switch {
	case !r.bit(142):
		d.colorMode = modeDC
	case !r.bit(114):
		d.colorMode = modeVE
	case !r.bit(183):
		d.colorMode = modeHE
	default:
		d.colorMode = modeTM
	}
}

// modeTree is the tree of modes of a 4×4 block (section 11.2): what follows on a 0 and on a 1; leaves are negative.
var modeTree = [9][2]int8{{-modeDC, 1}, {-modeTM, 2}, {-modeVE, 3}, {4, 6}, {-modeHE, 5}, {-modeRD, -modeVR},
	{-modeLD, 7}, {-modeVL, 8}, {-modeHD, -modeHU}}

// blockMode reads how a block of 4 by 4 is predicted, along a tree of choices.
func (r *boolReader) blockMode(probs *[9]byte) byte {
	for at := 0; ; {
		next := modeTree[at][0]
		if r.bit(probs[at]) {
			next = modeTree[at][1]
		}
		if next <= 0 {
			return byte(-next)
		}
		at = int(next)
	}
}

// borders puts around the area what a macroblock is predicted from.
func (d *lossy) borders(mx, my int) {
	w := &d.work
	if mx == 0 {
		for y := range 17 {
			w[y*workStride+7] = 129
		}
		for y := 17; y < workRows; y++ {
			w[y*workStride+7], w[y*workStride+23] = 129, 129
		}
	} else {
		for y := range 17 {
			w[y*workStride+7] = w[y*workStride+23]
		}
		for y := 17; y < workRows; y++ {
			w[y*workStride+7], w[y*workStride+23] = w[y*workStride+15], w[y*workStride+31]
		}
	}
	if my == 0 {
		for x := 7; x < 28; x++ {
			w[x] = 127
		}
		for x := 7; x < 32; x++ {
			w[17*workStride+x] = 127
		}
		w[17*workStride+16], w[17*workStride+17] = 127, 127
	} else {
		*(*[20]byte)(w[8:]) = [20]byte(d.lumaTop[16*mx:])
		*(*[8]byte)(w[uAt-workStride:]) = [8]byte(d.uTop[8*mx:])
		*(*[8]byte)(w[vAt-workStride:]) = [8]byte(d.vTop[8*mx:])
	}
	for y := 4; y < 16; y += 4 { // blocks below take it from there as well
		*(*[4]byte)(w[y*workStride+24:]) = [4]byte(w[24:])
	}
}

// reconstruct predicts a macroblock and adds what its coefficients say.
func (d *lossy) reconstruct(mx, my int, filled uint32) {
	w := d.work[:]
	if d.whole {
		predictArea(w, lumaAt, 16, d.lumaMode, mx > 0, my > 0)
		for y := range 4 {
			d.addFour(lumaAt+y*4*workStride, 4*y, filled, false)
		}
	} else {
		for n, mode := range d.modes {
			at := lumaAt + n/4*4*workStride + n%4*4
			predictBlock(w[at-workStride-1:], mode)
			if filled>>n&1 != 0 {
				d.addBlock(at, n)
			}
		}
	}
	predictArea(w, uAt, 8, d.colorMode, mx > 0, my > 0)
	predictArea(w, vAt, 8, d.colorMode, mx > 0, my > 0)
	d.addFour(uAt, 16, filled, true)
	d.addFour(vAt, 20, filled, true)
}

// addFour adds four blocks, beside each other or as a square. Those without coefficients add nothing.
func (d *lossy) addFour(at, first int, filled uint32, square bool) {
	switch {
	case filled>>first&15 == 0:
	case native && square:
		idctAddSquare(&d.work[at], &d.coef[16*first])
	case native:
		idctAddRow(&d.work[at], &d.coef[16*first])
	default:
		for n := range 4 {
			to := at + 4*n
			if square {
				to = at + n/2*4*workStride + n%2*4
			}
			d.addBlock(to, first+n)
		}
	}
}

// addBlock adds the inverse transform of block n to its prediction.
func (d *lossy) addBlock(at, n int) {
	if native {
		idctAdd(&d.work[at], &d.coef[16*n])
		return
	}
	addInverse(d.work[at:], (*[16]int16)(d.coef[16*n:]))
}

// copyOut copies the area into the planes.
func (d *lossy) copyOut(mx, my int) {
	w := &d.work
	to := d.y.pix[16*my*d.y.stride+16*mx+d.y.origin:]
	for y := range 16 {
		*(*[16]byte)(to[y*d.y.stride:]) = [16]byte(w[lumaAt+y*workStride:])
	}
	at := 8*my*d.u.stride + 8*mx + d.u.origin
	u, v := d.u.pix[at:], d.v.pix[at:]
	for y := range 8 {
		binary.LittleEndian.PutUint64(u[y*d.u.stride:], binary.LittleEndian.Uint64(w[uAt+y*workStride:]))
		binary.LittleEndian.PutUint64(v[y*d.u.stride:], binary.LittleEndian.Uint64(w[vAt+y*workStride:]))
	}
}
