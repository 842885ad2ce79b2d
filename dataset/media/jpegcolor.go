package media

import (
	"errors"
	"image/color"
)

// image turns planes into pixels, row by row.
func (r *jpegReader) image() (*Image, error) {
	if r.planes == nil {
		return nil, errJPEG
	}
	if r.progressive {
		r.guess()
	}
	for _, p := range r.planes {
		switch {
		case p.coef != nil: // a colour without a scan has no weights, and is grey as in libjpeg
			p.inverseAll()
		case !p.latched:
			return nil, errors.New("a colour has no data")
		}
	}
	out := bare(r.w, r.h)
	ups := make([]upsampler, len(r.planes))
	lines := make([][]byte, len(r.planes))
	for i, p := range r.planes {
		ups[i] = newUpsampler(r, p)
	}
	for y := range r.h {
		for i := range ups {
			lines[i] = ups[i].line(y)
		}
		r.colour(out.Pix[y*r.w*3:(y+1)*r.w*3], lines)
	}
	for i := range ups {
		buffers.give(ups[i].buffer)
	}
	return out, nil
}

// release gives the planes' buffers back.
func (r *jpegReader) release() {
	for _, p := range r.planes {
		buffers.give(p.pix)
		p.pix = nil
	}
}

// colour turns a row of components into RGB.
func (r *jpegReader) colour(out []byte, in [][]byte) {
	switch {
	case len(in) == 1:
		for x, v := range in[0][:r.w] {
			out[x*3], out[x*3+1], out[x*3+2] = v, v, v
		}
	case len(in) == 4:
		for x := range r.w {
			c := r.ink(in[0][x], in[1][x], in[2][x], in[3][x])
			copy(out[x*3:], c[:])
		}
	case r.isYCC():
		rowFromYCC(out, in[0][:r.w], in[1][:r.w], in[2][:r.w])
	default:
		for x := range r.w {
			out[x*3], out[x*3+1], out[x*3+2] = in[0][x], in[1][x], in[2][x]
		}
	}
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

// rowFromYCC converts a row; the last 16 pixels may be converted twice.
func rowFromYCC(out, y, cb, cr []byte) {
	n := len(y)
	if native && n >= 16 {
		colours(&out[0], &y[0], &cb[0], &cr[0], n/16)
		if at := n - 16; n%16 > 0 {
			colours(&out[at*3], &y[at], &cb[at], &cr[at], 1)
		}
		return
	}
	for x := range y {
		out[x*3], out[x*3+1], out[x*3+2] = fromYCC(y[x], cb[x], cr[x])
	}
}

// fromYCC uses libjpeg's 16-bit fixed point.
func fromYCC(y, cb, cr byte) (r, g, b byte) {
	const half = 1 << 15
	u, v := int32(cb)-128, int32(cr)-128
	return clip(int32(y) + (91881*v+half)>>16), clip(int32(y) + (-22554*u-46802*v+half)>>16),
		clip(int32(y) + (116130*u+half)>>16)
}
