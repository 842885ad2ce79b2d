package latent

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// clipBlocks are the blocks of an autoencoder of clips (D:models/autoencoders/autoencoder_kl_wan.py). Values
// between them are [n t h w c].
type clipBlocks struct {
	keys              *clipKeys
	base, decoderBase int
	out               int // channels that the decoder gives, with those of patches
	patch             int // side of patches
	residual          bool
}

// level is what one level of resolution does: channels in and out, and by what it divides or multiplies
// frames and sides behind its residual blocks.
type level struct{ in, out, frames, side int }

// levels are the encoder's, from base channels on.
func (b clipBlocks) levels(base int) []level {
	l, in := make([]level, len(b.keys.DimMult)), base
	for i, m := range b.keys.DimMult {
		l[i] = level{in, base * m, 1, 1}
		if i < len(l)-1 {
			l[i].side = 2
			if b.keys.TimeDown[i] {
				l[i].frames = 2
			}
		}
		in = l[i].out
	}
	return l
}

// rises are the decoder's, the coarsest first. Without shortcuts the doubling of a level halves the channels
// that the next one has in.
func (b clipBlocks) rises(base int) []level {
	n := len(b.keys.DimMult)
	l, in := make([]level, n), base*b.keys.DimMult[n-1]
	for i := range l {
		l[i] = level{in, base * b.keys.DimMult[n-1-i], 1, 1}
		in = l[i].out
		if i == n-1 {
			continue
		}
		l[i].side = 2
		if b.keys.TimeDown[n-2-i] {
			l[i].frames = 2
		}
	}
	return l
}

func (b clipBlocks) encoder(w way, name string) []Block {
	enc := join(name, "encoder")
	list := []Block{{enc + ".conv_in", func(r *block.Rec, x *grad.Value) *grad.Value {
		return w.causal(r, enc+".conv_in", patched(r, x, b.patch), b.base, 3)
	}}}
	if b.residual {
		list = append(list, b.shortcutDown(w, enc)...)
	} else {
		list = append(list, b.down(w, enc)...)
	}
	z := 2 * b.keys.LatentDim
	return append(list, b.middle(w, enc), Block{enc + ".conv_out", func(r *block.Rec, x *grad.Value) *grad.Value {
		return w.causal(r, join(name, "quant_conv"), b.last(w, r, enc, x, z), z, 1)
	}})
}

// down lists the encoder's levels, of which every layer is a block of its own.
func (b clipBlocks) down(w way, enc string) (list []Block) {
	add := func(f func(r *block.Rec, name string, x *grad.Value) *grad.Value) {
		name := fmt.Sprintf("%s.down_blocks.%d", enc, len(list))
		list = append(list, Block{name, func(r *block.Rec, x *grad.Value) *grad.Value {
			return f(r, name, x)
		}})
	}
	for i, l := range b.levels(b.base) {
		for range b.keys.ResBlocks {
			add(func(r *block.Rec, name string, x *grad.Value) *grad.Value {
				return w.residual(r, name, x, l.out)
			})
			if slices.Contains(b.keys.AttnScales, b.keys.scales()[i]) {
				add(attention)
			}
		}
		if l.side > 1 {
			add(func(r *block.Rec, name string, x *grad.Value) *grad.Value { return w.sink(r, name, x, l) })
		}
	}
	return list
}

// shortcutDown lists levels that add an average of what they read.
func (b clipBlocks) shortcutDown(w way, enc string) (list []Block) {
	for i, l := range b.levels(b.base) {
		name := fmt.Sprintf("%s.down_blocks.%d", enc, i)
		list = append(list, Block{name, func(r *block.Rec, x *grad.Value) *grad.Value {
			h := w.residuals(r, name, x, l.out, b.keys.ResBlocks)
			if l.side > 1 {
				h = w.sink(r, name+".downsampler", h, l)
			}
			return r.T.Add(h, w.averaged(r, x, l.out, l.frames, l.side))
		}})
	}
	return list
}

func (b clipBlocks) decoder(w way, name string) []Block {
	dec, levels := join(name, "decoder"), b.rises(b.decoderBase)
	list := []Block{{dec + ".conv_in", func(r *block.Rec, x *grad.Value) *grad.Value {
		x = w.causal(r, join(name, "post_quant_conv"), x, b.keys.LatentDim, 1)
		return w.causal(r, dec+".conv_in", x, levels[0].in, 3)
	}}, b.middle(w, dec)}
	for i, l := range levels {
		name := fmt.Sprintf("%s.up_blocks.%d", dec, i)
		list = append(list, Block{name, func(r *block.Rec, x *grad.Value) *grad.Value {
			h := w.residuals(r, name, x, l.out, b.keys.ResBlocks+1)
			switch {
			case l.side == 1:
				return h
			case b.residual:
				h = w.rise(r, name+".upsampler", h, l, l.out)
				return r.T.Add(h, w.repeated(r, x, l.out, l.frames, l.side))
			}
			return w.rise(r, name+".upsamplers.0", h, l, l.out/2)
		}})
	}
	return append(list, Block{dec + ".conv_out", func(r *block.Rec, x *grad.Value) *grad.Value {
		return clamped(r, unpatched(r, b.last(w, r, dec, x, b.out), b.patch), -1, 1)
	}})
}

// middle is the block at the coarsest level.
func (b clipBlocks) middle(w way, name string) Block {
	name += ".mid_block"
	return Block{name, func(r *block.Rec, x *grad.Value) *grad.Value {
		c := channels(x)
		x = attention(r, name+".attentions.0", w.residual(r, name+".resnets.0", x, c))
		return w.residual(r, name+".resnets.1", x, c)
	}}
}

// last is the norm, SiLU and the convolution that an encoder or a decoder ends with.
func (b clipBlocks) last(w way, r *block.Rec, name string, x *grad.Value, out int) *grad.Value {
	return w.causal(r, name+".conv_out", silu(r, norm(r, name+".norm_out", x, 3)), out, 3)
}

// norm is the norm of each place's channels called name, whose parameter has as many axes of length 1 behind its own.
func norm(r *block.Rec, name string, x *grad.Value, ones int) *grad.Value {
	shape := []int{channels(x)}
	for range ones {
		shape = append(shape, 1)
	}
	return r.T.ChannelNorm(x, r.T.View(r.T.Param(name+".gamma", shape, -1, 1, false), channels(x)))
}

// residual is x + conv(silu(norm(conv(silu(norm(x)))))), where x passes a product if its width changes.
func (w way) residual(r *block.Rec, name string, x *grad.Value, width int) *grad.Value {
	h := w.causal(r, name+".conv1", silu(r, norm(r, name+".norm1", x, 3)), width, 3)
	h = w.causal(r, name+".conv2", silu(r, norm(r, name+".norm2", h, 3)), width, 3)
	if channels(x) != width {
		x = w.causal(r, name+".conv_shortcut", x, width, 1)
	}
	return r.T.Add(x, h)
}

// residuals are n residual blocks of a width.
func (w way) residuals(r *block.Rec, name string, x *grad.Value, width, n int) *grad.Value {
	for i := range n {
		x = w.residual(r, fmt.Sprintf("%s.resnets.%d", name, i), x, width)
	}
	return x
}

// attention is x + attention(norm(x)) among the places of each frame.
func attention(r *block.Rec, name string, x *grad.Value) *grad.Value {
	return pictures(r, x, func(x *grad.Value) *grad.Value {
		t, c := r.T, channels(x)
		qkv := t.Rows(conv2(r, name+".to_qkv", norm(r, name+".norm", x, 2), 3*c, 1))
		if len(x.Place.Cuts(1)) > 0 { // members with lines of every frame are given rows, whose sums are theirs
			qkv = t.OwnTokens(qkv)
		}
		h := attend(r, x.Shape[0], t.Columns(qkv, 0, c), t.Columns(qkv, c, c), t.Columns(qkv, 2*c, c))
		h = conv2(r, name+".proj", t.Space(h, x.Shape[0], x.Shape[1], x.Shape[2]), c, 1)
		return t.Add(x, h)
	})
}

// sink halves the sides of x, and the frames if the level does.
func (w way) sink(r *block.Rec, name string, x *grad.Value, l level) *grad.Value {
	x = pictures(r, x, func(x *grad.Value) *grad.Value {
		return conv(r, name+".resample.1", x, channels(x), []int{3, 3}, halve, halve)
	})
	if l.frames > 1 {
		x = w.halved(r, name+".time_conv", x)
	}
	return x
}

// rise doubles the frames of x, if the level does, and its sides, to out channels.
func (w way) rise(r *block.Rec, name string, x *grad.Value, l level, out int) *grad.Value {
	if l.frames > 1 {
		x = w.doubled(r, name+".time_conv", x)
	}
	return pictures(r, x, func(x *grad.Value) *grad.Value {
		return conv2(r, name+".resample.1", twice(r, x), out, 3)
	})
}
