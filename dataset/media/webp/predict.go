package webp

import "encoding/binary"

// predictArea predicts a square of side×side pixels from the row above and the column to the left; what lies
// outside of the image does not count for a mean.
func predictArea(w []byte, at, side int, mode byte, left, above bool) {
	switch mode {
	case modeDC:
		mean := lowBits * areaMean(w, at, side, left, above)
		fillArea(w[at:], side, func(int) uint64 { return mean })
	case modeVE:
		for y := range side {
			copy(w[at+y*workStride:][:side], w[at-workStride:])
		}
	case modeHE:
		fillArea(w[at:], side, func(y int) uint64 { return lowBits * uint64(w[at+y*workStride-1]) })
	default:
		if native {
			trueMotion(&w[at], side/8)
			return
		}
		for y := range side {
			predictTrueMotion(w, at+y*workStride, at-workStride, side)
		}
	}
}

// predictTrueMotion predicts a row: what is above, more what the left pixel is more than the one above that.
func predictTrueMotion(w []byte, at, above, n int) {
	more := int32(w[at-1]) - int32(w[above-1])
	for x := range n {
		w[at+x] = clip(int32(w[above+x]) + more)
	}
}

// fillArea sets eight pixels of a row at a time.
func fillArea(w []byte, side int, row func(y int) uint64) {
	for y := range side {
		v := row(y)
		for x := 0; x < side; x += 8 {
			binary.LittleEndian.PutUint64(w[y*workStride+x:], v)
		}
	}
}

// areaMean is the rounded mean of the pixels above and to the left, of those that exist; 128 if none does.
func areaMean(w []byte, at, side int, left, above bool) uint64 {
	sum, n := 0, 0
	if above {
		n += side
		for _, v := range w[at-workStride:][:side] {
			sum += int(v)
		}
	}
	if left {
		n += side
		for y := range side {
			sum += int(w[at+y*workStride-1])
		}
	}
	if n == 0 {
		return 128
	}
	return uint64((sum + n/2) / n)
}

const (
	lowBits  = 0x0101010101010101
	highBits = ^uint64(lowBits)
)

// mean2 is (a + b + 1)/2 of eight bytes each.
func mean2(a, b uint64) uint64 { return (a | b) - (a^b)&highBits>>1 }

// mean3 is (a + 2b + c + 2)/4 of eight bytes each.
func mean3(a, b, c uint64) uint64 { return mean2(b, a&c+(a^c)&highBits>>1) }

// predictBlock predicts a 4×4 block (section 12.3); w begins with the pixel above and left of it.
func predictBlock(w []byte, mode byte) {
	w = w[:4*workStride+9]
	above := binary.LittleEndian.Uint64(w[1:])
	switch mode {
	case modeDC:
		sum := uint32(4)
		for i := range 4 {
			sum += uint32(w[1+i]) + uint32(w[(1+i)*workStride])
		}
		v := sum / 8 * 0x01010101
		setBlock(w, v, v, v, v)
	case modeTM:
		for y := range 4 {
			predictTrueMotion(w, (y+1)*workStride+1, 1, 4)
		}
	case modeVE:
		v := uint32(mean3(above<<8|uint64(w[0]), above, above>>8))
		setBlock(w, v, v, v, v)
	case modeHE:
		e := leftEdge(w)
		v := mean3(e, e>>8, e>>16) // bottom to top: rows 2, 1, 0
		last := mean3(e, e, e>>8)
		row := func(v uint64) uint32 { return uint32(byte(v)) * 0x01010101 }
		setBlock(w, row(v>>16), row(v>>8), row(v), row(last))
	default:
		predictSlanted(w, mode, above)
	}
}

// leftEdge is the column to the left from the lowest pixel up, the corner, and the first three of the row above.
func leftEdge(w []byte) uint64 {
	return uint64(w[4*workStride]) | uint64(w[3*workStride])<<8 | uint64(w[2*workStride])<<16 |
		uint64(w[workStride])<<24 | uint64(binary.LittleEndian.Uint32(w))<<32
}

func predictSlanted(w []byte, mode byte, above uint64) {
	if mode == modeLD || mode == modeVL {
		next := above>>8 | above>>56<<56
		three := mean3(above, next, next>>8|above>>56<<56)
		if mode == modeLD {
			setBlock(w, uint32(three), uint32(three>>8), uint32(three>>16), uint32(three>>24))
			return
		}
		two := mean2(above, next)
		setBlock(w, uint32(two), uint32(three), uint32(two>>8)&0xffffff|uint32(three>>32)<<24,
			uint32(three>>8)&0xffffff|uint32(three>>40)<<24)
		return
	}
	e := leftEdge(w)
	next := e>>8 | uint64(w[4])<<56
	two, three := mean2(e, next), mean3(e, next, next>>8)
	switch mode {
	case modeRD:
		setBlock(w, uint32(three>>24), uint32(three>>16), uint32(three>>8), uint32(three))
	case modeVR:
		ab, abc := uint32(two>>32), uint32(three>>24)
		setBlock(w, ab, abc, ab<<8|uint32(byte(three>>16)), abc<<8|uint32(byte(three>>8)))
	case modeHD:
		turns := func(n int) uint32 { return uint32(byte(two>>n)) | uint32(byte(three>>n))<<8 }
		setBlock(w, turns(24)|uint32(three>>32)<<16, turns(16)|turns(24)<<16, turns(8)|turns(16)<<16,
			turns(0)|turns(8)<<16)
	default: // modeHU
		down := uint64(w[workStride]) | uint64(w[2*workStride])<<8 | uint64(w[3*workStride])<<16 |
			uint64(w[4*workStride])*0x0101010101<<24
		two, three = mean2(down, down>>8), mean3(down, down>>8, down>>16)
		turns := func(n int) uint32 { return uint32(byte(two>>n)) | uint32(byte(three>>n))<<8 }
		last := turns(24)
		setBlock(w, turns(0)|turns(8)<<16, turns(8)|turns(16)<<16, turns(16)|last<<16, last|last<<16)
	}
}

// setBlock sets the four rows of a block.
func setBlock(w []byte, r0, r1, r2, r3 uint32) {
	binary.LittleEndian.PutUint32(w[workStride+1:], r0)
	binary.LittleEndian.PutUint32(w[2*workStride+1:], r1)
	binary.LittleEndian.PutUint32(w[3*workStride+1:], r2)
	binary.LittleEndian.PutUint32(w[4*workStride+1:], r3)
}
