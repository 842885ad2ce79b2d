package run

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/stages/policies"
)

// schedulerSection is where a checkpoint of a model of diffusion has the scheduler that it learnt under, as
// diffusers writes it.
const schedulerSection = "scheduler"

// scheduler is that of the run, nil for models that have none.
func (r *Run) scheduler() (json.RawMessage, error) {
	if !r.job.Model.Task().Levels {
		return nil, nil
	}
	s, err := fit.Scheduler(r.cfg)
	if err != nil {
		return nil, err
	}
	return noise.Marshal(s), nil
}

// sameScheduler refuses to go on under another scheduler than the checkpoint's: its file may have other contents than
// when the run began, under the same name, and a model that predicts noise is none that predicts velocity.
func (r *Run) sameScheduler(saved *checkpoint.Reader) error {
	now := r.noised
	if now == nil {
		return nil
	}
	var before json.RawMessage
	var bad *checkpoint.Error
	if err := saved.Section(schedulerSection, &before); errors.As(err, &bad) && bad.Fault == checkpoint.Missing {
		return nil // of a version that kept none
	} else if err != nil {
		return err
	}
	var a, b map[string]any
	if err := errors.Join(json.Unmarshal(before, &a), json.Unmarshal(now, &b)); err != nil {
		return &checkpoint.Error{File: saved.Path(), Fault: checkpoint.Malformed, Why: "section scheduler", Err: err}
	}
	for key, v := range a {
		if fmt.Sprint(v) != fmt.Sprint(b[key]) && key != "_diffusers_version" {
			return r.cfg.Fault("diffusion.scheduler", fmt.Sprintf("%s is %v, and %s was trained with %v", key, b[key],
				saved.Path(), v), "name the scheduler that the run began with, or begin another run")
		}
	}
	return nil
}

// usualSection is what the manifest says of how steps were, where some are not applied that are not so.
const usualSection = "usual"

// sections are what a checkpoint of a step has beside its tensors.
func (r *Run) sections(step int64, state []float64) map[string]any {
	sections := map[string]any{"config": r.cfg.Flat(), "state": state[:stateLen],
		"data": r.data.position(step), "params": r.layout.Order, runSection: r.record.ID}
	if state[filedLen-1] > 0 {
		sections[usualSection] = state[stateLen:filedLen]
	}
	if len(state) > filedLen {
		sections[expertsSection] = state[filedLen:]
	}
	if r.noised != nil {
		sections[schedulerSection] = r.noised
	}
	if x, ok := r.data.images.(interface{ Kept() *policies.KeptRobots }); ok {
		k := x.Kept()
		if _, err := json.Marshal(k); err == nil { // statistics of nothing are no numbers, and nothing acts by them
			sections[policies.RobotsSection] = k
		}
	}
	if x := r.data.rollouts; x != nil {
		if all := x.InFlight(step); len(all) > 0 {
			sections[rollout.Section] = all
		}
	}
	return sections
}

// fromBeginning lets data begin at the step behind a checkpoint that was converted.
func (d *data) fromBeginning(saved *checkpoint.Reader) error {
	fmt.Fprintf(d.r.io.Warnings, "note: %s was converted, and has no place in the data: they are read from the "+
		"beginning\n", saved.Path())
	return d.train.Seek(dataset.Position{Step: saved.Step()})
}
