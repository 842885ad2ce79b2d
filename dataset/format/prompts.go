package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// Prompts to which a run draws answers: {"prompt": text or messages, …}, with further columns for rewards, as "answer".
var _ = dataset.Register(ofRecords("prompts",
	"prompts as {prompt, answer, …}, to which a run draws answers that a reward judges", dataset.KindPrompts,
	"prompts.jsonl", func(r Records, name string) dataset.Source { return &prompts{r, name} }))

// prompts are records of one prompt each.
type prompts struct {
	Records
	name string
}

func (p *prompts) Name() string        { return p.name }
func (p *prompts) Kind() dataset.Kind  { return dataset.KindPrompts }
func (p *prompts) Fingerprint() string { return HashOf(p.Records.Fingerprint(), "prompts") }

// Read gives a record as it is, if it has a prompt.
func (p *prompts) Read(i int64) (dataset.Document, error) {
	b, place, err := p.Record(i)
	d := dataset.Document{Place: place, Key: fmt.Sprint(i)}
	if err != nil {
		return d, err
	}
	d.Parts = []dataset.Part{{Name: "json", Bytes: b}}
	if _, err = parsePrompt(&d); err != nil {
		var bad *dataset.BadSample
		if !errors.As(err, &bad) {
			err = &dataset.BadSample{Place: place, Reason: err.Error()}
		}
	}
	return d, err
}

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

// PromptEncoder makes tokens of prompts: the dataset.SampleEncoder of runs that draw answers. A sample's
// medium, of the kind dataset.Answer, has the record.
type PromptEncoder struct {
	// Write writes messages by the chat template, with tools and further variables; nil where there is none
	Write func(turns []dataset.Message, tools, vars json.RawMessage) (string, error)
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
