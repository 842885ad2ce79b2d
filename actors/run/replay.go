package run

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
)

// Replayed is a step's answers drawn and judged once more.
type Replayed struct {
	Step    int64  `json:"step"`
	From    string `json:"from"` // where the weights come from
	Answers int    `json:"answers"`
	// Differ says of each answer that is not as it was logged what differs.
	Differ []Difference `json:"differ"`
	// Redone is the training of the step.
	Redone *Redone `json:"redone,omitempty"`
}

// Difference is an answer whose replay is not what was logged.
type Difference struct {
	Sample int64  `json:"sample"`
	Index  int    `json:"index"`
	What   string `json:"what"`
	Was    string `json:"was"`
	Is     string `json:"is"`
}

// Replay draws the answers of a step of a run once more from its log, with the weights behind the step before, judges
// them and compares tokens, log-probabilities, rewards and advantages. Those weights are the ones that the run began
// with, or in a checkpoint that is still there. Then it trains the step again, and compares loss, gradient and weights.
// With a sample that is not negative it draws and judges the answers to that one alone, and trains nothing.
func Replay(cfg *configs.Config, step, sample int64) (*Replayed, error) {
	out, err := replayAnswers(cfg, step, sample)
	if err == nil && sample < 0 {
		out.Redone, err = redo(cfg, step)
	}
	return out, err
}

// replayAnswers draws and judges answers again.
func replayAnswers(cfg *configs.Config, step, sample int64) (*Replayed, error) {
	l := fit.Loss(cfg)
	if l == nil || l.Policy == nil {
		return nil, cfg.Fault("objective.kind", "the run draws no answers", "replay is for runs of grpo and its kin")
	}
	updates := int64(cfg.Run.Rollout.Updates)
	logged, err := loggedAnswers(filepath.Join(cfg.Run.Log.Dir, RolloutsName), (step-1)/updates*updates+1)
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
	return d.rollouts.again(step, sample, logged)
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

// loggedAnswers reads the answers of a step.
func loggedAnswers(path string, step int64) (out []*rollout, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	defer f.Close() //nolint:errcheck // it is only read
	first, last := int64(0), int64(0)
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // a last line without an end was cut off
		}
		if err != nil {
			return nil, err
		}
		var a rollout
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, exit.With(fmt.Errorf("%s: %w", path, err), exit.Corrupt)
		}
		if first == 0 {
			first = a.Step
		}
		if last = a.Step; a.Step == step {
			out = append(out, &a)
		}
	}
	if len(out) == 0 {
		return nil, exit.Usagef("%s has no answers of step %d; it has steps %d to %d", path, step, first, last)
	}
	return out, nil
}

// drawAgain draws a round part by part, each with the weights of its version, of which the first is known.
func (r *rollouts) drawAgain(x *round, first int64) (from string, err error) {
	d, err := newDrawer(r.d.r.cfg, r.stops)
	if err != nil {
		return "", err
	}
	defer d.close()
	parts := r.plan.Parts(x.number)
	if first > r.plan.Version(parts[0].Publication) { // a round that a run which went on drew as a whole
		parts = []rounds.Part{{Publication: first / r.plan.Updates, Round: x.number}}
	}
	r.round[x.number] = x
	groups := len(x.answers) / r.d.r.cfg.Run.Rollout.Group
	for i, p := range parts {
		place, err := r.d.r.weightsBehind(r.plan.Version(p.Publication))
		if err == nil {
			err = d.fill(r.d.r.start.fill)
		}
		if err != nil {
			return "", err
		}
		if i == 0 {
			from = place
		}
		for g := range groups {
			t := rounds.Task{Part: p, Group: g}
			if err := d.submit(r.drafts(t), func(got []draft) { r.add(t, got) }); err != nil {
				return "", err
			}
		}
		for d.busy() {
			if err := d.step(); err != nil {
				return "", err
			}
		}
	}
	return from, nil
}

// again draws and judges what was logged, and compares. Of a step that was logged twice, before and after a
// restart, the last counts.
func (r *rollouts) again(step, sample int64, logged []*rollout) (*Replayed, error) {
	n := r.d.r.cfg.Run.Train.GlobalBatch
	logged = logged[max(0, len(logged)-n):]
	if len(logged) != n {
		return nil, exit.Usagef("the log has %d answers of step %d, and the run file says %d: it may be another run's",
			len(logged), step, n)
	}
	fresh := make([]*rollout, n)
	for i, a := range logged {
		fresh[i] = &rollout{Step: a.Step, Sample: a.Sample, Index: a.Index, Version: a.Version, Seed: a.Seed,
			Prompt: a.Prompt, Record: a.Record, script: a}
	}
	var asked []*rollout
	for i, a := range logged {
		if sample < 0 || a.Sample == sample {
			asked = append(asked, fresh[i])
			continue
		}
		b := *a // it is as it was
		fresh[i] = &b
	}
	if len(asked) == 0 {
		return nil, exit.Usagef("step %d drew no answers to sample %d", step, sample)
	}
	from, err := r.drawAgain(&round{number: r.plan.Round(step), answers: asked}, logged[0].Version)
	if err == nil {
		err = r.judgeSome(asked, fresh)
	}
	if err != nil {
		return nil, err
	}
	out := &Replayed{Step: step, From: from, Answers: len(asked), Differ: []Difference{}}
	for i, a := range logged {
		b := fresh[i]
		note := func(what string, was, is any) {
			out.Differ = append(out.Differ, Difference{Sample: a.Sample, Index: a.Index, What: what,
				Was: fmt.Sprint(was), Is: fmt.Sprint(is)})
		}
		switch {
		case !slices.Equal(a.Answer, b.Answer):
			note("tokens", a.Answer, b.Answer)
		case !slices.Equal(a.LogProbs, b.LogProbs):
			note("log-probabilities", a.LogProbs, b.LogProbs)
		case (a.Reward == nil) != (b.Reward == nil) || a.Reward != nil && *a.Reward != *b.Reward:
			note("reward", shownReward(a), shownReward(b))
		case a.Advantage != b.Advantage:
			note("advantage", a.Advantage, b.Advantage)
		}
	}
	return out, nil
}

// shownReward is an answer's reward, or why it has none.
func shownReward(a *rollout) any {
	if a.Reward == nil {
		return a.Fault
	}
	return *a.Reward
}
