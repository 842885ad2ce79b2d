package latent

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Layers along the frames of a clip, which see no later frames. The first frame of pixels is one of latents
// by itself, so what halves or doubles the number of frames leaves the first alone.
//
// A clip may be taken in chunks: each hands the last frames of what such layers read on to the next. What
// comes out has the numbers of the clip taken at once, since every layer then reads the same frames.

// way says which frames of a clip pass: all of them, or a chunk.
type way struct {
	chunked bool // frames at the end are handed on
	later   bool // frames of the chunk before are there
	// handed are frames that go from a chunk to the next of the same record, by layer; nil where each chunk is
	// a record of its own, which has them as data and outputs
	handed map[string]*grad.Value
}

// hand lets the next chunk have a layer's last frames.
func (w way) hand(r *block.Rec, name string, x *grad.Value) {
	if w.handed != nil {
		w.handed[name] = x
		return
	}
	r.T.Output(past(name), x)
}

// before are the n frames that a layer's chunk before has handed on, as x but for their number.
func (w way) before(r *block.Rec, name string, x *grad.Value, n int) *grad.Value {
	if w.handed != nil {
		return w.handed[name]
	}
	s := x.Shape
	return r.T.Data(past(name), x.DType, s[0], n, s[2], s[3], s[4])
}

// past is the name under which a layer's last frames go from a chunk to the next.
func past(name string) string { return "past." + name }

// crop is x [n t h w c] with as many frames more in front, and behind; negative ones are left out.
func crop(r *block.Rec, x *grad.Value, before, after int) *grad.Value {
	if before == 0 && after == 0 {
		return x
	}
	return r.T.Pad(x, grad.Edge{Before: before, After: after}, grad.Edge{}, grad.Edge{})
}

// after is x with the last n frames of the chunk before in front, and the number of frames of zeros that are
// wanted there at the beginning of a clip. It hands on the last n frames.
func (w way) after(r *block.Rec, name string, x *grad.Value, n int) (with *grad.Value, zeros int) {
	zeros = n
	if w.later {
		x, zeros = r.T.Concat(1, w.before(r, name, x, n), x), 0
	}
	if w.chunked {
		w.hand(r, name, crop(r, x, n-x.Shape[1], 0))
	}
	return x, zeros
}

// causal is the convolution of size × size × size called name of x [n t h w c] that keeps its size and reads
// no later frames.
func (w way) causal(r *block.Rec, name string, x *grad.Value, out, size int) *grad.Value {
	win := kernels.Window{Stride: 1, Dilation: 1}
	if size > 1 {
		x, win.Before = w.after(r, name, x, size-1)
	}
	return conv(r, name, x, out, []int{size, size, size}, win, same(size), same(size))
}

// still is the window of an axis that a convolution leaves alone, and fewer that which halves frames.
var still, fewer = kernels.Window{Stride: 1, Dilation: 1}, kernels.Window{Stride: 2, Dilation: 1}

// halved has the first of 1 + 2k frames and k that a convolution over three makes, of which the first is the
// third of those before. A later chunk has 2k frames.
func (w way) halved(r *block.Rec, name string, x *grad.Value) *grad.Value {
	over := func(x *grad.Value) *grad.Value {
		return conv(r, name, x, channels(x), []int{3, 1, 1}, fewer, still, still)
	}
	t := x.Shape[1]
	if w.later {
		x, _ = w.after(r, name, x, 1)
		return over(x)
	}
	if w.chunked {
		w.hand(r, name, crop(r, x, 1-t, 0))
	}
	if t == 1 {
		return x
	}
	return r.T.Concat(1, crop(r, x, 0, 1-t), over(x))
}

// doubled has the first frame and, for each of the others, two that a convolution over three makes: the
// first half of its channels and the second. The first frame is none of the three, which are zeros there.
func (w way) doubled(r *block.Rec, name string, x *grad.Value) *grad.Value {
	t, c := x.Shape[1], channels(x)
	if !w.later && t == 1 {
		if w.chunked {
			w.hand(r, name, crop(r, x, -1, 2)) // zeros
		}
		return x
	}
	rest := x
	if !w.later {
		rest = crop(r, x, -1, 0)
	}
	n := rest.Shape[1]
	y, zeros := w.after(r, name, rest, 2)
	y = conv(r, name, y, 2*c, []int{3, 1, 1}, kernels.Window{Stride: 1, Dilation: 1, Before: zeros}, still, still)
	s := x.Shape
	y = r.T.Permute(r.T.Reshape(y, s[0], n, s[2], s[3], 2, c), 0, 1, 4, 2, 3, 5)
	y = r.T.Reshape(y, s[0], 2*n, s[2], s[3], c)
	if w.later {
		return y
	}
	return r.T.Concat(1, crop(r, x, 0, 1-t), y)
}

// pictures records f on the frames of x [n t h w c] as pictures [n·t h w c].
func pictures(r *block.Rec, x *grad.Value, f func(x *grad.Value) *grad.Value) *grad.Value {
	return r.T.Clips(f(r.T.Frames(x)), x.Shape[0])
}

// averaged is x [n t h w c] at half its rows and columns, and with fewer its frames, where each of out
// channels is the mean of as many neighbouring numbers: of a channel, its frames, rows and columns, the
// columns fastest. The frame of zeros that makes the frames of a clip even stands in front. It is diffusers'
// AvgDown3D; with factors of 1 it only takes means of channels.
func (w way) averaged(r *block.Rec, x *grad.Value, out, frames, side int) *grad.Value {
	t := r.T
	x = crop(r, x, x.Shape[1]%frames, 0)
	s := x.Shape
	group := s[4] * frames * side * side / out
	shape := []int{s[0], s[1] / frames, s[2] / side, s[3] / side, out}
	x = t.Reshape(x, s[0], shape[1], frames, shape[2], side, shape[3], side, s[4])
	x = t.Permute(x, 0, 1, 3, 5, 7, 2, 4, 6)
	if group == 1 {
		return t.Reshape(x, shape...)
	}
	x = t.Pool(t.Reshape(x, s[0], tensor.Len(shape[1:])*group, 1), kernels.MeanPool,
		kernels.Window{Size: group, Stride: group, Dilation: 1})
	return t.Reshape(x, shape...)
}

// repeated is the inverse in shape of averaged: each channel of x stands for as many numbers of out channels,
// their frames, rows and columns. The frames but the last of those that the first frame of a clip becomes
// are left out. It is diffusers' DupUp3D.
func (w way) repeated(r *block.Rec, x *grad.Value, out, frames, side int) *grad.Value {
	t, s := r.T, x.Shape
	times := out * frames * side * side / s[4]
	x = t.Reshape(x, s[0], s[1], s[2], s[3], s[4], 1)
	if times > 1 {
		parts := make([]*grad.Value, times)
		for i := range parts {
			parts[i] = x
		}
		x = t.Concat(5, parts...)
	}
	x = t.Reshape(x, s[0], s[1], s[2], s[3], out, frames, side, side)
	x = t.Permute(x, 0, 1, 5, 2, 6, 3, 7, 4)
	x = t.Reshape(x, s[0], s[1]*frames, s[2]*side, s[3]*side, out)
	if w.later {
		return x
	}
	return crop(r, x, 1-frames, 0)
}

// patched folds squares of side × side pixels of x [n t h w c] into channels, of which the row within the
// square varies fastest and then the column; unpatched is its inverse.
func patched(r *block.Rec, x *grad.Value, side int) *grad.Value {
	if side == 1 {
		return x
	}
	s := x.Shape
	x = r.T.Reshape(x, s[0], s[1], s[2]/side, side, s[3]/side, side, s[4])
	x = r.T.Permute(x, 0, 1, 2, 4, 6, 5, 3)
	return r.T.Reshape(x, s[0], s[1], s[2]/side, s[3]/side, s[4]*side*side)
}

func unpatched(r *block.Rec, x *grad.Value, side int) *grad.Value {
	if side == 1 {
		return x
	}
	s := x.Shape
	x = r.T.Reshape(x, s[0], s[1], s[2], s[3], s[4]/side/side, side, side)
	x = r.T.Permute(x, 0, 1, 2, 6, 3, 5, 4)
	return r.T.Reshape(x, s[0], s[1], s[2]*side, s[3]*side, s[4]/side/side)
}

// EncoderBy is the encoder as one block that takes a clip n frames of latents at a time, so that memory is that
// of a part and not of the clip; what it gives has the bits of Encoder's blocks.
func (m *Model) EncoderBy(name string, n int) Block {
	return Block{join(name, "encoder"), func(r *block.Rec, x *grad.Value) *grad.Value {
		all := 1 + (x.Shape[1]-1)/m.Frames
		handed := map[string]*grad.Value{}
		var parts []*grad.Value
		for lo := 0; lo < all; lo += n {
			hi := min(all, lo+n)
			w := way{chunked: hi < all, later: lo > 0, handed: handed}
			from, to := frameAt(lo, m.Frames), frameAt(hi, m.Frames)
			y := crop(r, x, -from, to-x.Shape[1])
			for _, b := range m.encoder(w, name) {
				y = b.Record(r, y)
			}
			parts = append(parts, y)
		}
		if len(parts) == 1 {
			return parts[0]
		}
		return r.T.Concat(1, parts...)
	}}
}

// frameAt is where the pixels of a frame of latents begin, of so many each behind the first, which is one alone.
func frameAt(latent, each int) int { return max(0, 1+(latent-1)*each) }
