package trained

import (
	"fmt"
	"io"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/sample"
)

// Chat is a conversation with a trained model, written by its own chat template.
type Chat struct {
	m        *Trained
	template *token.Template
	backend  kernels.Backend
	gen      *sample.Generator
	turns    []dataset.Message
}

// NewChat begins a conversation: with the template that the run was trained with, or that of the tokenizer.
func (m *Trained) NewChat() (c *Chat, err error) {
	if err := m.Speaks(); err != nil {
		return nil, err
	}
	c = &Chat{m: m}
	if c.template, err = m.Template(); err != nil {
		return nil, fmt.Errorf("%w; use --prompt, or name one that has with --tokenizer", err)
	}
	if c.backend, err = m.Backend(); err != nil {
		return nil, err
	}
	if c.gen, err = sample.New(m.Model, m.Lora, tensor.F32, c.backend, tensor.NewPool("chat", 0), m.Fill); err != nil {
		kernels.Close(c.backend)
		return nil, err
	}
	return c, nil
}

// Close gives the model back.
func (c *Chat) Close() {
	c.gen.Close()
	kernels.Close(c.backend)
}

// Say adds a user's turn and writes the model's answer to w as its tokens come; the answer is a turn too.
func (c *Chat) Say(text string, p sample.Params, w io.Writer) (string, Rate, error) {
	c.turns = append(c.turns, dataset.Message{Role: "user", Content: text})
	prompt, err := c.template.Render(c.turns, nil, true, nil)
	if err != nil {
		return "", Rate{}, err
	}
	p.Stop = append(p.Stop, c.m.Stops()...)
	var answer strings.Builder
	rate, err := c.m.write(c.gen, c.m.Tokenizer.Encode(prompt, false), p, io.MultiWriter(w, &answer))
	c.turns = append(c.turns, dataset.Message{Role: "assistant", Content: answer.String()})
	return answer.String(), rate, err
}
