package latent

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// klEps is what the norms of AutoencoderKL have under their root.
const klEps = 1e-6

// klBlocks are the blocks of an AutoencoderKL. Values between them are [n h w c].
type klBlocks struct {
	c   *AutoencoderKL
	act int // of the residual blocks; that before the last convolution is SiLU always
}

// encoder lists blocks that halve the picture behind every level but the last.
func (b klBlocks) encoder(_ way, name string) []Block {
	enc, c := join(name, "encoder"), b.c
	list := []Block{{enc + ".conv_in", func(r *block.Rec, x *grad.Value) *grad.Value {
		return conv2(r, enc+".conv_in", x, c.Channels[0], 3)
	}}}
	for i, width := range c.Channels {
		level, last := fmt.Sprintf("%s.down_blocks.%d", enc, i), i == len(c.Channels)-1
		list = append(list, Block{level, func(r *block.Rec, x *grad.Value) *grad.Value {
			x = b.level(r, level, x, width, c.LayersPerBlock, c.DownTypes[i] == attentionDown)
			if last {
				return x
			}
			return conv(r, level+".downsamplers.0.conv", x, width, []int{3, 3}, halve, halve)
		}})
	}
	return append(list, b.middle(enc), Block{enc + ".conv_out", func(r *block.Rec, x *grad.Value) *grad.Value {
		x = b.last(r, enc, x, 2*c.LatentChannels)
		if c.QuantConv {
			x = conv2(r, join(name, "quant_conv"), x, 2*c.LatentChannels, 1)
		}
		return x
	}})
}

// decoder lists blocks that double the picture behind every level but the last, with a residual block more in each.
func (b klBlocks) decoder(_ way, name string) []Block {
	dec, c, n := join(name, "decoder"), b.c, len(b.c.Channels)
	list := []Block{{dec + ".conv_in", func(r *block.Rec, x *grad.Value) *grad.Value {
		if c.PostQuantConv {
			x = conv2(r, join(name, "post_quant_conv"), x, c.LatentChannels, 1)
		}
		return conv2(r, dec+".conv_in", x, c.Channels[n-1], 3)
	}}, b.middle(dec)}
	for i := range n {
		level, width := fmt.Sprintf("%s.up_blocks.%d", dec, i), c.Channels[n-1-i]
		list = append(list, Block{level, func(r *block.Rec, x *grad.Value) *grad.Value {
			x = b.level(r, level, x, width, c.LayersPerBlock+1, c.UpTypes[i] == attentionUp)
			if i == n-1 {
				return x
			}
			return conv2(r, level+".upsamplers.0.conv", twice(r, x), width, 3)
		}})
	}
	return append(list, Block{dec + ".conv_out", func(r *block.Rec, x *grad.Value) *grad.Value {
		return b.last(r, dec, x, c.OutChannels)
	}})
}

// level is n residual blocks of a width, each with attention behind it if there is some.
func (b klBlocks) level(r *block.Rec, name string, x *grad.Value, width, n int, attention bool) *grad.Value {
	for i := range n {
		x = b.residual(r, fmt.Sprintf("%s.resnets.%d", name, i), x, width)
		if attention {
			x = b.attention(r, fmt.Sprintf("%s.attentions.%d", name, i), x)
		}
	}
	return x
}

// middle is the block at the coarsest level.
func (b klBlocks) middle(name string) Block {
	name += ".mid_block"
	return Block{name, func(r *block.Rec, x *grad.Value) *grad.Value {
		x = b.residual(r, name+".resnets.0", x, channels(x))
		if b.c.MidAttention {
			x = b.attention(r, name+".attentions.0", x)
		}
		return b.residual(r, name+".resnets.1", x, channels(x))
	}}
}

// norm is the norm over groups of channels called name.
func (b klBlocks) norm(r *block.Rec, name string, x *grad.Value) *grad.Value {
	w := r.T.Param(name+".weight", []int{channels(x)}, -1, 1, false)
	return r.T.GroupNorm(x, w, r.T.Param(name+".bias", []int{channels(x)}, -1, 1, false), b.c.Groups, klEps)
}

// residual is x + conv(act(norm(conv(act(norm(x)))))), where x passes a product if its width changes.
func (b klBlocks) residual(r *block.Rec, name string, x *grad.Value, width int) *grad.Value {
	h := conv2(r, name+".conv1", r.T.Act(b.norm(r, name+".norm1", x), b.act), width, 3)
	h = conv2(r, name+".conv2", r.T.Act(b.norm(r, name+".norm2", h), b.act), width, 3)
	if channels(x) != width {
		x = conv2(r, name+".conv_shortcut", x, width, 1)
	}
	return r.T.Add(x, h)
}

// attention is x + attention(norm(x)) among the places of each picture.
func (b klBlocks) attention(r *block.Rec, name string, x *grad.Value) *grad.Value {
	c := channels(x)
	rows := r.T.Rows(b.norm(r, name+".group_norm", x))
	proj := func(part string, h *grad.Value) *grad.Value {
		return r.Linear(name+part, h, c, c, block.LinearOpts{Bias: true, Rep: true})
	}
	h := attend(r, x.Shape[0], proj(".to_q", rows), proj(".to_k", rows), proj(".to_v", rows))
	return r.T.Add(x, r.T.Space(proj(".to_out.0", h), x.Shape[0], x.Shape[1], x.Shape[2]))
}

// last is the norm, SiLU and the convolution that an encoder or a decoder ends with.
func (b klBlocks) last(r *block.Rec, name string, x *grad.Value, out int) *grad.Value {
	return conv2(r, name+".conv_out", silu(r, b.norm(r, name+".conv_norm_out", x)), out, 3)
}

// attentionNames are the names of attention's products: those of files before version 0.18 of diffusers, as
// Stable Diffusion's, and those since.
var attentionNames = [][2]string{{".query.", ".to_q."}, {".key.", ".to_k."}, {".value.", ".to_v."},
	{".proj_attn.", ".to_out.0."}}

// olderAttention gives a parameter of attention of an older file the name that diffusers has now.
func olderAttention(name string) string { return renamed(name, 0, 1) }

// Older is the name that a parameter of an autoencoder has in older files of diffusers.
func Older(name string) string { return renamed(name, 1, 0) }

func renamed(name string, from, to int) string {
	at := strings.LastIndex(name, ".attentions.")
	if at < 0 {
		return name
	}
	head, tail := name[:at], name[at:]
	for _, p := range attentionNames {
		tail = strings.Replace(tail, p[from], p[to], 1)
	}
	return head + tail
}
