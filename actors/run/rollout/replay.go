package rollout

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/family"
)

// Replayed is a step's answers drawn and judged once more.
type Replayed struct {
	Step    int64  `json:"step"`
	From    string `json:"from"` // where the weights come from
	Answers int    `json:"answers"`
	// Differ says of each answer that is not as it was logged what differs.
	Differ []Difference `json:"differ"`
}

// Behind gives the weights behind a step, and says where they come from.
type Behind func(step int64) (from string, fill family.FillFunc, err error)

// Difference is an answer whose replay is not what was logged.
type Difference struct {
	Sample int64  `json:"sample"`
	Index  int    `json:"index"`
	What   string `json:"what"`
	Was    string `json:"was"`
	Is     string `json:"is"`
}

// Logged reads the answers of a step from a run's log.
func Logged(path string, step int64) (out []*Answer, err error) {
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
		var a Answer
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
func (r *Source) drawAgain(x *round, first int64, behind Behind) (from string, err error) {
	d, err := NewDrawer(r.Cfg, r.stops)
	if err != nil {
		return "", err
	}
	defer d.Close()
	parts := r.Plan.Parts(x.number)
	if first > r.Plan.Version(parts[0].Publication) { // a round that a run which went on drew as a whole
		parts = []rounds.Part{{Publication: first / r.Plan.Updates, Round: x.number}}
	}
	r.round[x.number] = x
	groups := len(x.answers) / r.Cfg.Run.Rollout.Group
	for i, p := range parts {
		place, fill, err := behind(r.Plan.Version(p.Publication))
		if err == nil {
			err = d.fill(fill)
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

// Again draws and judges what was logged, and compares. Of a step that was logged twice, before and after a
// restart, the last counts.
func (r *Source) Again(step, sample int64, logged []*Answer, behind Behind) (*Replayed, error) {
	n := r.Cfg.Run.Train.GlobalBatch
	logged = logged[max(0, len(logged)-n):]
	if len(logged) != n {
		return nil, exit.Usagef("the log has %d answers of step %d, and the run file says %d: it may be another run's",
			len(logged), step, n)
	}
	fresh := make([]*Answer, n)
	for i, a := range logged {
		fresh[i] = &Answer{Step: a.Step, Sample: a.Sample, Index: a.Index, Version: a.Version, Seed: a.Seed,
			Prompt: a.Prompt, Record: a.Record, script: a}
	}
	var asked []*Answer
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
	from, err := r.drawAgain(&round{number: r.Plan.Round(step), answers: asked}, logged[0].Version, behind)
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
func shownReward(a *Answer) any {
	if a.Reward == nil {
		return a.Fault
	}
	return *a.Reward
}
