package media

// upsampler brings rows of a component to the image's size: smoothly where libjpeg-turbo does so, else by repetition.
type upsampler struct {
	p                *plane
	w                int
	h, v             int // the image's samples for p.h and p.v of the component
	smoothH, smoothV bool
	buffer           []byte
}

// newUpsampler prepares the enlarging of a colour plane. Halved planes are smoothed, as libjpeg
// does by default; others are repeated.
func newUpsampler(r *jpegReader, p *plane) upsampler {
	u := upsampler{p: p, w: r.w, h: r.hmax, v: r.vmax}
	fh, fv := r.hmax/p.h, r.vmax/p.v
	whole := r.hmax%p.h == 0 && r.vmax%p.v == 0
	u.smoothH = whole && fh == 2 && fv <= 2 && p.w > 2
	u.smoothV = whole && fv == 2 && (u.smoothH || fh == 1)
	if p.h != r.hmax || u.smoothV {
		u.buffer = buffers.take(r.w + 2*margin)
	}
	for y := range p.rows { // the neighbours of a row's ends are the ends
		row := p.pix[y*p.stride:]
		row[margin-1], row[margin+p.w] = row[margin], row[margin+p.w-1]
	}
	return u
}

// line returns a row of the image's size.
func (u *upsampler) line(y int) []byte {
	sy := min(y*u.p.v/u.v, u.p.rows-1)
	near := sy * u.p.stride
	if u.buffer == nil {
		return u.p.pix[near+margin:]
	}
	far := near
	if u.smoothV {
		far = min(max(sy+y%2*2-1, 0), u.p.rows-1) * u.p.stride
	}
	switch {
	case u.smoothH:
		u.double(near, far)
	case u.smoothV:
		for x := range u.w {
			u.buffer[x] = byte((int(u.p.pix[near+margin+x])*3 + int(u.p.pix[far+margin+x]) + 1 + y%2) >> 2)
		}
	default:
		for x := range u.w {
			u.buffer[x] = u.p.pix[near+margin+x*u.p.h/u.h]
		}
	}
	return u.buffer
}

// double doubles a row: three parts of the near and one of the far neighbour, in both directions where the
// row lies between rows, with libjpeg's alternating rounding.
func (u *upsampler) double(near, far int) {
	pix := u.p.pix
	near, far = near+margin, far+margin
	switch n := over(u.p.w, 16); {
	case native && u.smoothV:
		smooth22(&u.buffer[0], &pix[near], &pix[far], n)
		return
	case native:
		smooth21(&u.buffer[0], &pix[near], n)
		return
	}
	sum := func(i int) int { return 3*int(pix[near+i]) + int(pix[far+i]) }
	even, odd, shift := 8, 7, 4
	if !u.smoothV {
		sum = func(i int) int { return int(pix[near+i]) }
		even, odd, shift = 1, 2, 2
	}
	for i := range u.p.w {
		s := 3 * sum(i)
		u.buffer[2*i], u.buffer[2*i+1] = byte((s+sum(i-1)+even)>>shift), byte((s+sum(i+1)+odd)>>shift)
	}
}
