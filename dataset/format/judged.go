package format

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/dataset"
)

// Single answers with a judgement: {"prompt", "completion", "label"}, texts or lists of messages, of which
// label says whether the answer is a good one.
var _ = dataset.Register(recordKind{name: "judged", file: "judged.jsonl", kind: dataset.KindJudged,
	doc: "answers as {prompt, completion, label}, each of which is good or bad",
	check: func(d *dataset.Document) error {
		raw, _ := d.Part("json")
		_, err := parseJudged(raw, d.Place)
		return err
	}, beside: otherAnswer}.format())

// otherTries bounds how far the answer to another prompt is looked for where records are bad.
const otherTries = 64

// otherAnswer adds as "other" the nearest usable record before it, in a circle: its answer is laid against this prompt.
func otherAnswer(s *answers, i int64, d *dataset.Document) error {
	for k := int64(1); k <= otherTries && k < s.Len(); k++ {
		other, at, err := s.Record((i - k + s.Len()) % s.Len())
		var bad *dataset.BadSample
		switch {
		case errors.As(err, &bad):
			continue
		case err != nil:
			return err
		}
		if _, err := parseJudged(other, at); err == nil {
			d.Parts = append(d.Parts, dataset.Part{Name: "other", Bytes: other})
			return nil
		}
	}
	return &dataset.BadSample{Place: d.Place, Reason: "no answer to another prompt lies before it, which " +
		"the distance to the reference is estimated by"}
}

// Judged is a prompt with one answer, which is both of the pair's, and whether it is good.
type Judged struct {
	Pair
	Good bool
}

// parseJudged reads a record of the format judged.
func parseJudged(raw []byte, at dataset.Place) (*Judged, error) {
	m, err := object(raw, at)
	if err != nil {
		return nil, err
	}
	m = withTurns(m)
	j := &Judged{}
	if m["label"] == nil || json.Unmarshal(m["label"], &j.Good) != nil || isNull(m["label"]) {
		return nil, errors.New(`its "label" is neither true nor false`)
	}
	if m["completion"] == nil || isNull(m["completion"]) {
		return nil, errors.New(`it has no "completion"`)
	}
	c := chatRecord{m, at}
	if j.Tools, j.Vars, err = c.offers("tools"); err != nil {
		return nil, err
	}
	if !startsText(m["completion"]) {
		j.Chat = true
		return j, j.turns(c)
	}
	if j.Text, err = member(m, "prompt", at); err != nil {
		return nil, err
	}
	if j.Chosen, err = member(m, "completion", at); err != nil {
		return nil, err
	}
	switch j.Rejected = j.Chosen; "" {
	case j.Text:
		return nil, errors.New("its prompt is empty")
	case j.Chosen:
		return nil, errors.New("its answer is empty")
	}
	return j, nil
}

func (j *Judged) turns(c chatRecord) (err error) {
	if j.Prompt, err = preferenceTurns(c, "prompt"); err != nil {
		return err
	}
	if j.Better, err = preferenceTurns(c, "completion"); err != nil {
		return err
	}
	switch j.Worse = j.Better; {
	case len(j.Prompt) == 0:
		return errors.New("its prompt has no messages")
	case !speaks(j.Better):
		return errors.New("its answer has no turn of the assistant")
	}
	return nil
}

// JudgedEncoder makes two samples of an answer: with its prompt, and of the answer to another prompt with
// this prompt. It is the dataset.SampleEncoder of losses over single answers; their mark's margin is 1 of a
// good answer and -1 of a bad one.
type JudgedEncoder struct{ PairEncoder }

// Fingerprint implements dataset.SampleEncoder.
func (e *JudgedEncoder) Fingerprint() string { return HashOf("judged 1", e.PairEncoder.Fingerprint()) }

// EncodeSample implements dataset.SampleEncoder.
func (e *JudgedEncoder) EncodeSample(d *dataset.Document) ([]dataset.Sample, error) {
	own, good, err := e.part(d, "json")
	if err != nil {
		return nil, err
	}
	other, _, err := e.part(d, "other")
	if err != nil {
		return nil, fmt.Errorf("the answer before it: %w", err)
	}
	n, m := answerOf(own), answerOf(other)
	both := []dataset.Sample{own, {Tokens: append(own.Tokens[:n:n], other.Tokens[m:]...),
		Loss: append(own.Loss[:n:n], other.Loss[m:]...)}}
	mark := AnswerMark{Margin: -1}
	if good {
		mark.Margin = 1
	}
	return e.marked(d, both, mark)
}

// part encodes a record with its answer.
func (e *JudgedEncoder) part(d *dataset.Document, name string) (s dataset.Sample, good bool, err error) {
	raw, ok := d.Part(name)
	if !ok {
		return s, false, errors.New("it has no record of an answer")
	}
	j, err := parseJudged(raw, d.Place)
	if err != nil {
		return s, false, err
	}
	both, err := e.sides(&j.Pair)
	if err != nil {
		return s, false, err
	}
	return both[0], j.Good, nil
}
