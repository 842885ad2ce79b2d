// Package denoisers is the families of models of diffusion: a file a family, which registers itself under
// diffusers' class. What they share is family.Denoiser.
package denoisers

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Keys are those of transformers of diffusion.
type Keys struct {
	Patch []int `key:"latent_patch" class:"fixed" doc:"Frames, rows and columns of latents that become one token."`
	In    int   `key:"in_channels" default:"16" min:"1" max:"65536" class:"fixed" doc:"Channels that a denoiser reads."`
	Out   int   `key:"out_channels" default:"16" min:"1" max:"65536" class:"fixed" doc:"Channels that a denoiser gives: those of its latents."`
	Text  int   `key:"text_dim" default:"4096" min:"1" max:"1048576" class:"fixed" doc:"Width of the states of captions."`
	Freq  int   `key:"freq_dim" default:"256" min:"2" max:"65536" class:"fixed" doc:"Sinusoids of a level's time."`
}

// Shared are the settings that all denoisers have, those of policies too.
var Shared = configs.Declare("denoiser", configs.Rules[Keys]{Check: check, Complete: complete})

// complete gives a denoiser the one token and the one place that its rows have: their places are others.
func complete(m *configs.Model, _ Keys) {
	if m.Denoises() {
		m.Vocab, m.MaxPositions = max(m.Vocab, 1), max(m.MaxPositions, 1)
	}
}

// check reports what no plan can run.
func check(m configs.Model, k Keys, at configs.Report) {
	if !family.Registered(m.ModelType).Denoises() {
		return
	}
	if len(k.Patch) != 3 || k.Patch[0] < 1 || k.Patch[1] < 1 || k.Patch[2] < 1 {
		at("latent_patch", fmt.Sprintf("%v, want three numbers from 1 up: frames, rows and columns", k.Patch),
			"try [1, 2, 2]")
	}
	if k.Freq%2 != 0 {
		at("freq_dim", fmt.Sprintf("%d is odd: sines and cosines come in pairs", k.Freq),
			fmt.Sprintf("try %d", k.Freq+1))
	}
	if m.Hidden != 0 && m.Heads*m.HeadDim != m.Hidden && !m.Has("expert_hidden_size") {
		at("hidden_size", fmt.Sprintf("%d, but %d heads of %d are %d", m.Hidden, m.Heads, m.HeadDim,
			m.Heads*m.HeadDim), "leave head_dim out, or set hidden_size to their product")
	}
}

// Heads is the width of the residual stream, which files of diffusers do not say.
type Heads struct {
	Heads int `key:"num_attention_heads" min:"1"`
	Dim   int `key:"attention_head_dim" min:"1"`
}

// Enter sets the width of the residual stream.
func (w Heads) Enter(d *hf.Decoder) { d.Set("hidden_size", fmt.Sprint(w.Heads*w.Dim)) }

// NewModel is a denoiser of blocks between an embedding and a head.
func NewModel(c configs.Model, d *family.Denoiser) *family.Model {
	m := &family.Model{Family: c.ModelType, Denoiser: d, Ports: map[string]family.Port{"x": {Width: c.Hidden}},
		Source: func(name string) family.Source { return family.Source{Name: name} }, Spec: family.Spec{
			Layers: c.Layers, Hidden: c.Hidden, Inter: c.Intermediate, Heads: c.Heads, KV: c.Heads, HeadDim: c.HeadDim,
			Vocab: 1, Eps: c.NormEps, Act: c.Act, InitStd: c.InitRange, Rope: block.Rope{Dim: c.HeadDim, Theta: 10000}}}
	m.Modalities = []family.Modality{d.Modality()}
	return m
}

// TimeMLP is diffusers' TimestepEmbedding of features [levels in]: a linear layer, SiLU and another.
func TimeMLP(r *block.Rec, name string, x *grad.Value, out, in int) *grad.Value {
	whole := block.LinearOpts{Bias: true, Rep: true}
	return r.Linear(name+".linear_2", r.T.Act(r.Linear(name+".linear_1", x, out, in, whole), kernels.SiLU), out, out,
		whole)
}

// Shift is x [levels n·d] with a parameter [n d] added to every row.
func Shift(r *block.Rec, name string, x *grad.Value, n, d int) *grad.Value {
	levels := x.Shape[0]
	ones := make([]float32, levels*n*d)
	for i := range ones {
		ones[i] = 1
	}
	table := r.T.View(r.T.Param(name, []int{n, d}, -1, 1, true), 1, n*d)
	return r.T.Gate(x, r.T.ConstOf("dif.ones", ones, levels, n*d), table, r.T.ConstI32("dif.first", []int32{0}))
}

// PlainNorm is a layer norm without parameters, as diffusers' FP32LayerNorm and AdaLayerNorm have.
func PlainNorm(eps float64) grad.Modulation {
	return grad.Modulation{Norm: kernels.LayerRows, Eps: eps, Plus: 1}
}

// pairs is what a token of a sequence of n multiplies with others, over the weights of a block that it passes.
func pairs(c configs.Model) func(n int) float64 {
	return func(n int) float64 {
		d := c.Hidden
		return float64(2*n*d) / float64(4*d*d+2*d*max(c.Intermediate, 4*d))
	}
}

// Zeroed begins parameters whose names have one of the given parts with zeros, so that blocks pass their
// rows on and the model gives nothing: as in DiT (arXiv:2212.09748, §3.2).
func Zeroed(name string, parts ...string) family.Start {
	zero := float32(0)
	for _, p := range parts {
		if strings.Contains(name, p) {
			return family.Start{Value: &zero}
		}
	}
	return family.Start{}
}
