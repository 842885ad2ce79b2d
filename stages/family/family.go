package family

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/block"
)

// Family turns a configuration into a model. Its claims are the parameter counts of the published sizes, which are part of
// configs/models.
type Family struct {
	ModelType string // Hugging Face's model_type
	Paper     string
	// HF says how config.json maps to configs.Model; Composed does for a family with a vision tower, and is nil for the others.
	HF       hf.Family
	Composed *hf.Composed
	// Loong are LoongForge's classes of the decoder, Composition its name of a composed family; empty if it has none.
	Loong       []loong.Decoder
	Composition loong.Composition
	// Build makes the model of a checked configuration.
	Build func(c configs.Model) *Model
}

var all = map[string]Family{}

func register(f Family) struct{} {
	if _, dup := all[f.ModelType]; dup {
		panic("family: " + f.ModelType + " registered twice")
	}
	all[f.ModelType] = f
	if f.Composed != nil {
		hf.RegisterComposed(f.ModelType, *f.Composed)
	} else {
		hf.Register(f.ModelType, f.HF)
	}
	for _, d := range f.Loong {
		d.Family = f.ModelType
		loong.RegisterDecoder(d)
	}
	if c := f.Composition; c.Name != "" {
		c.Family = f.ModelType
		loong.RegisterComposition(c)
	}
	return struct{}{}
}

// Names lists the families in order.
func Names() []string { return slices.Sorted(maps.Keys(all)) }

// Build makes the model that a configuration describes; seqLen is the length trained on.
func Build(c configs.Model, seqLen int) (*Model, error) {
	f, ok := all[c.ModelType]
	if !ok {
		return nil, fmt.Errorf("model_type %q: unknown, have %v", c.ModelType, Names())
	}
	m := f.Build(c)
	m.Config = c
	m.Spec.Rope.Length = seqLen
	return m, m.Spec.Check()
}

// spec is what all families share.
func spec(c configs.Model) Spec {
	return Spec{Layers: c.Layers, Hidden: c.Hidden, Inter: c.Intermediate, Heads: c.Heads, KV: c.KVHeads, HeadDim: c.HeadDim, Vocab: c.Vocab,
		QKVBias: c.AttentionBias, QKNorm: c.QKNorm, Tie: c.TieEmbeddings, Eps: c.NormEps, Rope: rope(c), MTP: c.MTPLayers, InitStd: c.InitRange}
}

func rope(c configs.Model) block.Rope {
	s := c.RopeScaling
	r := block.Rope{Dim: c.HeadDim, Theta: c.RopeTheta, Type: s.Type, Factor: s.Factor, Low: s.LowFreqFactor, High: s.HighFreqFactor,
		Original: s.OriginalMax, Max: c.MaxPositions, BetaFast: s.BetaFast, BetaSlow: s.BetaSlow, AttnFactor: s.AttentionFactor, MScale: s.MScale, MScaleAll: s.MScaleAllDim,
		Sections: s.Sections, Interleaved: s.Interleaved}
	if r.Original == 0 {
		r.Original = c.MaxPositions
	}
	return r
}
