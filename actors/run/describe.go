package run

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/stages/fit"
)

// ModelReport is what a configuration says of its model.
type ModelReport struct {
	File       string           `json:"file,omitempty"`
	Model      string           `json:"model_type"`
	Log        string           `json:"log_dir,omitempty"`
	Parts      string           `json:"parts,omitempty"`
	Parameters int64            `json:"parameters"` // 0 while the vocabulary is not known
	Alone      int64            `json:"-"`          // of the model without parts that have files of their own
	Components map[string]int64 `json:"components,omitempty"`
	Published  string           `json:"published,omitempty"`
	Claim      int64            `json:"published_parameters,omitempty"`
	Why        []string         `json:"differences,omitempty"`
	Notices    []string         `json:"notes,omitempty"`
}

// Describe builds a configuration's model and counts its parameters beside those of the published model that
// file, or the model's own shape, names.
func Describe(cfg *configs.Config, file string) (*ModelReport, error) {
	if cfg.Run.Data.Tokenizer != "" {
		tok, _, err := setup.Tokenizer(cfg)
		if err != nil {
			return nil, err
		}
		if err := cfg.CheckVocab(tok.VocabSize()); err != nil {
			return nil, err
		}
	}
	c := cfg.Model
	hint := cmp.Or(cfg.Run.Model.Name, file)
	r := &ModelReport{File: file, Model: c.ModelType, Log: cfg.Run.Log.Dir, Notices: cfg.Notices}
	if !c.Vision.None() {
		parts := []string{c.Vision.Kind, c.Vision.Projector, c.Text}
		// a projector may be the tower's own
		r.Parts = strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " + ")
	}
	if c.Vocab == 0 {
		name, like, ok := c.Like(hint)
		if !ok { // the decoder's alone
			alone := c
			alone.ModelType, alone.Text, alone.Vision = c.Text, "", configs.Vision{}
			name, like, ok = alone.Like(hint)
		}
		if !ok {
			r.Why = []string{"the vocabulary is the tokenizer's: give --tokenizer DIR to count the parameters"}
			return r, nil
		}
		c.Vocab, cfg.Model.Vocab = like.Vocab, like.Vocab
		r.Why = []string{fmt.Sprintf("counted with the vocabulary of %s, %d: the file leaves it to the "+
			"tokenizer; --tokenizer DIR counts with that", name, like.Vocab)}
	}
	if _, err := layout.FromConfig(cfg); err != nil {
		return nil, err
	}
	m, err := fit.Build(cfg)
	if err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	r.Parameters, r.Alone, r.Components = m.Count(), m.Core().Count(), map[string]int64{}
	for _, p := range m.Params(nil) {
		n := int64(1)
		for _, d := range p.Shape {
			n *= int64(d)
		}
		r.Components[m.Component(p.Name)] += n
	}
	if name, like, ok := c.Like(hint); ok {
		r.Published, r.Claim = fmt.Sprintf("%s, %s", name, like.Source), int64(like.Parameters)
		r.Why = append(r.Why, c.Differences(r.Alone, like)...)
	}
	if unit := cfg.VocabUnit * cfg.Run.Plan.TP; unit > 0 && c.Vocab%unit != 0 {
		pad := unit - c.Vocab%unit
		n := int64(pad) * int64(c.Hidden)
		if !c.TieEmbeddings {
			n *= 2
		}
		r.Why = append(r.Why, fmt.Sprintf("LoongForge pads the vocabulary to %d rows "+
			"(make_vocab_size_divisible_by %d × tp %d), %+d parameters that are never used; here it has %d",
			c.Vocab+pad, cfg.VocabUnit, cfg.Run.Plan.TP, n, c.Vocab))
	}
	return r, nil
}
