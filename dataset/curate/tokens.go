package curate

import (
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token"
)

// tokens: how many ids a text has.
var _ = Register(Kind{Name: "tokens", Doc: "counts the ids of each text by a tokenizer",
	Source: "Datatrove 0.10 TokensCounter", Settings: func() Settings { return &tokens{Column: "token_count"} }})

// tokens is its settings.
type tokens struct {
	Tokenizer string `yaml:"tokenizer"` // the folder of a model
	Column    string `yaml:"column"`
	EOS       bool   `yaml:"count_eos_token"`
	enc       *token.Tokenizer
}

func (t *tokens) Open() (Step, error) {
	if t.Tokenizer == "" {
		return nil, &Fault{"tokenizer", "is not given", "name the folder of a model"}
	}
	var err error
	if t.enc, _, err = token.LoadDir(t.Tokenizer); err != nil {
		return nil, &Fault{"tokenizer", err.Error(), ""}
	}
	return t, nil
}

func (t *tokens) Columns() Columns { return Columns{Writes: []string{t.Column}} }

func (t *tokens) Do(_ *Desk, d *Doc) string {
	ids, err := dataset.Encode(t.enc, d.Text, false)
	if err != nil {
		return "no_tokens"
	}
	n := len(ids)
	if t.EOS {
		n++
	}
	d.Set(t.Column, n)
	return ""
}

// Fingerprint implements Reading.
func (t *tokens) Fingerprint() (string, error) { return FingerprintOf(t.Tokenizer) }
