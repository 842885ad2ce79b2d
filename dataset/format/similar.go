package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// Texts that belong together, for embeddings: {"query", "positive"}, with texts that do not belong to the query
// as "negatives": a list, or as "negative": one. sentence-transformers' "anchor" is a query too.
var _ = dataset.Register(recordKind{name: "similar", file: "similar.jsonl", kind: dataset.KindSimilar,
	doc: "texts that belong together as {query, positive, negatives}, for embeddings",
	check: func(d *dataset.Document) error {
		_, err := ParseSimilar(d)
		return err
	}}.format())

// Similar is a query with the text that belongs to it, and some that do not.
type Similar struct {
	Query, Positive string
	Negatives       []string
}

// ParseSimilar reads a record of the format similar.
func ParseSimilar(d *dataset.Document) (*Similar, error) {
	raw, ok := d.Part("json")
	if !ok {
		return nil, errors.New("it has no record of a query")
	}
	m, err := object(raw, d.Place)
	if err != nil {
		return nil, err
	}
	given := func(key string) bool { return m[key] != nil && !isNull(m[key]) }
	key := "query"
	switch {
	case given("query") && given("anchor"):
		return nil, errors.New(`it has both a "query" and an "anchor"`)
	case given("anchor"):
		key = "anchor"
	}
	s := &Similar{}
	if s.Query, err = member(m, key, d.Place); err != nil {
		return nil, err
	}
	if s.Positive, err = member(m, "positive", d.Place); err != nil {
		return nil, err
	}
	if given("negatives") {
		if err := json.Unmarshal(m["negatives"], &s.Negatives); err != nil {
			return nil, errors.New(`its "negatives" are no list of texts`)
		}
	}
	if given("negative") {
		one, err := member(m, "negative", d.Place)
		if err != nil {
			return nil, err
		}
		s.Negatives = append(s.Negatives, one)
	}
	return s, s.check()
}

func (s *Similar) check() error {
	switch {
	case strings.TrimSpace(s.Query) == "":
		return errors.New("its query is empty")
	case strings.TrimSpace(s.Positive) == "":
		return errors.New("its positive is empty")
	case slices.Contains(s.Negatives, s.Positive):
		return errors.New("its positive is one of its negatives")
	}
	for _, n := range s.Negatives {
		if strings.TrimSpace(n) == "" {
			return errors.New("one of its negatives is empty")
		}
	}
	return nil
}

// SimilarEncoder makes a sample of a query and one of each of its texts, the positive first: the
// dataset.SampleEncoder of embeddings. A medium of the kind dataset.Answer has the sample's role
// (kernels/objective.Query and so on) as margin.
type SimilarEncoder struct {
	Text   dataset.Encoder
	SeqLen int // tokens of a query with its texts, at most
}

// Fingerprint implements dataset.SampleEncoder.
func (e *SimilarEncoder) Fingerprint() string {
	return HashOf("similar 1", e.Text.Fingerprint(), e.SeqLen)
}

// EncodeSample implements dataset.SampleEncoder.
func (e *SimilarEncoder) EncodeSample(d *dataset.Document) ([]dataset.Sample, error) {
	s, err := ParseSimilar(d)
	if err != nil {
		return nil, err
	}
	var out []dataset.Sample
	all := 0
	for i, text := range append([]string{s.Query, s.Positive}, s.Negatives...) {
		ids, err := dataset.Encode(e.Text, text, true)
		if err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			return nil, errors.New("one of its texts has no tokens")
		}
		role := float32(-1) // kernels/objective.Negative
		if i < 2 {
			role = float32(i)
		}
		mark, err := json.Marshal(AnswerMark{role})
		if err != nil {
			return nil, err
		}
		all += len(ids)
		out = append(out, dataset.Sample{Tokens: ids, Media: []dataset.Media{{Kind: dataset.Answer,
			Key: d.Key + ".text", Bytes: mark, Spans: []dataset.Span{{To: int32(len(ids))}}}}})
	}
	if all > e.SeqLen {
		return nil, fmt.Errorf("its query and texts are %d tokens, over the sequence length of %d (data.seq_len), "+
			"and none is cut", all, e.SeqLen)
	}
	return out, nil
}
