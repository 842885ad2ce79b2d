package media

// planes are the channels of an image apart, row by row.
type planes struct {
	w      int
	c      [3][]byte
	buffer []byte
}

// planes takes an image apart. The caller releases what it gets.
func (p *Image) planes() *planes {
	n := p.W * p.H
	out := &planes{w: p.W, buffer: buffers.take(3 * n)}
	for c := range out.c {
		out.c[c] = out.buffer[c*n:][:n]
	}
	from := 0
	if native && n >= 16 {
		planar(&out.c[0][0], &out.c[1][0], &out.c[2][0], &p.Pix[0], n/16)
		from = n &^ 15
	}
	for i := from; i < n; i++ {
		out.c[0][i], out.c[1][i], out.c[2][i] = p.Pix[3*i], p.Pix[3*i+1], p.Pix[3*i+2]
	}
	return out
}

func (p *planes) release() { buffers.give(p.buffer) }

// patches appends one step in time of an image cut into patches: [rows/merge, columns/merge, merge, merge]
// patches of [3, len(frames), patch, patch]. Frames have one size, whose sides are multiples of patch·merge;
// the same image may be there several times.
func patches(out []byte, frames []*Image, patch, merge int) []byte {
	apart := make([]*planes, len(frames))
	for i, f := range frames {
		if i > 0 && f == frames[i-1] {
			apart[i] = apart[i-1]
			continue
		}
		apart[i] = f.planes()
		defer apart[i].release()
	}
	w, rows, columns := frames[0].W, frames[0].H/patch, frames[0].W/patch
	at := len(out)
	out = out[:at+rows*columns*3*len(frames)*patch*patch]
	for n := range rows * columns {
		// n counts blocks of merge by merge patches, row by row, and the patches in a block
		block, in := n/(merge*merge), n%(merge*merge)
		y := block/(columns/merge)*merge + in/merge
		x := block%(columns/merge)*merge + in%merge
		for c := range 3 {
			for _, f := range apart {
				from := f.c[c][y*patch*w+x*patch:]
				for py := range patch {
					copy(out[at:at+patch], from[py*w:])
					at += patch
				}
			}
		}
	}
	return out
}

// tile appends a box, channel by channel.
func (p *planes) tile(out []byte, x, y, w, h int) []byte {
	for _, c := range p.c {
		for dy := range h {
			out = append(out, c[(y+dy)*p.w+x:][:w]...)
		}
	}
	return out
}

// whole appends an image that was made of p as one tile, and releases it.
func (p *Image) whole(out []byte, made *Image) []byte {
	apart := made.planes()
	out = apart.tile(out, 0, 0, made.W, made.H)
	apart.release()
	made.releaseUnless(p)
	return out
}

// releaseUnless releases an image that was made of another, and may be that one.
func (p *Image) releaseUnless(source *Image) {
	if p != source {
		p.Release()
	}
}
