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
	Image     int  `key:"image_dim" default:"0" min:"0" max:"65536" class:"fixed" doc:"Width of the features of the image that clips begin with; 0 for a model that reads none."`
	Pictures  int  `key:"image_rows" default:"257" min:"1" max:"65536" class:"fixed" unit:"tokens" doc:"Rows of those features: the patches of an image and one for all of it."`
	Captions  int  `key:"text_rows" default:"512" min:"0" max:"65536" class:"fixed" unit:"tokens" doc:"Rows that captions are padded to with zeros, which are attended to; 0 leaves them as long as they are."`
}

// WanPart are the settings of Wan's blocks, which world-action models have too.
var WanPart = configs.Declare("wan", configs.Rules[wanKeys]{})

// Wan 2.1 and 2.2, text and image to video (arXiv:2503.20314): every block modulates its rows by the level of noise,
// attends to all rows of the clip and then to its caption and to the image that it begins with.
var _ = family.Register(family.Family{ModelType: "WanTransformer3DModel", Paper: "2503.20314", HF: hf.Family{
	Class: "WanTransformer3DModel", Diffusers: true, Has: []string{"latent_patch", "in_channels", "out_channels",
		"text_dim", "freq_dim", "cross_attn_norm", "text_rows", "image_dim", "image_rows"}, Null: []string{"image_dim"},
	Fixed: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`}, Absent: map[string]string{
		"latent_patch": "[1, 2, 2]", "num_attention_heads": "40", "head_dim": "128", "num_hidden_layers": "40",
		"intermediate_size": "13824", "rms_norm_eps": "1e-6"}, Alias: map[string]string{"patch_size": "latent_patch",
		"attention_head_dim": "head_dim", "ffn_dim": "intermediate_size", "num_layers": "num_hidden_layers",
		"eps": "rms_norm_eps"}, Only: map[string]string{"qk_norm": `"rms_norm_across_heads"`},
	Idle: []string{"rope_max_seq_len"}, Write: func(m hf.Values, out map[string]any) {
		if m.Int("text_rows") == 512 { // as pipelines of diffusers pad; another number is a key of ours
			delete(out, "text_rows")
		}
		if m.Int("image_rows") == 257 {
			delete(out, "image_rows")
		}
		if out["added_kv_proj_dim"] = nil; m.Int("image_dim") > 0 {
			out["added_kv_proj_dim"] = m.Int("hidden_size")
		} else {
			out["image_dim"] = nil
		}
	},
	Own: []hf.Own{hf.Keys(Heads{Heads: 40, Dim: 128}, Heads.Enter),
		hf.Keys(wanFile{Heads: 40, Dim: 128}, wanFile.check)}},
	Build: func(c configs.Model) *family.Model { return newWan(c).model() }})

// wan is a model of the family.
type wan struct {
	c configs.Model
	k Keys
	o wanKeys
	d *family.Denoiser
}

func newWan(c configs.Model) wan {
	k, o := Shared.Of(c), WanPart.Of(c)
	d := &family.Denoiser{Patch: [3]int(k.Patch), Channels: k.Out, Texts: k.Text, Pipeline: "WanPipeline",
		TextRows: o.Captions}
	if k.In > k.Out {
		d.Pipeline, d.Given, d.Masks = "WanImageToVideoPipeline", k.In-k.Out, k.In-2*k.Out
	}
	if o.Image > 0 {
		d.Images, d.ImageRows = o.Image, o.Pictures
	}
	return wan{c, k, o, d}
}

// wanFile are keys of files that say of the model's image what follows from others.
type wanFile struct {
	Heads int  `key:"num_attention_heads" min:"1"`
	Dim   int  `key:"attention_head_dim" min:"1"`
	Image *int `key:"image_dim"`
	Added *int `key:"added_kv_proj_dim"`
	Place *int `key:"pos_embed_seq_len"`
}

func (k wanFile) check(d *hf.Decoder) {
	switch {
	case k.Place != nil:
		d.Fail("pos_embed_seq_len", "models that read the first and the last frame are not known", "")
	case (k.Image == nil) != (k.Added == nil), k.Added != nil && *k.Added != k.Heads*k.Dim:
		d.Fail("added_kv_proj_dim", "want the width of all heads beside image_dim, and neither without the other", "")
	}
}

func (w wan) model() *family.Model {
	m := NewModel(w.c, w.d)
	m.Source, m.Initial = w.source, w.initial
	hidden := w.c.Hidden
	m.Ports["text"] = family.Port{Width: hidden, Rows: family.Captions, Whole: true}
	more := []string{}
	if w.o.Image > 0 {
		m.Ports["image"] = family.Port{Width: hidden, Rows: w.d.PictureRows, Whole: true}
		more = append(more, "image")
	}
	m.Ports["temb"] = family.Port{Width: hidden, Rows: family.Levels, Whole: true}
	m.Ports["mod"] = family.Port{Width: 6 * hidden, Rows: family.Levels, Whole: true}
	m.Add(family.Block{Name: "condition_embedder", Gives: append([]string{"x", "temb", "mod", "text"},
		more...), Weight: 0.1, Record: w.embed})
	for i := range w.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("blocks.%d", i), Takes: append([]string{"x", "mod",
			"text"}, more...), Gives: []string{"x"}, Recompute: true, Weight: 1, Pairs: w.pairs,
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
	env["x"] = t.Place("residual", r.Linear("patch_embedding", w.d.Noisy(r), d, w.d.Width()+w.d.GivenWidth(), whole))
	e := TimeMLP(r, name+".time_embedder", w.d.Features(r, w.k.Freq/2, 1), d, w.k.Freq)
	env["temb"] = e
	env["mod"] = r.Linear(name+".time_proj", t.Act(e, kernels.SiLU), 6*d, d, whole)
	h := r.Linear(name+".text_embedder.linear_1", w.d.Captions(r, env), d, w.k.Text, whole)
	env["text"] = r.Linear(name+".text_embedder.linear_2", t.Act(h, kernels.GELUTanh), d, d, whole)
	if w.o.Image == 0 {
		return
	}
	const of = name + ".image_embedder"
	n := w.o.Image
	x, _ := w.d.Pictures(r)
	h = r.Linear(of+".ff.net.0.proj", r.LayerNorm(of+".norm1", x, n, 1e-5), n, n, whole)
	h = r.Linear(of+".ff.net.2", t.Act(h, kernels.GELU), d, n, whole)
	env["image"] = r.LayerNorm(of+".norm2", h, d, 1e-5)
}

// block is block i: attention among rows, to the caption, and an MLP. The first and the last are scaled,
// shifted and gated by the level; the second is not.
func (w wan) block(r *block.Rec, i int, env map[string]*grad.Value) {
	t, d, name, at := r.T, w.c.Hidden, fmt.Sprintf("blocks.%d", i), w.d.Level(r)
	mod := Shift(r, name+".scale_shift_table", env["mod"], 6, d)
	of := func(k int) *grad.Value { return t.Columns(mod, k*d, d) }
	x := env["x"]
	h := t.Modulate(x, of(1), of(0), at, PlainNorm(w.c.NormEps))
	h = t.Place("residual", w.attention(r, name+".attn1", h, h, nil, r.Cu()))
	x = t.Gate(x, h, of(2), at)
	h = x
	if w.o.CrossNorm {
		h = r.LayerNorm(name+".norm2", x, d, w.c.NormEps)
	}
	x = t.Place("residual", t.Add(x, w.attention(r, name+".attn2", h, env["text"], env["image"], w.d.TextCu(r))))
	h = t.Modulate(x, of(4), of(3), at, PlainNorm(w.c.NormEps))
	h = r.Linear(name+".ffn.net.0.proj", h, w.c.Intermediate, d, block.LinearOpts{Bias: true})
	h = r.Linear(name+".ffn.net.2", t.Act(h, kernels.GELUTanh), d, w.c.Intermediate,
		block.LinearOpts{Bias: true, Row: true})
	env["x"] = t.Gate(x, t.Place("residual", h), of(5), at)
}

// attention is that of rows x to rows y, which turn by their places if they are x, plus that to the rows of an image,
// nil for none, by keys and values of their own. Queries and keys are normed over all heads together.
func (w wan) attention(r *block.Rec, name string, x, y, image, cu *grad.Value) *grad.Value {
	t, d, n, self := r.T, w.c.Hidden, w.c.HeadDim, x == y
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
	how := grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(n)), Tokens: self}
	o := t.Attention(q, k, v, r.Cu(), cu, how)
	if image != nil {
		_, cu := w.d.Pictures(r)
		k, v = proj(".add_k_proj", ".norm_added_k", image), proj(".add_v_proj", "", image)
		o = t.Add(o, t.Attention(q, k, v, r.Cu(), cu, how))
	}
	return r.Linear(name+".to_out.0", t.Flat(o), d, d, block.LinearOpts{Bias: true, Row: true, Unit: n})
}

// head is the last norm, shifted and scaled by the level, and the numbers of each token.
func (w wan) head(r *block.Rec, env map[string]*grad.Value) {
	t, d := r.T, w.c.Hidden
	mod := Shift(r, "scale_shift_table", t.Concat(1, env["temb"], env["temb"]), 2, d)
	shift, scale := t.Columns(mod, 0, d), t.Columns(mod, d, d)
	h := t.Modulate(env["x"], scale, shift, w.d.Level(r), PlainNorm(w.c.NormEps))
	w.d.Predicted(r, env, r.Linear("proj_out", h, w.d.Width(), d, block.LinearOpts{Bias: true, Rep: true}))
}

// source says where parameters lie in diffusers' files. A token's numbers are read with the channel varying
// slowest and given with the channel varying fastest; here both are as they are read.
func (w wan) source(name string) family.Source {
	s := family.Source{Name: name}
	switch {
	case name == "patch_embedding.weight":
		s.Tail = append([]int{w.d.Channels + w.d.Given}, w.k.Patch...)
	case strings.HasSuffix(name, "scale_shift_table"):
		s.Lead = 1
	case strings.HasPrefix(name, "proj_out."):
		s.Rows = Fastest(w.d)
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

// Fastest are the rows of a head whose channel varies fastest, for numbers of a token whose channel varies slowest.
func Fastest(d *family.Denoiser) (rows [][2]int) {
	taps := d.Width() / d.Channels
	for i := range d.Width() {
		at := i%taps*d.Channels + i/taps
		rows = append(rows, [2]int{at, at + 1})
	}
	return rows
}
