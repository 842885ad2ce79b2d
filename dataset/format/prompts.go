package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// Prompts to which a run draws answers: {"prompt": text or messages, …}, with further columns for rewards, as "answer".
var _ = dataset.Register(recordKind{name: "prompts", file: "prompts.jsonl", kind: dataset.KindPrompts,
	doc: "prompts as {prompt, answer, …}, to which a run draws answers that a reward judges",
	check: func(d *dataset.Document) error {
		_, err := parsePrompt(d)
		return err
	}}.format())

// promptKeys are the names of a prompt, of which the first that is there counts.
var promptKeys = []string{"prompt", "question", "problem"}

// askedPrompt is the prompt of a record: a text, or messages with the tools that they offer and further
// variables of the template.
type askedPrompt struct {
	text        string
	turns       []dataset.Message
	tools, vars json.RawMessage
}

// parsePrompt reads the prompt of a record.
func parsePrompt(d *dataset.Document) (p askedPrompt, err error) {
	raw, ok := d.Part("json")
	if !ok {
		return p, errors.New("it has no record of a prompt")
	}
	m, err := object(raw, d.Place)
	if err != nil {
		return p, err
	}
	m = withTurns(m)
	key := promptKeys[0]
	for i := len(promptKeys) - 1; i >= 0; i-- {
		if v := m[promptKeys[i]]; v != nil && !isNull(v) {
			key = promptKeys[i]
		}
	}
	c := chatRecord{m, d.Place}
	if p.tools, p.vars, err = c.offers("tools"); err != nil {
		return p, err
	}
	if !strings.HasPrefix(strings.TrimSpace(string(m[key])), "[") {
		p.text, err = member(m, key, d.Place)
		switch {
		case err == nil && p.text == "":
			err = errors.New("its prompt is empty")
		case err == nil && p.tools != nil:
			err = errors.New("it offers tools, and its prompt is a text, which no chat template writes: give messages")
		}
		return p, err
	}
	if p.turns, err = preferenceTurns(c, key); err != nil {
		return p, err
	}
	if len(p.turns) == 0 {
		return p, errors.New("its prompt has no messages")
	}
	return p, nil
}

// PromptWriter writes messages by a chat template, with tools and further variables.
type PromptWriter func(turns []dataset.Message, tools, vars json.RawMessage) (string, error)

// PromptEncoder makes tokens of prompts: the dataset.SampleEncoder of runs that draw answers. A sample's
// medium, of the kind dataset.Answer, has the record.
type PromptEncoder struct {
	Write PromptWriter // nil where there is no chat template
	Text  dataset.Encoder
	Print string // of the template
	Most  int    // tokens of a prompt
}

// Fingerprint implements dataset.SampleEncoder.
func (e *PromptEncoder) Fingerprint() string {
	return HashOf("prompts 2", e.Print, e.Text.Fingerprint(), e.Most)
}

// EncodeSample implements dataset.SampleEncoder.
func (e *PromptEncoder) EncodeSample(d *dataset.Document) ([]dataset.Sample, error) {
	p, err := parsePrompt(d)
	if err != nil {
		return nil, err
	}
	text := p.text
	if p.turns != nil {
		if e.Write == nil {
			return nil, errors.New("it is a conversation, and there is no chat template to write it as text")
		}
		if text, err = e.Write(p.turns, p.tools, p.vars); err != nil {
			return nil, err
		}
	}
	ids, err := dataset.Encode(e.Text, text, p.turns == nil)
	if err != nil {
		return nil, err
	}
	switch {
	case len(ids) < 2:
		return nil, fmt.Errorf("its prompt is %d tokens, and of fewer than two nothing is kept", len(ids))
	case len(ids) > e.Most:
		return nil, fmt.Errorf("its prompt is %d tokens, and data.seq_len leaves %d beside rollout.max_tokens",
			len(ids), e.Most)
	}
	raw, _ := d.Part("json")
	return []dataset.Sample{{Tokens: ids, Media: []dataset.Media{{Kind: dataset.Answer, Key: d.Key + ".prompt",
		Bytes: raw, Spans: []dataset.Span{{From: 0, To: int32(len(ids))}}}}}}, nil
}
