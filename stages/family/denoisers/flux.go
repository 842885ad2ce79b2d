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

// fluxKeys are the keys that Flux alone has.
type fluxKeys struct {
	Singles int  `key:"num_single_layers" default:"38" min:"0" max:"65536" class:"fixed" doc:"Blocks behind those of two streams, in which captions and latents share weights."`
	Pooled  int  `key:"pooled_projection_dim" default:"768" min:"1" max:"65536" class:"fixed" doc:"Width of a caption's pooled row."`
	Guides  bool `key:"guidance_embeds" default:"false" class:"fixed" doc:"The model is told a guidance, as one that was distilled from guided ones."`
}

var fluxPart = configs.Declare("flux", configs.Rules[fluxKeys]{})

// Flux.1 (github.com/black-forest-labs/flux): blocks of two streams, and behind them blocks in which both
// share weights and attention stands beside the MLP.
var _ = family.Register(family.Family{ModelType: "FluxTransformer2DModel", HF: hf.Family{
	Class: "FluxTransformer2DModel", Diffusers: true, Has: []string{"latent_patch", "in_channels", "text_dim",
		"axes_dims_rope", "num_single_layers", "pooled_projection_dim", "guidance_embeds"}, Fixed: map[string]string{
		"hidden_act": `"gelu_pytorch_tanh"`}, Absent: map[string]string{"num_attention_heads": "24", "head_dim": "128",
		"num_hidden_layers": "19", "num_single_layers": "38", "axes_dims_rope": "[16, 56, 56]", "rms_norm_eps": "1e-6"},
	Alias: map[string]string{"attention_head_dim": "head_dim", "num_layers": "num_hidden_layers",
		"joint_attention_dim": "text_dim"}, Only: map[string]string{"patch_size": "1"}, Idle: []string{"out_channels"},
	Omit: []string{"latent_patch", "rms_norm_eps"}, Own: []hf.Own{hf.Keys(Heads{Heads: 24, Dim: 128}, Heads.Enter),
		hf.Keys(fluxFile{In: 64, Heads: 24, Dim: 128}, fluxFile.enter)},
	Write: func(m hf.Values, out map[string]any) { out["in_channels"] = 4 * m.Int("in_channels") }},
	Build: func(c configs.Model) *family.Model { return newFlux(c).model() }})

// fluxFile are what files say of latents, which pipelines pack in squares of two.
type fluxFile struct {
	In    int  `key:"in_channels" min:"1"`
	Out   *int `key:"out_channels"`
	Heads int  `key:"num_attention_heads" min:"1"`
	Dim   int  `key:"attention_head_dim" min:"1"`
}

func (k fluxFile) enter(d *hf.Decoder) {
	if k.In%4 != 0 || k.Out != nil && *k.Out != k.In {
		d.Fail("in_channels", fmt.Sprintf("%d, want those of squares of two by two latents, as many as are given",
			k.In), "")
		return
	}
	d.Set("in_channels", fmt.Sprint(k.In/4))
	d.Set("latent_patch", "[1, 2, 2]")
	d.Set("intermediate_size", fmt.Sprint(4*k.Heads*k.Dim))
}

// newFlux is a model of the family.
func newFlux(c configs.Model) mmdit {
	k, own := Shared.Of(c), fluxPart.Of(c)
	q := mmdit{c: c, k: k, axes: [3]int(turning.Of(c).Axes), names: fluxNames, x: "x_embedder",
		text: "context_embedder", last: own.Singles == 0, d: &family.Denoiser{Patch: [3]int(k.Patch), Channels: k.In,
			Texts: k.Text, Joint: true, Pipeline: "FluxPipeline", Pooled: own.Pooled, Guided: own.Guides, Even: true}}
	q.time = func(r *block.Rec, q *mmdit, env map[string]*grad.Value) *grad.Value {
		const name = "time_text_embed."
		e := TimeMLP(r, name+"timestep_embedder", q.d.Features(r, features/2, 1), c.Hidden, features)
		if own.Guides {
			e = r.T.Add(e, TimeMLP(r, name+"guidance_embedder", q.d.GuideFeatures(r, features/2), c.Hidden, features))
		}
		return r.T.Add(e, TimeMLP(r, name+"text_embedder", q.d.Pools(r, env), c.Hidden, own.Pooled))
	}
	q.more = func(m *family.Model) {
		for i := range own.Singles {
			m.Add(family.Block{Name: fmt.Sprintf("single_transformer_blocks.%d", i),
				Takes: []string{"x", "temb", "text"}, Gives: []string{"x", "text"}, Recompute: true, Weight: 0.6,
				Pairs: pairs(c), Record: func(r *block.Rec, env map[string]*grad.Value) {
					q.single(r, i, i == own.Singles-1, env)
				}})
		}
	}
	return q
}

// fluxNames are the parameters of both streams of block i, latents first.
func fluxNames(i int) [2]stream {
	name := fmt.Sprintf("transformer_blocks.%d.", i)
	s := qwenNames(i)
	s[0].mod, s[0].mlp, s[1].mod, s[1].mlp = name+"norm1.linear", name+"ff", name+"norm1_context.linear",
		name+"ff_context"
	return s
}

// single is block i of those with one set of weights for both streams.
func (q mmdit) single(r *block.Rec, i int, last bool, env map[string]*grad.Value) {
	t, d, name := r.T, q.c.Hidden, fmt.Sprintf("single_transformer_blocks.%d.", i)
	mods := r.Linear(name+"norm.linear", t.Act(env["temb"], kernels.SiLU), 3*d, d,
		block.LinearOpts{Bias: true, Rep: true})
	of := func(k int) *grad.Value { return t.Columns(mods, k*d, d) }
	both := [2]*stream{{x: env["x"], at: q.d.Level(r)}, {x: env["text"], at: q.d.TextLevel(r)}}
	var hs, qs, ks, vs [2]*grad.Value
	for j, s := range both {
		s.q, s.k, s.v = name+"attn.to_q", name+"attn.to_k", name+"attn.to_v"
		s.normQ, s.normK = name+"attn.norm_q", name+"attn.norm_k"
		hs[j] = t.Modulate(s.x, of(1), of(0), s.at, PlainNorm(1e-6))
		qs[j], ks[j], vs[j] = q.heads(r, s, hs[j], j == 1)
	}
	k, v, cuK := q.d.Together(r, ks[1], ks[0]), q.d.Together(r, vs[1], vs[0]), q.d.JointCu(r)
	for j, s := range both {
		cu, place := r.Cu(), "residual"
		if j == 1 {
			if last {
				continue
			}
			cu, place = q.d.TextCu(r), ""
		}
		o := t.Flat(t.Attention(qs[j], k, v, cu, cuK, grad.AttentionConfig{
			Scale: 1 / math.Sqrt(float64(q.c.HeadDim)), Tokens: j == 0}))
		h := t.Act(r.Linear(name+"proj_mlp", hs[j], 4*d, d, block.LinearOpts{Bias: true}), kernels.GELUTanh)
		joined := t.Concat(1, t.WholeWidth(o), t.WholeWidth(h))
		y := r.Linear(name+"proj_out", joined, d, 5*d, block.LinearOpts{Bias: true, Row: true, Unit: q.c.HeadDim})
		s.x = t.Gate(s.x, t.Place(place, y), of(2), s.at)
	}
	env["x"], env["text"] = both[0].x, both[1].x
}
