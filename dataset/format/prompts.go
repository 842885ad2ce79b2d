package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// Prompts to which a run draws answers: {"prompt": text or messages, …}, with further columns for rewards,
// as "answer".
var _ = dataset.Register(ofRecords("prompts",
	"prompts as {prompt, answer, …}, to which a run draws answers that a reward judges", dataset.KindPrompts,
	"prompts.jsonl", func(r records, name string) dataset.Source { return &prompts{r, name} }))

// prompts are records of one prompt each.
type prompts struct {
	records
	name string
}

func (p *prompts) Name() string        { return p.name }
func (p *prompts) Kind() dataset.Kind  { return dataset.KindPrompts }
func (p *prompts) Fingerprint() string { return HashOf(p.records.Fingerprint(), "prompts") }

// Read gives a record as it is, if it has a prompt.
func (p *prompts) Read(i int64) (dataset.Document, error) {
	b, place, err := p.Record(i)
	d := dataset.Document{Place: place, Key: fmt.Sprint(i)}
	if err != nil {
		return d, err
	}
	d.Parts = []dataset.Part{{Name: "json", Bytes: b}}
	if _, _, err = parsePrompt(&d); err != nil {
		var bad *dataset.BadSample
		if !errors.As(err, &bad) {
			err = &dataset.BadSample{Place: place, Reason: err.Error()}
		}
	}
	return d, err
}

// parsePrompt reads the prompt of a record: a text, or messages.
func parsePrompt(d *dataset.Document) (text string, turns []dataset.Message, err error) {
	raw, ok := d.Part("json")
	if !ok {
		return "", nil, errors.New("it has no record of a prompt")
	}
	m, err := object(raw, d.Place)
	if err != nil {
		return "", nil, err
	}
	if !strings.HasPrefix(strings.TrimSpace(string(m["prompt"])), "[") {
		text, err = member(m, "prompt", d.Place)
		if err == nil && text == "" {
			err = errors.New("its prompt is empty")
		}
		return text, nil, err
	}
	if turns, err = (chatRecord{m, d.Place}).turns("prompt", "role", "content", dataset.Tags{}); err != nil {
		return "", nil, err
	}
	for i, t := range turns {
		if !slices.Contains(preferenceRoles, t.Role) {
			return "", nil, fmt.Errorf("prompt[%d] has the role %q; templates know %s", i, Clip(t.Role),
				strings.Join(preferenceRoles, ", "))
		}
	}
	if len(turns) == 0 {
		return "", nil, errors.New("its prompt has no messages")
	}
	return "", turns, nil
}

// PromptEncoder makes tokens of prompts: the dataset.SampleEncoder of runs that draw answers. A sample's
// medium, of the kind dataset.Answer, has the record.
type PromptEncoder struct {
	Write func(turns []dataset.Message) (string, error) // by the chat template; nil where there is none
	Text  dataset.Encoder
	Print string // of the template
	Most  int    // tokens of a prompt
}

// Fingerprint implements dataset.SampleEncoder.
func (e *PromptEncoder) Fingerprint() string {
	return HashOf("prompts 1", e.Print, e.Text.Fingerprint(), e.Most)
}

// EncodeSample implements dataset.SampleEncoder.
func (e *PromptEncoder) EncodeSample(d *dataset.Document) ([]dataset.Sample, error) {
	text, turns, err := parsePrompt(d)
	if err != nil {
		return nil, err
	}
	if turns != nil {
		if e.Write == nil {
			return nil, errors.New("it is a conversation, and there is no chat template to write it as text")
		}
		if text, err = e.Write(turns); err != nil {
			return nil, err
		}
	}
	ids, err := dataset.Encode(e.Text, text, turns == nil)
	if err != nil {
		return nil, err
	}
	switch {
	case len(ids) < 2:
		return nil, fmt.Errorf("its prompt is %d tokens, and of fewer than two nothing is kept", len(ids))
	case len(ids) > e.Most:
		return nil, fmt.Errorf("its prompt is %d tokens, and data.seq_len leaves %d beside "+
			"rollout.max_tokens",
			len(ids), e.Most)
	}
	raw, _ := d.Part("json")
	return []dataset.Sample{{Tokens: ids, Media: []dataset.Media{{Kind: dataset.Answer, Key: d.Key +
		".prompt",
		Bytes: raw, Spans: []dataset.Span{{From: 0, To: int32(len(ids))}}}}}}, nil
}
