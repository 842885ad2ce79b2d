package trained

import (
	"fmt"
	"math"
	"sync"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/sample"
)

// Scorer gives texts the scores of a model of rewards. It may be used by several goroutines, one at a time.
type Scorer struct {
	m   *Trained
	gen *sample.Generator
	mu  sync.Mutex
	max int
}

// NewScorer makes a scorer on the processor, in float32. Of a text at most so many tokens count, from its beginning.
func (m *Trained) NewScorer(tokens int) (*Scorer, error) {
	if !m.Model.Scores() {
		return nil, exit.Usagef("the model gives no scores: train one with objective.kind=reward, or name a directory of " +
			"a class for sequences (ForSequenceClassification with one label)")
	}
	if m.Tokenizer == nil {
		return nil, exit.Usagef("the model has no tokenizer")
	}
	b, err := kernels.Open(kernels.CPU, kernels.Options{})
	if err != nil {
		return nil, err
	}
	gen, err := m.Generator(b, tensor.F32)
	if err != nil {
		return nil, err
	}
	return &Scorer{m: m, gen: gen, max: tokens}, nil
}

// Score is the score behind the last token of a text.
func (s *Scorer) Score(text string) (float64, error) {
	ids, err := s.m.Tokenizer.TryEncode(text, true)
	if err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, fmt.Errorf("the text has no tokens")
	}
	return s.ScoreTokens(ids[:min(len(ids), s.max)])
}

// ScoreTokens is the score behind the last of some tokens.
func (s *Scorer) ScoreTokens(ids []int32) (float64, error) {
	positions := make([]int32, len(ids))
	for i := range positions {
		positions[i] = int32(i)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	scores, err := s.gen.AllLogits(ids, positions, []int32{0, int32(len(ids))})
	if err != nil {
		return 0, err
	}
	return float64(scores[len(scores)-1]), nil
}

// Tells says whether a model of rewards has the tokens of the model that it judges.
func (m *Trained) Tells(tok *token.Tokenizer) error {
	return m.SpeaksAs(tok, "the model that is judged")
}

// reward_model: the score that a model of one's own gives.
var _ = curate.Register(curate.Kind{Name: "reward_model",
	Doc:    "drops documents to which a model of rewards, trained here or in transformers, gives too low or high a score",
	Source: "the score behind the last token, as transformers' classes for sequences give it",
	Settings: func() curate.Settings {
		return &rewardStep{Column: "score", Tokens: 2048}
	}})

// rewardStep is its settings.
type rewardStep struct {
	Model     string   `yaml:"model"`     // the checkpoints of a run, or a Hugging Face directory
	Tokenizer string   `yaml:"tokenizer"` // the model's own where none is given
	Min       *float64 `yaml:"min"`
	Max       *float64 `yaml:"max"`
	Tokens    int      `yaml:"max_tokens"` // of a text that count, from its beginning
	Column    string   `yaml:"column"`     // that gets the score; none for ""
	scorer    *Scorer
}

// Open implements curate.Settings.
func (r *rewardStep) Open() (curate.Step, error) {
	switch {
	case r.Model == "":
		return nil, &curate.Fault{Key: "model", Why: "is not given", Try: "name the checkpoints of a run"}
	case r.Tokens < 1:
		return nil, &curate.Fault{Key: "max_tokens", Why: fmt.Sprintf("%d tokens have no score", r.Tokens), Try: ""}
	case r.Min == nil && r.Max == nil && r.Column == "":
		return nil, &curate.Fault{Key: "min", Why: "is not given, and nothing is made of the score",
			Try: "give min, max or column"}
	}
	m, err := Open(r.Model, r.Tokenizer)
	if err == nil {
		r.scorer, err = m.NewScorer(r.Tokens)
	}
	if err != nil {
		return nil, &curate.Fault{Key: "model", Why: err.Error(), Try: ""}
	}
	return r, nil
}

// Columns implements curate.Step.
func (r *rewardStep) Columns() curate.Columns {
	if r.Column == "" {
		return curate.Columns{}
	}
	return curate.Columns{Writes: []string{r.Column}}
}

// Fingerprint implements curate.Reading.
func (r *rewardStep) Fingerprint() (string, error) { return curate.FingerprintOf(r.Model, r.Tokenizer) }

// Do implements curate.Step.
func (r *rewardStep) Do(_ *curate.Desk, d *curate.Doc) string {
	score, err := r.scorer.Score(d.Text)
	if err != nil || math.IsNaN(score) || math.IsInf(score, 0) {
		return "no_score"
	}
	if r.Column != "" {
		d.Set(r.Column, score)
	}
	switch {
	case r.Min != nil && score < *r.Min:
		return "low_score"
	case r.Max != nil && score > *r.Max:
		return "high_score"
	}
	return ""
}
