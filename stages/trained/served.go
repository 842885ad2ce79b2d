package trained

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/sample"
)

// Stops are the tokens that end a text or a turn.
func (m *Trained) Stops() []int32 {
	out := slices.Clone(m.stop)
	if id, ok := m.Tokenizer.TokenID(m.TokenizerConfig.EOS); ok && !slices.Contains(out, id) {
		out = append(out, id)
	}
	return out
}

// Template is the chat template: the one that the run was trained with, or that of the tokenizer.
func (m *Trained) Template() (*token.Template, error) {
	if m.Cfg != nil {
		return setup.Template(m.Cfg, m.Tokenizer, m.TokenizerConfig)
	}
	if m.TokenizerConfig.ChatTemplate == "" {
		return nil, fmt.Errorf("the tokenizer has no chat template")
	}
	return token.NewTemplate(m.TokenizerConfig.ChatTemplate, m.TokenizerConfig)
}

// Engine opens the model for many requests at once, on a processor with all its threads; the second result
// closes both. A draft model, nil for none, has the same tokens; its weights are copied.
func (m *Trained) Engine(d tensor.DType, o sample.EngineOptions, draft *Trained) (*sample.Engine, func(), error) {
	b, err := kernels.Open(kernels.CPU, kernels.Options{})
	if err != nil {
		return nil, nil, err
	}
	if draft != nil {
		if err = m.SpeaksAs(draft.Tokenizer, "the draft model"); err == nil {
			o.Draft, err = draft.Generator(b, d)
		}
	}
	var e *sample.Engine
	if err == nil {
		e, err = m.engine(b, d, o)
	}
	if err != nil {
		if o.Draft != nil {
			o.Draft.Close()
		}
		kernels.Close(b)
		return nil, nil, err
	}
	return e, func() { e.Close(); kernels.Close(b) }, nil
}

// engine makes an engine on a backend.
func (m *Trained) engine(b kernels.Backend, d tensor.DType, o sample.EngineOptions) (*sample.Engine, error) {
	g, err := m.Generator(b, d)
	if err != nil {
		return nil, err
	}
	return m.engineOf(g, o)
}

// engineOf makes an engine on a generator, which is closed if that fails.
func (m *Trained) engineOf(g *sample.Generator, o sample.EngineOptions) (*sample.Engine, error) {
	if most := m.Model.Config.MaxPositions; most > 0 && (o.Context == 0 || o.Context > most) {
		o.Context = most
	}
	e, err := sample.NewEngine(g, o)
	if err != nil {
		g.Close()
	}
	return e, err
}

// SpeaksAs refuses another model, whose name is given, where its numbers of tokens stand for others.
func (m *Trained) SpeaksAs(b *token.Tokenizer, whose string) error {
	a := m.Tokenizer
	for id := range int32(max(a.VocabSize(), b.VocabSize())) {
		x, _ := a.Token(id)
		if y, _ := b.Token(id); x != y {
			return exit.Usagef("token %d is %q to the model and %q to %s: they have no common vocabulary", id, x, y, whose)
		}
	}
	return nil
}
