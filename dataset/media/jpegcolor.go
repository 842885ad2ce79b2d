package media

import "image/color"

// picture turns coefficients into pixels.
func (r *jpegReader) picture() (*Picture, error) {
	if r.planes == nil {
		return nil, errJPEG
	}
	full := make([][]byte, len(r.planes))
	for i, p := range r.planes {
		p.inverse(&r.quant[p.quant])
		full[i] = r.upsample(p)
	}
	out := NewPicture(r.w, r.h)
	for i := range r.w * r.h {
		px := out.Pix[i*3 : i*3+3]
		switch y := full[0][i]; len(full) {
		case 1:
			px[0], px[1], px[2] = y, y, y
		case 3:
			px[0], px[1], px[2] = y, full[1][i], full[2][i]
			if r.isYCC() {
				px[0], px[1], px[2] = fromYCC(y, full[1][i], full[2][i])
			}
		case 4:
			c := r.ink(y, full[1][i], full[2][i], full[3][i])
			copy(px, c[:])
		}
	}
	return out, nil
}

// isYCC tells the colours of three components by libjpeg's rules.
func (r *jpegReader) isYCC() bool {
	switch {
	case r.jfif:
		return true
	case r.adobe >= 0:
		return r.adobe != 0
	}
	return r.planes[0].id != 'R' || r.planes[1].id != 'G' || r.planes[2].id != 'B'
}

// ink turns four components into RGB as libjpeg and Pillow do together: Adobe's are inverted.
func (r *jpegReader) ink(c, m, y, k byte) [3]byte {
	if r.adobe == 2 {
		c, m, y = fromYCC(c, m, y)
		c, m, y = 255-c, 255-m, 255-y
	}
	if r.adobe >= 0 {
		c, m, y, k = 255-c, 255-m, 255-y, 255-k
	}
	return fromCMYK(color.CMYK{C: c, M: m, Y: y, K: k})
}

// fromYCC uses libjpeg's 16-bit fixed point.
func fromYCC(y, cb, cr byte) (r, g, b byte) {
	const half = 1 << 15
	u, v := int32(cb)-128, int32(cr)-128
	return clip(int32(y) + (91881*v+half)>>16), clip(int32(y) + (-22554*u-46802*v+half)>>16), clip(int32(y) + (116130*u+half)>>16)
}

// inverse transforms all blocks.
func (p *plane) inverse(q *[64]int32) {
	p.pix = make([]byte, p.bw*p.bh*64)
	for i := range p.bw * p.bh {
		idct(p.coef[i*64:][:64], q, p.pix[i/p.bw*8*p.bw*8+i%p.bw*8:], p.bw*8)
	}
	p.coef = nil
}

// idct is the accurate integer transform of Loeffler, Ligtenberg and Moschytz (ICASSP 1989) in 13-bit fixed point, with
// two more bits between columns and rows.
func idct(c []int16, q *[64]int32, out []byte, stride int) {
	var w [64]int32
	for x := range 8 {
		var in [8]int32
		for y := range 8 {
			in[y] = int32(c[y*8+x]) * q[y*8+x]
		}
		for y, v := range idct8(in) {
			w[y*8+x] = (v + 1<<10) >> 11
		}
	}
	for y := range 8 {
		for x, v := range idct8([8]int32(w[y*8:])) {
			out[y*stride+x] = clip((v+1<<17)>>18 + 128)
		}
	}
}

func idct8(in [8]int32) [8]int32 {
	z1 := (in[2] + in[6]) * 4433
	t2, t3 := z1-in[6]*15137, z1+in[2]*6270
	t0, t1 := (in[0]+in[4])<<13, (in[0]-in[4])<<13
	e0, e3, e1, e2 := t0+t3, t0-t3, t1+t2, t1-t2
	z5 := (in[7] + in[3] + in[5] + in[1]) * 9633
	a, b := (in[7]+in[1])*-7373, (in[5]+in[3])*-20995
	d, e := (in[7]+in[3])*-16069+z5, (in[5]+in[1])*-3196+z5
	o0, o1, o2, o3 := in[7]*2446+a+d, in[5]*16819+b+e, in[3]*25172+b+d, in[1]*12299+a+e
	return [8]int32{e0 + o3, e1 + o2, e2 + o1, e3 + o0, e3 - o0, e2 - o1, e1 - o2, e0 - o3}
}

// upsample brings a component to the picture's size: smoothly where libjpeg-turbo does so, else by repetition.
func (r *jpegReader) upsample(p *plane) []byte {
	fh, fv := r.hmax/p.h, r.vmax/p.v
	whole := r.hmax%p.h == 0 && r.vmax%p.v == 0
	smoothH := whole && fh == 2 && fv <= 2 && p.w > 2
	smoothV := whole && fv == 2 && (smoothH || fh == 1)
	out := make([]byte, r.w*r.h)
	line := make([]int32, p.w)
	for y := range r.h {
		sy := min(y*p.v/r.vmax, p.rows-1)
		near := p.pix[sy*p.bw*8:]
		far, scale := near, int32(1)
		if smoothV {
			scale = 4
			far = p.pix[min(max(sy+y%2*2-1, 0), p.rows-1)*p.bw*8:]
		}
		for x := range line {
			line[x] = int32(near[x])*(scale-scale/4) + int32(far[x])*(scale/4)
		}
		to := out[y*r.w:][:r.w]
		switch {
		case smoothH:
			smooth(to, line, scale)
		case smoothV:
			for x := range to {
				to[x] = byte((line[x] + 1 + int32(y%2)) >> 2)
			}
		default:
			for x := range to {
				to[x] = byte(line[x*p.h/r.hmax])
			}
		}
	}
	return out
}

// smooth doubles a line whose values are scaled by 1 or 4: three parts of the near and one of the far neighbour, with
// libjpeg's alternating rounding.
func smooth(to []byte, line []int32, scale int32) {
	even, odd, shift := int32(1), int32(2), 2
	if scale == 4 {
		even, odd, shift = 8, 7, 4
	}
	for x := range to {
		i := x / 2
		far, round := line[max(i-1, 0)], even
		if x%2 == 1 {
			far, round = line[min(i+1, len(line)-1)], odd
		}
		to[x] = byte((3*line[i] + far + round) >> shift)
	}
}
