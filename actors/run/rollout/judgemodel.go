package rollout

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/stages/trained"
)

// judgeModel is a model of rewards in the process that trains. It reads the tokens that were drawn, as they were drawn.
// In the words of the field: reward model.
type judgeModel struct {
	dir    string
	once   sync.Once
	scorer *trained.Scorer
	err    error
}

var _ = reward.Register(reward.Kind{Name: "model", Doc: "the score that a model of rewards gives the last token " +
	"of prompt and answer; its tokens are those of the model that learns", Reads: []string{"model", "judges"},
	Aid: "train one with objective.kind=reward", Here: true, New: func(c *configs.Reward) (reward.Func, error) {
		if c.Model == "" {
			return nil, errors.New("reward.model is not given")
		}
		return (&judgeModel{dir: c.Model}).judge, nil
	}, Try: func(_ context.Context, c *configs.Config) error {
		m, err := trained.Open(c.Run.Reward.Model, "")
		if err != nil {
			return err
		}
		defer m.Close()
		if !m.Model.Scores() {
			return fmt.Errorf("%s is no model of rewards", c.Run.Reward.Model)
		}
		tok, _, err := setup.RunTokenizer(c)
		if err != nil || tok == nil {
			return err
		}
		return m.Tells(tok)
	}})

// judge implements reward.Func.
func (j *judgeModel) judge(_ context.Context, a *reward.Answer) (float64, error) {
	j.once.Do(func() {
		m, err := trained.Open(j.dir, "")
		if err != nil {
			j.err = err
			return
		}
		if j.scorer, j.err = m.NewScorer(0); j.err == nil && a.Tokenizer != nil {
			j.err = m.Tells(a.Tokenizer)
		}
	})
	if j.err != nil {
		return 0, j.err
	}
	return j.scorer.ScoreTokens(a.Tokens)
}
