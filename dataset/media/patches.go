package media

// patches appends one step in time of a picture cut into patches: [rows/merge, columns/merge, merge, merge] patches of
// [3, len(frames), patch, patch]. Frames have one size, whose sides are multiples of patch·merge.
func patches(out []byte, frames []*Picture, patch, merge int) []byte {
	w, rows, columns := frames[0].W, frames[0].H/patch, frames[0].W/patch
	for n := range rows * columns {
		// n counts blocks of merge by merge patches, row by row, and the patches in a block
		block, in := n/(merge*merge), n%(merge*merge)
		y := block/(columns/merge)*merge + in/merge
		x := block%(columns/merge)*merge + in%merge
		for c := range 3 {
			for _, f := range frames {
				for py := range patch {
					row := f.Pix[((y*patch+py)*w+x*patch)*3+c:]
					for px := range patch {
						out = append(out, row[px*3])
					}
				}
			}
		}
	}
	return out
}

// tile appends a box of a picture, channel by channel.
func (p *Picture) tile(out []byte, x, y, w, h int) []byte {
	for c := range 3 {
		for dy := range h {
			row := p.Pix[((y+dy)*p.W+x)*3+c:]
			for dx := range w {
				out = append(out, row[dx*3])
			}
		}
	}
	return out
}

// whole appends a picture that was made of p as one tile, and releases it.
func (p *Picture) whole(out []byte, made *Picture) []byte {
	out = made.tile(out, 0, 0, made.W, made.H)
	made.releaseUnless(p)
	return out
}

// releaseUnless releases a picture that was made of another, and may be that one.
func (p *Picture) releaseUnless(source *Picture) {
	if p != source {
		p.Release()
	}
}
