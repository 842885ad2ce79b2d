package family

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/source"
)

// Family turns a configuration into a model. Its claims are the parameter counts of the published sizes,
// which are part of configs/models.
// In the words of the field: causal language model.
type Family struct {
	ModelType string // Hugging Face's model_type
	Paper     string
	// HF says how config.json maps to configs.Model; Composed does for a family with a vision tower, and is
	// nil for the others.
	HF       hf.Family
	Composed *hf.Composed
	// Loong are LoongForge's classes of the decoder, Composition its name of a composed family; empty if it has none.
	Loong       []loong.Decoder
	Composition loong.Composition
	// Spec changes what spec makes of a checked configuration into what the family's layers are; nil for nothing.
	Spec func(c configs.Model, s *Spec)
	// Source says where a logical parameter lies in a checkpoint of the decoder; nil where the names are
	// the logical ones.
	Source func(c configs.Model) func(name string) Source
	// Other is the same of a second layout in which checkpoints come; nil for none.
	Other func(c configs.Model) func(name string) Source
	// Build makes the model of a checked configuration; nil is a decoder by Spec and Source.
	Build func(c configs.Model) *Model
}

var all = map[string]Family{}

// Registered is a family by its name; without one of it, the zero Family.
func Registered(modelType string) Family { return families()[modelType] }

// families are the registered ones.
func families() map[string]Family {
	source.Filled()
	return all
}

// own are families that runs of this process have described, by the text of the description.
var (
	own   = map[string]Family{}
	ownMu sync.Mutex
)

// Describe enters a family that a text describes: models that say so by the text are built by it.
func Describe(text string, f Family) {
	ownMu.Lock()
	defer ownMu.Unlock()
	f = f.whole()
	own[text] = f
	decoders := maps.Clone(hf.Families())
	decoders[f.ModelType] = f.HF
	hf.Replace(decoders)
}

// of is the family of a configuration's decoder.
func of(c configs.Model, name string) (Family, bool) {
	if c.Description != "" {
		ownMu.Lock()
		defer ownMu.Unlock()
		if f, ok := own[c.Description]; ok && f.ModelType == name {
			return f, true
		}
	}
	f, ok := families()[name]
	return f, ok
}

// whole fills in what a family does not say.
func (f Family) whole() Family {
	if f.Build == nil {
		f.Build = f.decoder
	}
	f.HF = f.HF.AnyAct()
	return f
}

// Register enters a family, before a configuration is read.
func Register(f Family) struct{} {
	if _, dup := all[f.ModelType]; dup {
		panic("family: " + f.ModelType + " registered twice")
	}
	f = f.whole()
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

// decoder builds a language model by Spec and Source.
func (f Family) decoder(c configs.Model) *Model {
	m := Decoder(f.ModelType, SpecOf(c))
	if f.Source != nil {
		m.Source = f.Source(c)
	}
	if f.Other != nil {
		m.Other = f.Other(c)
	}
	return m
}

func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Names lists the families in order.
func Names() []string { return names(families()) }

// Build makes the model that a configuration describes; seqLen is the length trained on.
func Build(c configs.Model, seqLen int) (*Model, error) {
	f, ok := of(c, c.ModelType)
	if !ok {
		return nil, fmt.Errorf("model_type %q: unknown, have %v", c.ModelType, Names())
	}
	m := f.Build(c)
	if m.Config = c; f.HF.Unturned {
		m.Spec.Rope.Dim = 0
	}
	m.Spec.Rope.Length, m.Spec.LocalRope.Length = seqLen, seqLen
	return m, m.Spec.Check()
}

// Denoises reports whether the family is of models of diffusion.
func (f Family) Denoises() bool { return f.HF.Diffusers }
