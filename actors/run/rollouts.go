package run

import (
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels/objective"
)

// openRollouts readies the drawing of the answers that a run learns from.
func (d *data) openRollouts(l *objective.Loss) (err error) {
	r := d.r
	fleet := r.io.Fleet
	if c := &r.cfg.Run; fleet == nil && c.Rollout.Samplers+c.Reward.Judges > 0 {
		x, err := newLocal(r.io.Worker, r.io.Warnings)
		if err != nil {
			return err
		}
		x.tied, fleet = true, x
	}
	d.rollouts, err = rollout.Open(rollout.Of{Cfg: r.cfg, Tok: r.tok, Conf: r.conf, First: r.start.first,
		Saved: r.start.saved, Left: d.left, Fleet: fleet, Place: envProc, Away: r.io.Fleet != nil,
		Prompts: func(step int64) ([]dataset.Batch, error) {
			m, err := d.step(step)
			if err != nil {
				return nil, err
			}
			return m.batches, nil
		},
		SetAside: d.setAside, Reference: r.reference, Draws: r.draws,
		Say: func(format string, args ...any) { r.report.say(format, args...) }}, l)
	return err
}

// serves is a process that draws or judges for a run which another process leads. What it begins itself has no place.
func (r *Run) serves() error {
	f, err := r.fleet()
	if err != nil {
		return err
	}
	return rollout.Serve(r.cfg, f, workerProc(), envProc, envSockets)
}

// stops are the tokens that end an answer.
func (r *Run) stops() ([]int32, error) { return rollout.Stops(r.cfg, r.tok, r.conf) }

// promptEncoder is the encoder of prompts.
func (d *data) promptEncoder() (dataset.SampleEncoder, error) {
	c := &d.r.cfg.Run
	e := &format.PromptEncoder{Text: d.r.encoder(), Most: c.Data.SeqLen - c.Rollout.Max}
	if d.r.conf.ChatTemplate == "" && c.Data.Template == "" {
		return e, nil
	}
	t, err := setup.Template(d.r.cfg, d.r.tok, d.r.conf)
	if err != nil {
		return nil, err
	}
	e.Print = token.NewChat(d.r.tok, t, token.ChatOptions{}).Fingerprint()
	e.Write = t.Prompt
	return e, nil
}

// sees takes the ranks whose parameters answers are drawn with.
func (d *data) sees(ranks []*host.Rank) {
	if x := d.shown; x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.ranks = ranks
	}
	if r := d.rollouts; r != nil {
		r.Sees(ranks)
	}
}

// again is the data of a step that is trained on what an earlier one was, nil of others.
func (d *data) again(step int64) (*made, error) {
	if d.rollouts == nil {
		return nil, nil
	}
	switch first := d.rollouts.Plan.First(d.rollouts.Plan.Round(step)); {
	case first == step:
		return nil, nil
	case first < d.r.start.first: // its answers are those of the checkpoint
		return &made{start: d.began, end: d.began}, nil
	default:
		return d.step(first)
	}
}

// setAside enters an answer without a reward in the quarantine, which ends the run when it is full.
func (d *data) setAside(bad dataset.Bad) error {
	if err := d.bad.Add(bad); err != nil {
		return err
	}
	most := int64(d.r.cfg.Run.Data.Quarantine)
	if n := int64(len(d.bad.List())); n > most {
		return &dataset.BudgetError{Budget: dataset.Budget{Count: most}, Bad: n, Read: n, Last: bad}
	}
	return nil
}
