package webp

// colours turns the planes into pixels with libwebp's smooth chroma: each pixel takes nine, three, three and
// one sixteenths of the four nearest samples, in two roundings.
func (d *lossy) colours(dst []byte) {
	cw, ch := (d.w+1)/2, (d.h+1)/2
	for y := range ch {
		for _, p := range []plane{d.u, d.v} { // the outermost samples go on
			row := p.pix[y*p.stride:]
			row[p.origin-1], row[p.origin+cw] = row[p.origin], row[p.origin+cw-1]
		}
	}
	for y := range d.h {
		near := y / 2
		far := min(max(near+y%2*2-1, 0), ch-1)
		nearAt, farAt := near*d.u.stride+d.u.origin-1, far*d.u.stride+d.u.origin-1
		row := dst[y*d.w*3 : (y+1)*d.w*3]
		luma := d.y.pix[y*d.y.stride+d.y.origin:]
		u, uf := d.u.pix[nearAt:], d.u.pix[farAt:]
		v, vf := d.v.pix[nearAt:], d.v.pix[farAt:]
		if native {
			colourRow(row, luma, u, uf, v, vf)
			continue
		}
		convert(row, luma, u, uf, v, vf)
	}
}

// colourRow converts a row in pieces of 32 pixels; the last are converted aside, as they may be fewer.
func colourRow(dst, luma, u, uf, v, vf []byte) {
	const piece = 32
	n := len(dst) / 3
	whole := n / piece
	if whole > 0 {
		yuv32(&dst[0], &luma[0], &u[0], &uf[0], &v[0], &vf[0], whole)
	}
	if n%piece > 0 {
		var rest [3 * piece]byte
		at := whole * piece
		yuv32(&rest[0], &luma[at], &u[at/2], &uf[at/2], &v[at/2], &vf[at/2], 1)
		copy(dst[3*at:], rest[:])
	}
}

// convert converts a row; chroma begins a sample before it.
func convert(dst, luma, u, uf, v, vf []byte) {
	for x := range len(dst) / 3 {
		i := x/2 + 1
		j := i + x%2*2 - 1
		cu, cv := mixed(u[i], u[j], uf[i], uf[j]), mixed(v[i], v[j], vf[i], vf[j])
		l := int(luma[x]) * 19077 >> 8
		dst[3*x] = clip6(l + cv*26149>>8 - 14234)
		dst[3*x+1] = clip6(l - cu*6419>>8 - cv*13320>>8 + 8708)
		dst[3*x+2] = clip6(l + cu*33050>>8 - 17685)
	}
}

// mixed weighs the nearest sample, its neighbours of the row and of the column, and the one across.
func mixed(near, row, column, across byte) int {
	n, r, c, a := int(near), int(row), int(column), int(across)
	return ((n+r+c+a+8+2*(r+c))>>3 + n) >> 1
}

func clip6(v int) byte { return byte(min(max(v, 0), 255<<6+63) >> 6) }
