package denoisers

import (
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// wanKeys are the keys that Wan alone has.
type wanKeys struct {
	CrossNorm bool `key:"cross_attn_norm" default:"true" class:"fixed" doc:"What reads the caption is normed first."`
	Captions  int  `key:"text_rows" default:"512" min:"0" max:"65536" class:"fixed" unit:"tokens" doc:"Rows that captions are padded to with zeros, which are attended to; 0 leaves them as long as they are."`
}

var wanPart = configs.Declare("wan", configs.Rules[wanKeys]{})

// Wan 2.1 and 2.2, text to video (arXiv:2503.20314): every block modulates its rows by the level of noise,
// attends to all rows of the clip and then to its caption.
var _ = family.Register(family.Family{ModelType: "WanTransformer3DModel", Paper: "2503.20314",
	HF: hf.Family{Class: "WanTransformer3DModel", Diffusers: true,
		Has: []string{"latent_patch", "in_channels", "out_channels", "text_dim", "freq_dim",
			"cross_attn_norm", "text_rows"},
		Fixed: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`},
		Absent: map[string]string{"latent_patch": "[1, 2, 2]", "num_attention_heads": "40", "head_dim": "128",
			"num_hidden_layers": "40", "intermediate_size": "13824", "rms_norm_eps": "1e-6"},
		Alias: map[string]string{"patch_size": "latent_patch", "attention_head_dim": "head_dim",
			"ffn_dim": "intermediate_size", "num_layers": "num_hidden_layers", "eps": "rms_norm_eps"},
		Only: map[string]string{"qk_norm": `"rms_norm_across_heads"`},
		Idle: []string{"rope_max_seq_len"},
		Write: func(m hf.Values, out map[string]any) {
			if m.Int("text_rows") == 512 { // as pipelines of diffusers pad; another number is a key of ours
				delete(out, "text_rows")
			}
		},
		Own: []hf.Own{hf.Keys(width{Heads: 40, Dim: 128}, width.enter)}},
	Build: func(c configs.Model) *family.Model { return newWan(c).model() }})

// wan is a model of the family.
type wan struct {
	c configs.Model
	k Keys
	o wanKeys
	d *family.Denoiser
}

func newWan(c configs.Model) wan {
	k, o := keys.Of(c), wanPart.Of(c)
	return wan{c, k, o, &family.Denoiser{Patch: [3]int(k.Patch), Channels: k.In, Texts: k.Text,
		Pipeline: "WanPipeline", TextRows: o.Captions}}
}

func (w wan) model() *family.Model {
	m := model(w.c, w.d)
	m.Source, m.Initial = w.source, w.initial
	hidden := w.c.Hidden
	m.Ports["text"] = family.Port{Width: hidden, Rows: family.Captions, Whole: true}
	m.Ports["temb"] = family.Port{Width: hidden, Rows: family.Levels, Whole: true}
	m.Ports["mod"] = family.Port{Width: 6 * hidden, Rows: family.Levels, Whole: true}
	m.Add(family.Block{Name: "condition_embedder", Gives: []string{"x", "temb", "mod", "text"}, Weight: 0.1,
		Record: w.embed})
	for i := range w.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("blocks.%d", i), Takes: []string{"x", "mod", "text"},
			Gives: []string{"x"}, Recompute: true, Weight: 1, Pairs: w.pairs,
			Record: func(r *block.Rec, env map[string]*grad.Value) { w.block(r, i, env) }})
	}
	m.Add(family.Block{Name: "proj_out", Takes: []string{"x", "temb"}, Weight: 0.1, Record: w.head})
	return m
}

// pairs is what a token of a clip of n multiplies with others, over the weights of a block that it passes.
func (w wan) pairs(n int) float64 {
	d := w.c.Hidden
	return float64(2*n*d) / float64(6*d*d+2*d*w.c.Intermediate)
}

// embed makes rows of noisy latents, and of the level and the caption what every block reads.
func (w wan) embed(r *block.Rec, env map[string]*grad.Value) {
	const name = "condition_embedder"
	t, d, whole := r.T, w.c.Hidden, block.LinearOpts{Bias: true, Rep: true}
	env["x"] = t.Place("residual", r.Linear("patch_embedding", w.d.Noisy(r), d, w.d.Width(), whole))
	e := timed(r, name+".time_embedder", w.d.Features(r, w.k.Freq/2, 1), d, w.k.Freq)
	env["temb"] = e
	env["mod"] = r.Linear(name+".time_proj", t.Act(e, kernels.SiLU), 6*d, d, whole)
	h := r.Linear(name+".text_embedder.linear_1", w.d.Captions(r, env), d, w.k.Text, whole)
	env["text"] = r.Linear(name+".text_embedder.linear_2", t.Act(h, kernels.GELUTanh), d, d, whole)
}

// block is block i: attention among rows, to the caption, and an MLP. The first and the last are scaled,
// shifted and gated by the level; the second is not.
func (w wan) block(r *block.Rec, i int, env map[string]*grad.Value) {
	t, d, name, at := r.T, w.c.Hidden, fmt.Sprintf("blocks.%d", i), w.d.Level(r)
	mod := shifted(r, name+".scale_shift_table", env["mod"], 6, d)
	of := func(k int) *grad.Value { return t.Columns(mod, k*d, d) }
	x := env["x"]
	h := t.Modulate(x, of(1), of(0), at, plain(w.c.NormEps))
	h = t.Place("residual", w.attention(r, name+".attn1", h, h, r.Cu(), true))
	x = t.Gate(x, h, of(2), at)
	h = x
	if w.o.CrossNorm {
		h = r.LayerNorm(name+".norm2", x, d, w.c.NormEps)
	}
	x = t.Place("residual", t.Add(x, w.attention(r, name+".attn2", h, env["text"], w.d.TextCu(r), false)))
	h = t.Modulate(x, of(4), of(3), at, plain(w.c.NormEps))
	h = r.Linear(name+".ffn.net.0.proj", h, w.c.Intermediate, d, block.LinearOpts{Bias: true})
	h = r.Linear(name+".ffn.net.2", t.Act(h, kernels.GELUTanh), d, w.c.Intermediate, block.LinearOpts{Bias: true,
		Row: true})
	env["x"] = t.Gate(x, t.Place("residual", h), of(5), at)
}

// attention is that of rows x to rows y, which turn by their places if they are x. Queries and keys are
// normed over all heads together.
func (w wan) attention(r *block.Rec, name string, x, y, cu *grad.Value, self bool) *grad.Value {
	t, d, n := r.T, w.c.Hidden, w.c.HeadDim
	proj := func(part, norm string, of *grad.Value) *grad.Value {
		h := r.Linear(name+part, of, d, d, block.LinearOpts{Bias: true, Unit: n})
		if norm != "" {
			h = t.Like(r.Norm(name+norm, h, d, w.c.NormEps), h)
		}
		return t.Heads(h, n)
	}
	q, k, v := proj(".to_q", ".norm_q", x), proj(".to_k", ".norm_k", y), proj(".to_v", "", y)
	if self {
		hw := 2 * (n / 6)
		cos, sin := w.d.Turned(r, "dif.pos", r.Shape.Rows, w.c.RopeTheta, [3]int{n - 2*hw, hw, hw})
		q, k = t.Rope(q, cos, sin, true), t.Rope(k, cos, sin, true)
	}
	o := t.Attention(q, k, v, r.Cu(), cu, grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(n)), Tokens: self})
	return r.Linear(name+".to_out.0", t.Flat(o), d, d, block.LinearOpts{Bias: true, Row: true, Unit: n})
}

// head is the last norm, shifted and scaled by the level, and the numbers of each token.
func (w wan) head(r *block.Rec, env map[string]*grad.Value) {
	t, d := r.T, w.c.Hidden
	mod := shifted(r, "scale_shift_table", t.Concat(1, env["temb"], env["temb"]), 2, d)
	shift, scale := t.Columns(mod, 0, d), t.Columns(mod, d, d)
	h := t.Modulate(env["x"], scale, shift, w.d.Level(r), plain(w.c.NormEps))
	w.d.Predicted(r, env, r.Linear("proj_out", h, w.d.Width(), d, block.LinearOpts{Bias: true, Rep: true}))
}

// source says where parameters lie in diffusers' files. A token's numbers are read with the channel varying
// slowest and given with the channel varying fastest; here both are as they are read.
func (w wan) source(name string) family.Source {
	s := family.Source{Name: name}
	switch {
	case name == "patch_embedding.weight":
		s.Tail = append([]int{w.k.In}, w.k.Patch...)
	case strings.HasSuffix(name, "scale_shift_table"):
		s.Lead = 1
	case strings.HasPrefix(name, "proj_out."):
		taps := w.d.Width() / w.d.Channels
		for i := range w.d.Width() {
			at := i%taps*w.d.Channels + i/taps
			s.Rows = append(s.Rows, [2]int{at, at + 1})
		}
	}
	return s
}

// initial begins a model that gives nothing, whose blocks pass their rows on: as in DiT (arXiv:2212.09748, §3.2).
func (w wan) initial(name string) family.Start {
	zero := float32(0)
	switch {
	case strings.HasPrefix(name, "proj_out."), strings.HasPrefix(name, "condition_embedder.time_proj."):
		return family.Start{Value: &zero}
	case strings.HasSuffix(name, "scale_shift_table"):
		return family.Start{Std: 1 / math.Sqrt(float64(w.c.Hidden))}
	}
	return family.Start{}
}
