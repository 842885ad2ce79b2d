package media

// guessed is how many coefficients of a block, in the file's order, may be estimated from its neighbours.
const guessed = 10

// guess estimates what the scans of a progressive image have not brought of the first coefficients from
// the first ones of the 24 blocks around, as libjpeg-turbo does (since 2.1) with files that lack scans. It
// applies to all components or to none.
func (r *jpegReader) guess() {
	useful := false
	for _, p := range r.planes {
		if !p.latched || p.known[0] < 0 {
			return
		}
		for k := range guessed {
			if p.weights[zigzag[k]] == 0 {
				return
			}
			useful = useful || k > 0 && p.known[k] != 0
		}
	}
	if !useful {
		return
	}
	for _, p := range r.planes {
		p.guess(over(r.h, 8*r.vmax))
	}
}

// guess estimates the coefficients of a component of mcus rows of minimum coded units. What is estimated is
// not looked at again: a block's neighbours count as they came.
func (p *plane) guess(mcus int) {
	first := make([]int32, p.bw*p.bh)
	for i := range first {
		first[i] = int32(p.coef[i*64])
	}
	width, height := over(p.w, 8), over(p.rows, 8)
	kernels := p.kernels()
	for mcu := range mcus {
		n := p.v
		if mcu == mcus-1 && height%p.v != 0 {
			n = height % p.v
		}
		for k := range n {
			// Rows beyond the image are repeated; how the rows of the last unit count is libjpeg's own.
			y, at, all := mcu*p.v+k, mcu*n+k, mcus*n
			var rows [5]int
			rows[2], rows[1], rows[3] = y, y-min(at, 1), y+min(all-1-at, 1)
			rows[0], rows[4] = rows[1]-min(max(at-1, 0), 1), rows[3]+min(max(all-2-at, 0), 1)
			for x := range width {
				p.estimate(kernels, p.window(first, rows, x, width), (*[64]int16)(p.coef[(y*p.bw+x)*64:]))
			}
		}
	}
}

// window is a block's first coefficient with those around it, row by row; at the sides the outermost are repeated.
func (p *plane) window(first []int32, rows [5]int, x, width int) (w [25]int32) {
	for i, y := range rows {
		for j := range 5 {
			w[i*5+j] = first[y*p.bw+min(max(x+j-2, 0), width-1)]
		}
	}
	return
}

// estimate fills in coefficients that are zero and not known to be.
func (p *plane) estimate(kernels *[guessed][25]int8, w [25]int32, c *[64]int16) {
	for k := 1; k < guessed; k++ {
		at := zigzag[k]
		if p.known[k] != 0 && c[at] == 0 && kernels[k] != [25]int8{} {
			c[at] = int16(p.weigh(&kernels[k], &w, at, p.known[k]))
		}
	}
	if kernels[0] != [25]int8{} {
		v := int32(0)
		for i, d := range w { // the middle weighs 152, more than a kernel's number holds
			v += int32(kernels[0][i]) * d
		}
		v += 152 * w[12]
		c[0] = int16(rounded(int64(p.weights[0])*int64(v), int64(p.weights[0])))
	}
}

// weigh is one estimate; where bits of the coefficient are known it stays below them.
func (p *plane) weigh(kernel *[25]int8, w *[25]int32, at int, known int8) int64 {
	v := int32(0)
	for i, d := range w {
		v += int32(kernel[i]) * d
	}
	pred := rounded(int64(p.weights[0])*int64(v), int64(p.weights[at]))
	if most := int64(1)<<max(known, 0) - 1; known > 0 {
		pred = min(max(pred, -most), most)
	}
	return pred
}

// rounded is n/(256·q), away from zero at the half.
func rounded(n, q int64) int64 {
	if n < 0 {
		return -((q<<7 - n) / (q << 8))
	}
	return (q<<7 + n) / (q << 8)
}

// kernels are the estimates' weights: others, and one for the first coefficient too, where nothing but that is known.
func (p *plane) kernels() *[guessed][25]int8 {
	for k := 1; k < guessed; k++ {
		if p.known[k] != -1 {
			return &kernelsSome
		}
	}
	return &kernelsNone
}

// Source: libjpeg-turbo, jdcoefct.c, decompress_smooth_data. In the file's order of coefficients; 5×5
// blocks, row by row. The middle of kernelsNone[0] is 152 and stands in estimate.
var (
	kernelsSome = [guessed][25]int8{
		1: {10: -7, 11: 50, 13: -50, 14: 7},
		2: {2: -7, 7: 50, 17: -50, 22: 7},
		3: {2: -1, 7: 13, 12: -24, 17: 13, 22: -1},
		4: {1: -1, 3: 1, 5: -1, 6: 10, 8: -10, 9: 1, 15: 1, 16: -10, 18: 10, 19: -1, 21: 1, 23: -1},
		5: {10: -1, 11: 13, 12: -24, 13: 13, 14: -1},
	}
	kernelsNone = [guessed][25]int8{
		0: {-2, -6, -8, -6, -2, -6, 6, 42, 6, -6, -8, 42, 0, 42, -8, -6, 6, 42, 6, -6, -2, -6, -8, -6, -2},
		1: {-1, -1, 0, 1, 1, -3, 13, 0, -13, 3, -3, 38, 0, -38, 3, -3, 13, 0, -13, 3, -1, -1, 0, 1, 1},
		2: {-1, -3, -3, -3, -1, -1, 13, 38, 13, -1, 0, 0, 0, 0, 0, 1, -13, -38, -13, 1, 1, 3, 3, 3, 1},
		3: {2: 1, 6: 2, 7: 7, 8: 2, 11: -5, 12: -14, 13: -5, 16: 2, 17: 7, 18: 2, 22: 1},
		4: {0: -1, 4: 1, 6: 9, 8: -9, 16: -9, 18: 9, 20: 1, 24: -1},
		5: {6: 2, 7: -5, 8: 2, 10: 1, 11: 7, 12: -14, 13: 7, 14: 1, 16: 2, 17: -5, 18: 2},
		6: {6: 1, 8: -1, 11: 2, 13: -2, 16: 1, 18: -1},
		7: {6: 1, 7: -3, 8: 1, 16: -1, 17: 3, 18: -1},
		8: {6: 1, 8: -1, 11: -3, 13: 3, 16: 1, 18: -1},
		9: {6: 1, 7: 2, 8: 1, 16: -1, 17: -2, 18: -1},
	}
)
