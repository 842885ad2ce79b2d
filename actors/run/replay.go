package run

import (
	"path/filepath"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
)

// Replayed is a step drawn, judged and trained once more.
type Replayed struct {
	rollout.Replayed
	// Redone is the training of the step.
	Redone *Redone `json:"redone,omitempty"`
}

// Replay draws the answers of a step of a run once more from its log, with the weights behind the step before, judges
// them and compares tokens, log-probabilities, rewards and advantages. Those weights are the ones that the run began
// with, or in a checkpoint that is still there. Then it trains the step again, and compares loss, gradient and weights.
// With a sample that is not negative it draws and judges the answers to that one alone, and trains nothing.
func Replay(cfg *configs.Config, step, sample int64) (*Replayed, error) {
	drawn, err := replayAnswers(cfg, step, sample)
	if err != nil {
		return nil, err
	}
	out := &Replayed{Replayed: *drawn}
	if sample < 0 {
		out.Redone, err = redo(cfg, step)
	}
	return out, err
}

// replayAnswers draws and judges answers again.
func replayAnswers(cfg *configs.Config, step, sample int64) (*rollout.Replayed, error) {
	l := fit.Loss(cfg)
	if l == nil || l.Policy == nil {
		return nil, cfg.Fault("objective.kind", "the run draws no answers", "replay is for runs of grpo and its kin")
	}
	updates := int64(cfg.Run.Rollout.Updates)
	logged, err := rollout.Logged(filepath.Join(cfg.Run.Log.Dir, rollout.FileName), (step-1)/updates*updates+1)
	if err != nil {
		return nil, err
	}
	r := newRun(cfg, Options{})
	defer r.start.close()
	d := newData(r)
	if d.bad, err = dataset.OpenQuarantine(""); err != nil {
		return nil, err
	}
	r.data = d
	defer func() { d.leave(); d.close() }()
	if err := r.readTokenizer(); err != nil {
		return nil, err
	}
	if r.job, err = layout.FromConfig(cfg); err != nil {
		return nil, err
	}
	if err := r.weights(); err != nil {
		return nil, err
	}
	r.start.base, r.start.began, r.start.first = r.start.fill, r.start.from, 1
	if err := d.openRollouts(l); err != nil {
		return nil, err
	}
	return d.rollouts.Again(step, sample, logged, func(behind int64) (string, family.FillFunc, error) {
		from, err := r.weightsBehind(behind)
		return from, r.start.fill, err
	})
}

// weightsBehind sets the weights behind a step, and says where they come from.
func (r *Run) weightsBehind(step int64) (string, error) {
	if step == 0 {
		r.start.fill = r.start.base
		return r.start.from, r.load()
	}
	dir := r.cfg.Run.Checkpoint.Dir
	var have []int64
	if dir != "" {
		entries, err := checkpoint.List(dir)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if have = append(have, e.Step); e.Step != step {
				continue
			}
			saved, err := checkpoint.Open(e.Path)
			if err != nil {
				return "", err
			}
			r.start.closers = append(r.start.closers, saved.Close)
			r.start.fill = family.FromCheckpoint(saved, false)
			return saved.Path(), nil
		}
	}
	return "", exit.Usagef("the answers were drawn with the weights of step %d, of which there is no checkpoint; "+
		"there are those of %v (checkpoint.interval and checkpoint.keep say which stay, and steps that end while "+
		"a checkpoint is being written have none)", step, have)
}
