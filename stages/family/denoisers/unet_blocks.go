package denoisers

import (
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// unet is a U-Net. What a block gives is a port of its own, [images·height·width channels] at the block's
// level, so that a long skip is a port that a later block takes too: where both lie in different stages
// of a pipeline it goes straight from one to the other.
type unet struct {
	c configs.Model
	k Keys
	o unetKeys
	d *family.Denoiser

	m    *family.Model
	from string   // port of what the block before gives
	wide int      // its channels
	deep int      // its level
	back []string // ports of the skips that are not taken yet
}

func newUNet(c configs.Model) *unet {
	k, o := Shared.Of(c), unetPart.Of(c)
	pipeline := "StableDiffusionPipeline"
	if o.Frame > 0 {
		pipeline = "StableDiffusionXLPipeline"
	}
	return &unet{c: c, k: k, o: o, d: &family.Denoiser{Patch: [3]int(k.Patch), Channels: k.In, Texts: k.Text,
		Pipeline: pipeline, Canvas: true, Lines: true, Framed: o.Frame > 0, Pooled: o.pooled()}}
}

// embWidth is the width of what every residual block is told of the level of noise.
func (u *unet) embWidth() int { return 4 * u.o.Channels[0] }

// side is the length of an axis at a level: each has half of the one before, rounded up.
func side(n, level int) int {
	for range level {
		n = (n + 1) / 2
	}
	return n
}

// space are the images of a level: how many, their height and their width.
func space(s block.Shape, level int) (n, h, w int) {
	h, w = family.Canvas(s)
	return family.Levels(s), side(h, level), side(w, level)
}

func (u *unet) model() *family.Model {
	u.m = NewModel(u.c, u.d)
	m, n := u.m, len(u.o.Channels)
	delete(m.Ports, "x")
	m.Source, m.Initial = u.source, func(name string) family.Start { return Zeroed(name, "conv_out.") }
	m.Ports["temb"] = family.Port{Width: u.embWidth(), Rows: family.Levels, Whole: true}
	u.add("conv_in", u.o.Channels[0], 0, func(r *block.Rec, _ *grad.Value, env map[string]*grad.Value) *grad.Value {
		return u.embed(r, env)
	})
	m.Blocks[0].Gives = append(m.Blocks[0].Gives, "temb")
	u.skip()
	for i, width := range u.o.Channels {
		name := fmt.Sprintf("down_blocks.%d", i)
		for j := range u.o.Residuals {
			u.residual(fmt.Sprintf("%s.resnets.%d", name, j), width)
			if u.o.Down[i] == crossDown {
				u.attention(fmt.Sprintf("%s.attentions.%d", name, j), i)
			}
			u.skip()
		}
		if i < n-1 {
			u.downsample(name + ".downsamplers.0.conv")
			u.skip()
		}
	}
	u.residual("mid_block.resnets.0", u.o.Channels[n-1])
	u.attention("mid_block.attentions.0", n-1)
	u.residual("mid_block.resnets.1", u.o.Channels[n-1])
	for i := range n {
		name, level := fmt.Sprintf("up_blocks.%d", i), n-1-i
		for j := range u.o.Residuals + 1 {
			u.join(fmt.Sprintf("%s.resnets.%d", name, j), u.o.Channels[level])
			if u.o.Down[level] == crossDown {
				u.attention(fmt.Sprintf("%s.attentions.%d", name, j), level)
			}
		}
		if level > 0 {
			u.upsample(name + ".upsamplers.0.conv")
		}
	}
	m.Add(family.Block{Name: "conv_out", Takes: []string{u.from}, Weight: u.work(9 * u.wide * u.k.Out),
		Record: u.head(u.from)})
	return m
}

// Layer records a block: x are the rows that the block before gives.
type Layer func(r *block.Rec, x *grad.Value, env map[string]*grad.Value) *grad.Value

// add adds a block that takes what the one before gives, and more, and gives images of so many channels.
func (u *unet) add(name string, channels int, work float64, record Layer, more ...string) {
	from, to := u.from, fmt.Sprintf("h.%d", len(u.m.Blocks))
	b := family.Block{Name: name, Gives: []string{to}, Weight: work, Recompute: from != "",
		Record: func(r *block.Rec, env map[string]*grad.Value) { env[to] = record(r, env[from], env) }}
	if from != "" {
		b.Takes = append([]string{from}, more...)
	}
	u.m.Add(b)
	level := u.deep
	lines := func(s block.Shape) int { // those of several images are cut between images alone
		n, h, _ := space(s, level)
		if n > 1 {
			return n
		}
		return h
	}
	u.m.Ports[to] = family.Port{Width: channels, Lines: lines, Rows: func(s block.Shape) int {
		n, h, w := space(s, level)
		return n * h * w
	}}
	u.from, u.wide = to, channels
}

// skip keeps what the last block gave for the way up.
func (u *unet) skip() { u.back = append(u.back, u.from) }

// work is a block's share of the model's by the weights that each place of its level passes.
func (u *unet) work(weights int) float64 {
	c := u.o.Channels[0]
	return float64(weights) / float64(9*c*c) / math.Pow(4, float64(u.deep))
}

// residual adds a residual block: x + conv(act(norm(conv(act(norm(x))) + level))), where x passes a
// product if its channels change.
func (u *unet) residual(name string, out int) {
	in, level := u.wide, u.deep
	u.add(name, out, u.work(9*out*(in+out)), func(r *block.Rec, x *grad.Value, env map[string]*grad.Value) *grad.Value {
		return u.resnet(r, name, u.image(r, x, level), env["temb"], out)
	}, "temb")
}

// join adds a residual block on the way up, which reads the last skip that is left too.
func (u *unet) join(name string, out int) {
	last := len(u.back) - 1
	skip := u.back[last]
	u.back = u.back[:last]
	in, level := u.wide+u.m.Ports[skip].Width, u.deep
	u.add(name, out, u.work(9*out*(in+out)), func(r *block.Rec, x *grad.Value, env map[string]*grad.Value) *grad.Value {
		return u.resnet(r, name, u.image(r, r.T.Concat(1, x, env[skip]), level), env["temb"], out)
	}, "temb", skip)
}

// image views rows as the images of a level.
func (u *unet) image(r *block.Rec, x *grad.Value, level int) *grad.Value {
	n, h, w := space(r.Shape, level)
	return r.T.Space(x, n, h, w)
}

// resnet records a residual block of x [n h w c], and gives rows. Members of tp have some groups of the
// channels between both convolutions.
func (u *unet) resnet(r *block.Rec, name string, x, temb *grad.Value, out int) *grad.Value {
	t, in, unit := r.T, x.Shape[3], out/u.o.Groups
	h := t.Act(u.norm(r, name+".norm1", x, u.c.NormEps), kernels.SiLU)
	h = u.conv(r, name+".conv1", h, out, ConvOpts{Axis: 0, Unit: unit, Size: 3, Stride: 1})
	e := r.Linear(name+".time_emb_proj", t.Act(temb, kernels.SiLU), out, u.embWidth(),
		block.LinearOpts{Bias: true, Unit: unit})
	levels := x.Shape[0]
	none := t.ConstOf("dif.none", make([]float32, levels*out), levels, out)
	h = t.Modulate(h, none, e, t.Indices("dif.each", levels, func(i int) int { return i }), grad.Modulation{Norm: kernels.PlainRows, Plus: 1})
	h = t.Act(u.norm(r, name+".norm2", h, u.c.NormEps), kernels.SiLU)
	h = u.conv(r, name+".conv2", h, out, ConvOpts{Axis: 1, Unit: unit, Size: 3, Stride: 1})
	if in != out {
		x = u.conv(r, name+".conv_shortcut", x, out, ConvOpts{Axis: -1, Unit: 1, Size: 1, Stride: 1})
	}
	return t.Rows(t.Add(x, h))
}

// norm is the norm over groups of channels called name.
func (u *unet) norm(r *block.Rec, name string, x *grad.Value, eps float64) *grad.Value {
	c := x.Shape[3]
	w := r.T.Param(name+".weight", []int{c}, -1, 1, false)
	return r.T.GroupNorm(x, w, r.T.Param(name+".bias", []int{c}, -1, 1, false), u.o.Groups, eps)
}

// ConvOpts say how a convolution is shared out, by output channels (0), input channels (1) or not at all
// (-1), in units, and its window.
type ConvOpts struct{ Axis, Unit, Size, Stride int }

// conv is the convolution called name of x [n h w c], of an odd size and with its edges padded.
func (u *unet) conv(r *block.Rec, name string, x *grad.Value, out int, o ConvOpts) *grad.Value {
	bias := -1
	if o.Axis == 0 {
		bias = 0
	}
	w := r.T.Param(name+".weight", []int{out, x.Shape[3], o.Size, o.Size}, o.Axis, o.Unit, true)
	win := kernels.Window{Stride: o.Stride, Dilation: 1, Before: o.Size / 2, After: o.Size / 2}
	return r.T.Conv(x, w, r.T.Param(name+".bias", []int{out}, bias, o.Unit, false), win, win)
}

// downsample adds the convolution that halves images.
func (u *unet) downsample(name string) {
	c, level := u.wide, u.deep
	u.deep++
	u.add(name, c, u.work(9*c*c), func(r *block.Rec, x *grad.Value, _ map[string]*grad.Value) *grad.Value {
		return r.T.Rows(u.conv(r, name, u.image(r, x, level), c, ConvOpts{Axis: -1, Unit: 1, Size: 3, Stride: 2}))
	})
}

// upsample adds the convolution of images that are brought to the size of the level above.
func (u *unet) upsample(name string) {
	c, level := u.wide, u.deep
	u.deep--
	u.add(name, c, u.work(9*c*c), func(r *block.Rec, x *grad.Value, _ map[string]*grad.Value) *grad.Value {
		_, h, w := space(r.Shape, level-1)
		y := r.T.Resize(u.image(r, x, level), kernels.Nearest, h, w)
		return r.T.Rows(u.conv(r, name, y, c, ConvOpts{Axis: -1, Unit: 1, Size: 3, Stride: 1}))
	})
}

// embed makes images of noisy latents, and of the level what every residual block reads.
func (u *unet) embed(r *block.Rec, env map[string]*grad.Value) *grad.Value {
	first, emb := u.o.Channels[0], u.embWidth()
	e := TimeMLP(r, "time_embedding", u.d.Features(r, first/2, 1), emb, first)
	if u.o.Frame > 0 {
		more := r.T.Concat(1, u.d.Pools(r, env), u.d.FrameFeatures(r, u.o.Frame/2))
		e = r.T.Add(e, TimeMLP(r, "add_embedding", more, emb, u.o.Added))
	}
	env["temb"] = e
	return r.T.Rows(u.conv(r, "conv_in", u.image(r, u.d.Noisy(r), 0), first,
		ConvOpts{Axis: -1, Unit: 1, Size: 3, Stride: 1}))
}

// head is what the model says of the noisy latents.
func (u *unet) head(from string) func(r *block.Rec, env map[string]*grad.Value) {
	return func(r *block.Rec, env map[string]*grad.Value) {
		x := u.norm(r, "conv_norm_out", u.image(r, env[from], 0), u.c.NormEps)
		y := u.conv(r, "conv_out", r.T.Act(x, kernels.SiLU), u.k.Out, ConvOpts{Axis: -1, Unit: 1, Size: 3, Stride: 1})
		u.d.Predicted(r, env, r.T.Rows(y))
	}
}

// attention adds layers of attention among the places of each image and to its caption.
func (u *unet) attention(name string, at int) {
	c, level := u.wide, u.deep
	weights := c * (2*c + u.o.Depths[at]*(18*c))
	u.add(name, c, u.work(weights), func(r *block.Rec, x *grad.Value, env map[string]*grad.Value) *grad.Value {
		t := r.T
		h := t.Rows(u.norm(r, name+".norm", u.image(r, x, level), 1e-6))
		whole := block.LinearOpts{Bias: true, Rep: true}
		h = r.Linear(name+".proj_in", h, c, c, whole)
		for i := range u.o.Depths[at] {
			h = u.layer(r, fmt.Sprintf("%s.transformer_blocks.%d", name, i), h, c/u.o.LevelHead[at], level, env)
		}
		return t.Add(x, r.Linear(name+".proj_out", h, c, c, whole))
	})
	b := &u.m.Blocks[len(u.m.Blocks)-1]
	b.Texts = true
	by := 4 * float64(u.o.Depths[at]) / math.Pow(16, float64(level)) *
		float64(c) / float64(9*u.o.Channels[0]*u.o.Channels[0])
	b.Pairs = func(n int) float64 { return by * float64(n) }
}

// layer is one layer of attention of rows x, with heads of a width.
func (u *unet) layer(r *block.Rec, name string, x *grad.Value, head, level int,
	env map[string]*grad.Value) *grad.Value {
	t, c := r.T, x.Shape[1]
	norm := func(which string) *grad.Value { return r.LayerNorm(name+which, x, c, 1e-5) }
	n, h, w := space(r.Shape, level)
	cu := t.Indices("dif.borders", n+1, func(i int) int { return i * h * w })
	y := norm(".norm1")
	x = t.Add(x, u.attend(r, name+".attn1", y, y, head, cu, cu))
	x = t.Add(x, u.attend(r, name+".attn2", norm(".norm2"), u.d.Captions(r, env), head, cu, u.d.CanvasCu(r)))
	y = norm(".norm3")
	wide := block.LinearOpts{Bias: true}
	gate := t.Act(r.Linear(name+".ff.net.0.gate", y, 4*c, c, wide), kernels.GELU)
	y = t.Mul(r.Linear(name+".ff.net.0.value", y, 4*c, c, wide), gate)
	return t.Add(x, r.Linear(name+".ff.net.2", y, c, 4*c, block.LinearOpts{Bias: true, Row: true}))
}

// attend is attention of rows x to rows of.
func (u *unet) attend(r *block.Rec, name string, x, of *grad.Value, head int, cuQ, cuK *grad.Value) *grad.Value {
	t, c := r.T, x.Shape[1]
	proj := func(part string, x *grad.Value) *grad.Value {
		return t.Heads(r.Linear(name+part, x, c, x.Shape[1], block.LinearOpts{Unit: head}), head)
	}
	o := t.Attention(proj(".to_q", x), proj(".to_k", of), proj(".to_v", of), cuQ, cuK,
		grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(head))})
	return r.Linear(name+".to_out.0", t.Flat(o), c, c, block.LinearOpts{Bias: true, Row: true, Unit: head})
}

// source says where parameters lie in diffusers' files: value and gate of an MLP are halves of one
// tensor, and convolutions of one place are matrices here.
func (u *unet) source(name string) family.Source {
	s := family.Source{Name: name}
	for i, p := range []string{".ff.net.0.value.", ".ff.net.0.gate."} {
		if strings.Contains(name, p) {
			n := 4 * u.channels(name)
			s.Name = strings.Replace(name, p, ".ff.net.0.proj.", 1)
			s.Rows = [][2]int{{i * n, (i + 1) * n}}
		}
	}
	proj := strings.HasSuffix(name, ".proj_in.weight") || strings.HasSuffix(name, ".proj_out.weight")
	if proj && !u.o.Linear {
		s.Tail = []int{u.channels(name), 1, 1}
	}
	return s
}

// channels are those of the level that a parameter's name is of.
func (u *unet) channels(name string) int {
	n, level := len(u.o.Channels), 0
	switch {
	case strings.HasPrefix(name, "mid_block."):
		return u.o.Channels[n-1]
	case strings.HasPrefix(name, "up_blocks."):
		_, _ = fmt.Sscanf(name, "up_blocks.%d.", &level) // a name that was made here
		return u.o.Channels[n-1-level]
	}
	_, _ = fmt.Sscanf(name, "down_blocks.%d.", &level) // a name that was made here
	return u.o.Channels[level]
}
