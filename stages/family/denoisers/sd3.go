package denoisers

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// sd3Keys are the keys that Stable Diffusion 3 alone has.
type sd3Keys struct {
	Most int   `key:"pos_embed_max_size" default:"96" min:"1" max:"4096" class:"fixed" unit:"tokens" doc:"Rows and columns of the table of places, in whose middle the tokens of an image lie."`
	Dual []int `key:"dual_attention_layers" class:"fixed" doc:"Blocks in which latents attend to themselves as well, by weights of their own."`
}

var sd3Part = configs.Declare("sd3", configs.Rules[sd3Keys]{
	Check: func(m configs.Model, k sd3Keys, at configs.Report) {
		if m.Has("pos_embed_max_size") && m.HeadDim*m.Heads%4 != 0 {
			at("head_dim", fmt.Sprintf("%d heads of %d have a width that is no multiple of four, which sines and cosines of "+
				"two axes want", m.Heads, m.HeadDim), "take a multiple of four")
		}
		for _, i := range k.Dual {
			if i < 0 || m.Layers > 0 && i >= m.Layers {
				at("dual_attention_layers", fmt.Sprintf("%d of %d blocks, which count from 0", i, m.Layers), "")
			}
		}
	}})

// Stable Diffusion 3 and 3.5 (arXiv:2403.03206): captions are a stream of their own, with weights of its own; places
// are added to latents and turn nothing, and the last block's captions are read and not passed on.
var _ = family.Register(family.Family{ModelType: "SD3Transformer2DModel", Paper: "2403.03206", HF: hf.Family{
	Class: "SD3Transformer2DModel", Diffusers: true, Has: []string{"latent_patch", "in_channels", "out_channels",
		"text_dim", "pooled_projection_dim", "sample_size", "pos_embed_max_size", "dual_attention_layers", "qk_norm"},
	Fixed: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`}, Absent: map[string]string{"num_attention_heads": "18",
		"head_dim": "64", "num_hidden_layers": "18", "rms_norm_eps": "1e-6", "pooled_projection_dim": "2048",
		"sample_size": "128"}, Alias: map[string]string{"attention_head_dim": "head_dim", "num_layers": "num_hidden_layers",
		"joint_attention_dim": "text_dim"}, Omit: []string{"latent_patch", "rms_norm_eps"},
	Prepare: func(raw hf.Raw) {
		switch string(raw["qk_norm"]) { // diffusers names the norm; the key that others have says whether there is one
		case `"rms_norm"`:
			raw["qk_norm"] = []byte("true")
		case "null":
			delete(raw, "qk_norm")
		}
	},
	Own: []hf.Own{hf.Keys(Heads{Heads: 18, Dim: 64}, Heads.Enter),
		hf.Keys(sd3File{Patch: 2, Heads: 18, Dim: 64, Captions: 1152}, sd3File.enter)},
	Write: func(m hf.Values, out map[string]any) {
		out["patch_size"], out["caption_projection_dim"] = m["latent_patch"].([]int)[1], m.Int("hidden_size")
		if out["qk_norm"] = nil; m["qk_norm"] == true {
			out["qk_norm"] = "rms_norm"
		}
	}}, Build: func(c configs.Model) *family.Model { return newSD3(c).model() }})

// sd3File are keys of files that settings follow from.
type sd3File struct {
	Patch    int `key:"patch_size" min:"1" max:"64"`
	Heads    int `key:"num_attention_heads" min:"1"`
	Dim      int `key:"attention_head_dim" min:"1"`
	Captions int `key:"caption_projection_dim" min:"1"`
}

func (k sd3File) enter(d *hf.Decoder) {
	if k.Captions != k.Heads*k.Dim {
		d.Fail("caption_projection_dim", fmt.Sprintf("%d, want the %d of all heads, which rows of captions share",
			k.Captions, k.Heads*k.Dim), "")
	}
	d.Set("intermediate_size", fmt.Sprint(4*k.Heads*k.Dim))
	d.Set("latent_patch", fmt.Sprintf("[1, %d, %d]", k.Patch, k.Patch))
}

// sd3 is a model of the family.
type sd3 struct {
	mmdit
	o sd3Keys
	// places a row and column of the table counts as one of an image of the usual size
	step float64
}

func newSD3(c configs.Model) sd3 {
	k, o := Shared.Of(c), sd3Part.Of(c)
	pooled, side := fluxPart.Of(c).Pooled, unetPart.Of(c).Side
	m := sd3{o: o, step: float64(side/k.Patch[1]) / float64(o.Most)}
	m.mmdit = mmdit{c: c, k: k, names: sd3Names(c.QKNorm), last: true, short: true, added: true, dual: o.Dual,
		d: &family.Denoiser{Patch: [3]int(k.Patch), Channels: k.In,
			Texts: k.Text, Joint: true, Pipeline: "StableDiffusion3Pipeline", Pooled: pooled, At: m.middle}}
	m.time = func(r *block.Rec, q *mmdit, env map[string]*grad.Value) *grad.Value {
		const name = "time_text_embed."
		e := TimeMLP(r, name+"timestep_embedder", q.d.Features(r, features/2, 1), c.Hidden, features)
		return r.T.Add(e, TimeMLP(r, name+"text_embedder", q.d.Pools(r, env), c.Hidden, pooled))
	}
	return m
}

// sd3Names are Flux's, without norms of queries and keys where the model has none.
func sd3Names(normed bool) func(i int) [2]stream {
	return func(i int) [2]stream {
		both := fluxNames(i)
		for j := range both {
			if !normed {
				both[j].normQ, both[j].normK = "", ""
			}
		}
		return both
	}
}

func (m sd3) model() *family.Model {
	out := m.mmdit.model()
	out.Blocks[0].Name, out.Blocks[0].Record = "pos_embed", m.embed
	start := out.Initial
	out.Initial = func(name string) family.Start {
		if name == sd3Table {
			return family.Start{At: m.place}
		}
		return start(name)
	}
	out.Source = func(name string) family.Source {
		s := family.Source{Name: name}
		switch {
		case name == "pos_embed.proj.weight":
			s.Tail = append([]int{m.d.Channels}, m.k.Patch[1:]...)
		case name == sd3Table:
			s.Lead = 1
		case strings.HasPrefix(name, "proj_out."):
			s.Rows = Fastest(m.d)
		}
		return s
	}
	return out
}

// middle are the places of an image's tokens in the table.
func (m sd3) middle(g [3]int) (out []int32) {
	for t := range g[0] {
		for y := range g[1] {
			for x := range g[2] {
				out = append(out, int32(t), int32((m.o.Most-g[1])/2+y), int32((m.o.Most-g[2])/2+x))
			}
		}
	}
	return out
}

// sd3Table is the table of places, which files have. It follows from the configuration, so that it is written, and its
// numbers are computed where they are needed.
const sd3Table = "pos_embed.pos_embed"

// frequencies are those of an axis: a quarter of a row's numbers are its sines, and another its cosines.
func (m sd3) frequencies() []float32 {
	out := make([]float32, m.c.Hidden/4)
	for i := range out {
		out[i] = float32(m.step * math.Pow(10000, -float64(i)/float64(len(out))))
	}
	return out
}

// place is a number of the table: columns come before rows, and of each sines before cosines.
func (m sd3) place(at int) float32 {
	d, n := m.c.Hidden, m.c.Hidden/4
	row, i := at/d, at%d
	place := [2]int{row % m.o.Most, row / m.o.Most}[i/(2*n)]
	angle := float64(place) * m.step * math.Pow(10000, -float64(i%n)/float64(n))
	if i/n%2 == 0 {
		return float32(math.Sin(angle))
	}
	return float32(math.Cos(angle))
}

func (m sd3) embed(r *block.Rec, env map[string]*grad.Value) {
	t, d, whole := r.T, m.c.Hidden, block.LinearOpts{Bias: true, Rep: true}
	still := t.Still()
	t.Param(sd3Table, []int{m.o.Most * m.o.Most, d}, -1, 1, false)
	still()
	inv, n := m.frequencies(), d/4
	axis := slices.Concat(slices.Repeat([]int32{2}, n), slices.Repeat([]int32{1}, n))
	cos, sin := t.RopeAxes(t.Data("dif.pos", tensor.I32, r.Shape.Rows, 3), t.Const("dif.place_freq",
		slices.Concat(inv, inv)), t.ConstI32("dif.place_axis", axis), 1)
	places := t.Concat(1, t.Columns(sin, 0, n), t.Columns(cos, 0, n), t.Columns(sin, n, n), t.Columns(cos, n, n))
	x := r.Linear("pos_embed.proj", m.d.Noisy(r), d, m.d.Width(), whole)
	env["x"] = t.Place("residual", t.Add(x, t.Cast(places)))
	env["text"] = r.Linear("context_embedder", m.d.Captions(r, env), d, m.k.Text, whole)
	env["temb"] = m.time(r, &m.mmdit, env)
}
