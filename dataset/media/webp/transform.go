package webp

// Kinds of transforms (RFC 9649, section 4).
const (
	predicted = iota // a pixel is what is more than its neighbours make likely
	crossed          // red and blue are what is more than green, and red, make likely
	lessGreen        // red and blue are what is more than green
	indexed          // pixels are numbers of a palette
)

// transform was done to an image when it was written.
type transform struct {
	kind int
	w    int // of the image before it
	bits int // of a tile's side, or of how many indices are in a pixel
	pix  []uint32
}

// transforms reads what was done, in that order. w becomes the width of what is stored.
func (d *lossless) transforms() (all []transform, err error) {
	for seen := 0; d.flag(); {
		t := transform{kind: d.bits(2), w: d.w}
		if seen>>t.kind&1 == 1 {
			return nil, errLossless
		}
		seen |= 1 << t.kind
		switch t.kind {
		case predicted, crossed:
			t.bits = d.bits(3) + 2
			t.pix, err = d.image(tilesOf(d.w, t.bits), tilesOf(d.h, t.bits), false)
		case indexed:
			err = d.palette(&t)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, d.err()
}

// palette reads a palette; colours behind it are transparent black.
func (d *lossless) palette(t *transform) error {
	n := d.bits(8) + 1
	switch {
	case n <= 2:
		t.bits = 3
	case n <= 4:
		t.bits = 2
	case n <= 16:
		t.bits = 1
	}
	d.w = tilesOf(d.w, t.bits)
	pix, err := d.image(n, 1, false)
	if err != nil {
		return err
	}
	t.pix = make([]uint32, 256)
	copy(t.pix, pix)
	Release(pix)
	for i := 1; i < n; i++ {
		t.pix[i] = addPixels(t.pix[i], t.pix[i-1])
	}
	return nil
}

// undo takes transforms back, the last one first.
func undo(all []transform, pix []uint32, h int) []uint32 {
	for len(all) > 0 {
		last := len(all) - 1
		if all[last].kind == indexed {
			pix = all[last].colours(pix, h)
			all = all[:last]
			continue
		}
		first := last // those that can be done row by row: a prediction needs the row above as it leaves it
		for first > 0 && all[first].kind != predicted && all[first-1].kind != indexed {
			first--
		}
		w := all[first].w
		for y := range h {
			for i := last; i >= first; i-- {
				all[i].row(pix, y*w, y)
			}
		}
		all = all[:first]
	}
	return pix
}

// row takes a transform of a row back, which begins at a pixel.
func (t *transform) row(pix []uint32, at, y int) {
	row := pix[at : at+t.w]
	switch t.kind {
	case lessGreen:
		addGreen(row)
	case crossed:
		tiles := t.pix[y>>t.bits*tilesOf(t.w, t.bits):]
		for x := 0; x < t.w; x += 1 << t.bits {
			uncross(row[x:min(x+1<<t.bits, t.w)], tiles[x>>t.bits])
		}
	case predicted:
		t.predictRow(pix, at, y)
	}
}

// predictRow adds predictions. The first row's is the pixel before, and a row's first pixel's that above;
// the very first is black.
func (t *transform) predictRow(pix []uint32, at, y int) {
	if y == 0 {
		pix[0] = addPixels(pix[0], 0xff000000)
		if t.w > 1 {
			addPredicted(1, pix, 1, t.w-1, t.w)
		}
		return
	}
	pix[at] = addPixels(pix[at], pix[at-t.w])
	tiles := t.pix[y>>t.bits*tilesOf(t.w, t.bits):]
	for x := 1; x < t.w; {
		next := min((x>>t.bits+1)<<t.bits, t.w)
		addPredicted(int(tiles[x>>t.bits]>>8&15), pix, at+x, next-x, t.w)
		x = next
	}
}

// colours replaces indices by the palette's colours.
func (t *transform) colours(pix []uint32, h int) []uint32 {
	palette := (*[256]uint32)(t.pix)
	if t.bits == 0 {
		for i, v := range pix {
			pix[i] = palette[byte(v>>8)]
		}
		return pix
	}
	out := bare(t.w * h)
	packed := tilesOf(t.w, t.bits)
	width := uint(8 >> t.bits)
	mask := uint32(1)<<width - 1
	for y := range h {
		in, row := pix[y*packed:], out[y*t.w:][:t.w]
		for x := range row {
			v := in[x>>t.bits] >> 8 & 0xff
			row[x] = palette[byte(v>>(uint(x&(1<<t.bits-1))*width&31)&mask)]
		}
	}
	Release(pix)
	return out
}

const (
	evenBytes = 0x00ff00ff
	oddBytes  = 0xff00ff00
)

// addPixels adds each byte.
func addPixels(a, b uint32) uint32 {
	return (a&evenBytes+b&evenBytes)&evenBytes | (a&oddBytes+b&oddBytes)&oddBytes
}

func addGreen(row []uint32) {
	if native && len(row) >= 8 {
		n := len(row) / 8
		addGreen8(&row[0], n)
		row = row[8*n:]
	}
	for i, v := range row {
		g := v >> 8 & 0xff
		row[i] = v&oddBytes | (v&evenBytes+(g<<16|g))&evenBytes
	}
}

// uncross adds what green, and then red, make likely; the tile's bytes are 32nds of these.
func uncross(row []uint32, tile uint32) {
	if native && len(row) >= 8 {
		n := len(row) / 8
		uncross8(&row[0], n, int(tile))
		row = row[8*n:]
	}
	part := func(by, of uint32) uint32 { return uint32(int32(int8(by)) * int32(int8(of)) >> 5) }
	for i, v := range row {
		green := v >> 8
		red := (v>>16 + part(tile, green)) & 0xff
		blue := (v + part(tile>>8, green) + part(tile>>16, red)) & 0xff
		row[i] = v&oddBytes | red<<16 | blue
	}
}

// RGB drops the alpha of pixels; dst has 3 bytes for each.
func RGB(dst []byte, pix []uint32) {
	if n := (len(pix) - 2) / 8; native && n > 0 { // a few bytes behind them are written
		rgb8(&dst[0], &pix[0], n)
		dst, pix = dst[24*n:], pix[8*n:]
	}
	for i, v := range pix {
		to := dst[3*i:][:3]
		to[0], to[1], to[2] = byte(v>>16), byte(v>>8), byte(v)
	}
}
