package denoisers

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen-Image (arXiv:2508.02324): captions are a stream of their own, with weights of its own; both streams
// attend to both. Places are counted from the middle of the image.
var _ = family.Register(family.Family{ModelType: "QwenImageTransformer2DModel", Paper: "2508.02324",
	HF: hf.Family{Class: "QwenImageTransformer2DModel", Diffusers: true,
		Has:   []string{"latent_patch", "in_channels", "out_channels", "text_dim", "axes_dims_rope"},
		Fixed: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`},
		Absent: map[string]string{"out_channels": "16", "num_attention_heads": "24", "head_dim": "128",
			"num_hidden_layers": "60", "text_dim": "3584", "axes_dims_rope": "[16, 56, 56]", "rms_norm_eps": "1e-6"},
		Alias: map[string]string{"attention_head_dim": "head_dim", "num_layers": "num_hidden_layers",
			"joint_attention_dim": "text_dim"},
		Only: map[string]string{"guidance_embeds": "false", "zero_cond_t": "false",
			"use_additional_t_cond": "false", "use_layer3d_rope": "false"},
		Omit:  []string{"latent_patch", "rms_norm_eps", "text_rows"},
		Own:   []hf.Own{hf.Keys(width{Heads: 24, Dim: 128}, width.enter), hf.Keys(packed{In: 64, Patch: 2, Heads: 24, Dim: 128}, packed.enter)},
		Write: packed{}.write},
	Build: func(c configs.Model) *family.Model { return newMMDiT(c).model() }})

// packed are the keys of denoisers whose channels are those of a patch.
type packed struct {
	In    int `key:"in_channels" min:"1"`
	Patch int `key:"patch_size" min:"1" max:"64"`
	Heads int `key:"num_attention_heads" min:"1"`
	Dim   int `key:"attention_head_dim" min:"1"`
}

// enter counts channels of latents, not of patches, and gives the MLP its width.
func (k packed) enter(d *hf.Decoder) {
	if k.In%(k.Patch*k.Patch) != 0 {
		d.Fail("in_channels", fmt.Sprintf("%d are no channels of patches of %d×%[2]d", k.In, k.Patch), "")
		return
	}
	d.Set("in_channels", fmt.Sprint(k.In/(k.Patch*k.Patch)))
	d.Set("intermediate_size", fmt.Sprint(4*k.Heads*k.Dim))
	d.Set("latent_patch", fmt.Sprintf("[1, %d, %d]", k.Patch, k.Patch))
}

// write is the inverse of enter.
func (packed) write(m hf.Values, out map[string]any) {
	patch := m["latent_patch"].([]int)
	out["in_channels"], out["patch_size"] = m.Int("in_channels")*patch[1]*patch[2], patch[1]
	out["guidance_embeds"] = false
}

// ropeKeys are those of denoisers that say how many numbers of a head turn with each axis.
type ropeKeys struct {
	Axes []int `key:"axes_dims_rope" class:"fixed" doc:"Numbers of a head that turn with time, height and width."`
}

var turning = configs.Declare("axes of a denoiser", configs.Rules[ropeKeys]{
	Check: func(m configs.Model, k ropeKeys, at configs.Report) {
		sum := 0
		for _, n := range k.Axes {
			sum += n
			if n%2 != 0 {
				at("axes_dims_rope", fmt.Sprintf("%v: %d is odd, and numbers turn in pairs", k.Axes, n), "")
			}
		}
		if m.Has("axes_dims_rope") && (len(k.Axes) != 3 || sum != m.HeadDim) {
			at("axes_dims_rope", fmt.Sprintf("%v, want three numbers that add up to head_dim = %d", k.Axes,
				m.HeadDim), "")
		}
	}})

// mmdit is a model of two streams.
type mmdit struct {
	c    configs.Model
	k    Keys
	axes [3]int
	d    *family.Denoiser
}

func newMMDiT(c configs.Model) mmdit {
	k := keys.Of(c)
	d := &family.Denoiser{Patch: [3]int(k.Patch), Channels: k.In, Texts: k.Text, Joint: true, TextStep: 1, Times: 1000,
		At: centred, TextAt: func(g [3]int) int32 { return int32(max(g[1]/2, g[2]/2)) }}
	return mmdit{c, k, [3]int(turning.Of(c).Axes), d}
}

// centred are the places of an image's tokens, counted from its middle.
func centred(g [3]int) []int32 {
	var out []int32
	for t := range g[0] {
		for y := range g[1] {
			for x := range g[2] {
				out = append(out, int32(t), int32(y-(g[1]-g[1]/2)), int32(x-(g[2]-g[2]/2)))
			}
		}
	}
	return out
}

func (q mmdit) model() *family.Model {
	m := model(q.c, q.d)
	hidden := q.c.Hidden
	m.Ports["text"] = family.Port{Width: hidden, Rows: family.Captions, Whole: true}
	m.Ports["temb"] = family.Port{Width: hidden, Rows: family.Levels, Whole: true}
	m.Initial = func(name string) family.Start { return zeroed(name, "proj_out", "_mod.1", "norm_out.linear") }
	m.Add(family.Block{Name: "img_in", Gives: []string{"x", "temb", "text"}, Weight: 0.1, Record: q.embed})
	for i := range q.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("transformer_blocks.%d", i), Takes: []string{"x", "temb", "text"},
			Gives: []string{"x", "text"}, Recompute: true, Weight: 1, Pairs: pairs(q.c),
			Record: func(r *block.Rec, env map[string]*grad.Value) { q.block(r, i, env) }})
	}
	m.Add(family.Block{Name: "proj_out", Takes: []string{"x", "temb"}, Weight: 0.1, Record: q.head})
	return m
}

func (q mmdit) embed(r *block.Rec, env map[string]*grad.Value) {
	t, d, whole := r.T, q.c.Hidden, block.LinearOpts{Bias: true, Rep: true}
	env["x"] = t.Place("residual", r.Linear("img_in", q.d.Noisy(r), d, q.d.Width(), whole))
	env["text"] = r.Linear("txt_in", r.Norm("txt_norm", q.d.Captions(r), q.k.Text, 1e-6), d, q.k.Text, whole)
	const features = 256
	env["temb"] = timed(r, "time_text_embed.timestep_embedder", q.d.Features(r, features/2, 1000), d, features)
}

// stream is what one of both streams reads and writes.
type stream struct {
	mod, q, k, v, normQ, normK, out, mlp string // names of its parameters
	x, at                                *grad.Value
	mods                                 *grad.Value // [levels 6·D]: shift, scale and gate of attention and of the MLP
}

// streams are both of block i, latents first.
func (q mmdit) streams(r *block.Rec, i int, env map[string]*grad.Value) [2]*stream {
	name := fmt.Sprintf("transformer_blocks.%d.", i)
	s := [2]*stream{
		{mod: name + "img_mod.1", q: name + "attn.to_q", k: name + "attn.to_k", v: name + "attn.to_v",
			normQ: name + "attn.norm_q", normK: name + "attn.norm_k", out: name + "attn.to_out.0",
			mlp: name + "img_mlp", x: env["x"], at: q.d.Level(r)},
		{mod: name + "txt_mod.1", q: name + "attn.add_q_proj", k: name + "attn.add_k_proj",
			v: name + "attn.add_v_proj", normQ: name + "attn.norm_added_q", normK: name + "attn.norm_added_k",
			out: name + "attn.to_add_out", mlp: name + "txt_mlp", x: env["text"], at: q.d.TextLevel(r)}}
	e := r.T.Act(env["temb"], kernels.SiLU)
	for _, s := range s {
		s.mods = r.Linear(s.mod, e, 6*q.c.Hidden, q.c.Hidden, block.LinearOpts{Bias: true, Rep: true})
	}
	return s
}

// part is one of the six of a stream's modulations.
func (s *stream) part(t *grad.Tape, k, d int) *grad.Value { return t.Columns(s.mods, k*d, d) }

// block is block i: both streams attend to both, each with queries, keys and values of its own.
func (q mmdit) block(r *block.Rec, i int, env map[string]*grad.Value) {
	t, d := r.T, q.c.Hidden
	both := q.streams(r, i, env)
	var qs, ks, vs [2]*grad.Value
	for j, s := range both {
		h := t.Modulate(s.x, s.part(t, 1, d), s.part(t, 0, d), s.at, plain(1e-6))
		qs[j], ks[j], vs[j] = q.heads(r, s, h, j == 1)
	}
	k, v, cuK := q.d.Together(r, ks[1], ks[0]), q.d.Together(r, vs[1], vs[0]), q.d.JointCu(r)
	for j, s := range both {
		cu, tokens, place := r.Cu(), true, "residual"
		if j == 1 {
			cu, tokens, place = q.d.TextCu(r), false, ""
			if i == q.c.Layers-1 {
				q.unread(r, s)
				continue
			}
		}
		o := t.Attention(qs[j], k, v, cu, cuK, grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(q.c.HeadDim)),
			Tokens: tokens})
		o = r.Linear(s.out, t.Flat(o), d, d, block.LinearOpts{Bias: true, Row: true, Unit: q.c.HeadDim})
		s.x = t.Gate(s.x, t.Place(place, o), s.part(t, 2, d), s.at)
		h := t.Modulate(s.x, s.part(t, 4, d), s.part(t, 3, d), s.at, plain(1e-6))
		h = t.Act(r.Linear(s.mlp+".net.0.proj", h, 4*d, d, block.LinearOpts{Bias: true}), kernels.GELUTanh)
		h = r.Linear(s.mlp+".net.2", h, d, 4*d, block.LinearOpts{Bias: true, Row: true})
		s.x = t.Gate(s.x, t.Place(place, h), s.part(t, 5, d), s.at)
	}
	env["x"], env["text"] = both[0].x, both[1].x
}

// unread declares what the last block's captions would pass: nothing reads them behind it, so that these
// parameters neither learn nor decay.
func (q mmdit) unread(r *block.Rec, s *stream) {
	defer r.T.Still()()
	d := q.c.Hidden
	for _, p := range []struct {
		name    string
		out, in int
	}{{s.out, d, d}, {s.mlp + ".net.0.proj", 4 * d, d}, {s.mlp + ".net.2", d, 4 * d}} {
		r.T.Param(p.name+".weight", []int{p.out, p.in}, -1, 1, true)
		r.T.Param(p.name+".bias", []int{p.out}, -1, 1, false)
	}
}

// heads are the queries, keys and values of a stream, normed by head and turned by their places.
func (q mmdit) heads(r *block.Rec, s *stream, h *grad.Value, text bool) (qv, k, v *grad.Value) {
	t, d, n := r.T, q.c.Hidden, q.c.HeadDim
	proj := func(name, norm string) *grad.Value {
		x := t.Heads(r.Linear(name, h, d, d, block.LinearOpts{Bias: true, Unit: n}), n)
		if norm == "" {
			return x
		}
		x = r.Norm(norm, x, n, 1e-6)
		data, rows := "dif.pos", r.Shape.Rows
		if text {
			data, rows = "dif.text.pos", family.Captions(r.Shape)
		}
		cos, sin := q.d.Turned(r, data, rows, 10000, q.axes)
		return t.Rope(x, cos, sin, true)
	}
	return proj(s.q, s.normQ), proj(s.k, s.normK), proj(s.v, "")
}

// head is the last norm, scaled and shifted by the level, and the numbers of each token.
func (q mmdit) head(r *block.Rec, env map[string]*grad.Value) {
	t, d := r.T, q.c.Hidden
	mod := r.Linear("norm_out.linear", t.Act(env["temb"], kernels.SiLU), 2*d, d, block.LinearOpts{Bias: true, Rep: true})
	h := t.Modulate(env["x"], t.Columns(mod, 0, d), t.Columns(mod, d, d), q.d.Level(r), plain(1e-6))
	q.d.Predicted(r, env, r.Linear("proj_out", h, q.d.Width(), d, block.LinearOpts{Bias: true, Rep: true}))
}
