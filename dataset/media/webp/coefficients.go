package webp

import "unsafe"

// bandOf is the band of each position in a block, and of the one behind it.
var bandOf = [17]byte{0, 1, 2, 3, 6, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7, 0}

// zigzag is the order of coefficients.
var zigzag = [16]byte{0, 1, 4, 8, 5, 2, 3, 6, 9, 12, 13, 10, 7, 11, 14, 15}

// largeProbs are the probabilities of the further bits of large coefficients, in four sizes (section 13.2).
var largeProbs = [4][12]byte{{173, 148, 140}, {176, 155, 140, 135}, {180, 157, 141, 134, 130},
	{254, 254, 243, 230, 196, 177, 153, 140, 133, 130, 129}}

// readCoefficients reads a macroblock's coefficients and returns a bit for each block of pixels that has some.
func (d *lossy) readCoefficients(r *boolReader, above *macroblock) (filled uint32) {
	d.dirty = true
	step, plane, first := &d.steps[d.segment], 3, 0
	left := &d.left.filled
	if d.whole {
		more := d.block(r, 1, 24, 0, left[8]+above.filled[8], &step.constants)
		left[8], above.filled[8] = more, more
		plane, first = 0, 1
		if more != 0 {
			inverseConstants(&d.coef)
		}
	}
	for n := range 16 {
		y, x := n>>2, n&3
		more := d.block(r, plane, n, first, left[y]+above.filled[x], &step.luma)
		left[y], above.filled[x] = more, more
		if more != 0 || d.coef[16*n] != 0 {
			filled |= 1 << n
		}
	}
	for n := range 8 {
		y, x := 4+n>>2*2+n>>1&1, 4+n>>2*2+n&1
		more := d.block(r, 2, 16+n, 0, left[y]+above.filled[x], &step.chroma)
		left[y], above.filled[x] = more, more
		filled |= uint32(more) << (16 + n)
	}
	return filled
}

// block reads the coefficients of a block from the first on, and returns 1 if there are any.
func (d *lossy) block(r *boolReader, plane, n, first int, context byte, step *[2]int32) byte {
	if native {
		return readBlock((*byte)(unsafe.Pointer(r)), &d.at[plane][0][0][0], &d.coef[16*n], step, first, int(context))
	}
	return r.block(&d.at[plane], d.coef[16*n:16*n+16], first, context, step)
}

func (r *boolReader) block(at *[17][3][11]byte, coef []int16, n int, context byte, step *[2]int32) byte {
	p := &at[n][context]
	if !r.bit(p[0]) {
		return 0
	}
	for {
		for !r.bit(p[1]) {
			if n++; n == 16 {
				return 1
			}
			p = &at[n][0]
		}
		v := int32(1)
		next := 1
		if r.bit(p[2]) {
			v, next = r.larger(p), 2
		}
		if r.flag() {
			v = -v
		}
		coef[zigzag[n]] = int16(v * step[min(n, 1)])
		n++
		p = &at[n][next]
		if n == 16 || !r.bit(p[0]) {
			return 1
		}
	}
}

// larger reads a coefficient's size from 2 on.
func (r *boolReader) larger(p *[11]byte) int32 {
	one := func(prob byte) int32 {
		if r.bit(prob) {
			return 1
		}
		return 0
	}
	if !r.bit(p[3]) {
		if !r.bit(p[4]) {
			return 2
		}
		return 3 + one(p[5])
	}
	if !r.bit(p[6]) {
		if !r.bit(p[7]) {
			return 5 + one(159)
		}
		return 7 + 2*one(165) + one(145)
	}
	high := one(p[8])
	size := 2*high + one(p[9+high])
	v := int32(0)
	for _, p := range largeProbs[size] {
		if p == 0 {
			break
		}
		v = 2*v + one(p)
	}
	return v + 3 + 8<<size
}

// inverseConstants turns the block of constant terms into those of the 16 blocks (section 14.3).
func inverseConstants(coef *[25 * 16]int16) {
	in := coef[24*16:]
	var t [16]int32
	for i := range 4 {
		a, b := int32(in[i])+int32(in[12+i]), int32(in[4+i])+int32(in[8+i])
		c, e := int32(in[4+i])-int32(in[8+i]), int32(in[i])-int32(in[12+i])
		t[i], t[8+i], t[4+i], t[12+i] = a+b, a-b, e+c, e-c
	}
	for i := range 4 {
		constant := t[4*i] + 3
		a, b := constant+t[4*i+3], t[4*i+1]+t[4*i+2]
		c, e := t[4*i+1]-t[4*i+2], constant-t[4*i+3]
		out := coef[64*i:]
		out[0], out[16], out[32], out[48] = int16((a+b)>>3), int16((e+c)>>3), int16((a-b)>>3), int16((e-c)>>3)
	}
}

// addInverse adds the inverse transform of a block to its prediction (section 14.4), in 16 bits, as
// libwebp's vectors do.
func addInverse(at []byte, in *[16]int16) {
	// by 85627 and 35468, less 65536
	high := func(v int16, by int32) int16 { return int16(int32(v) * by >> 16) }
	butterfly := func(x0, x1, x2, x3 int16) (y0, y1, y2, y3 int16) {
		a, b := x0+x2, x0-x2
		c := x1 - x3 + high(x1, -30068) - high(x3, 20091)
		e := x1 + x3 + high(x1, 20091) + high(x3, -30068)
		return a + e, b + c, b - c, a - e
	}
	var t [16]int16
	for i := range 4 {
		t[i], t[4+i], t[8+i], t[12+i] = butterfly(in[i], in[4+i], in[8+i], in[12+i])
	}
	for y := range 4 {
		row := at[y*workStride:][:4]
		v0, v1, v2, v3 := butterfly(t[4*y]+4, t[4*y+1], t[4*y+2], t[4*y+3])
		for x, v := range [4]int16{v0, v1, v2, v3} {
			row[x] = clip(int32(row[x]) + int32(v>>3))
		}
	}
}

func clip(v int32) byte { return byte(min(max(v, 0), 255)) }
