package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/stages/policies"
)

// enteredWait is how long a checkpoint waits for the ledger to have its step, which the observer enters. It is
// as good as never needed whole: a disk that takes so long has the checkpoint wait as well.
const enteredWait = 10 * time.Second

// bestSaved is the checkpoint whose step has the lowest loss of an evaluation, with checkpoint.best; the older one of
// two alike.
func (r *Run) bestSaved() (best checkpoint.Entry, ok bool) {
	if !r.cfg.Run.Checkpoint.Best || r.report == nil {
		return best, false
	}
	all, err := checkpoint.List(r.cfg.Run.Checkpoint.Dir)
	if err != nil { // whoever reads it next says so
		return best, false
	}
	lowest := math.Inf(1)
	for _, e := range all { // the newest first
		if loss, evaluated := r.report.patience.lossAt(e.Step); evaluated && loss <= lowest {
			best, lowest, ok = e, loss, true
		}
	}
	return best, ok
}

// commit makes the checkpoint of a step durable, then removes what retention lets go.
func (r *Run) commit(step int64, parts []string, state []float64) error {
	c := r.cfg.Run.Checkpoint
	sections := r.sections(step, state)
	var copies host.Copier
	if r.mirror != nil {
		copies = r.mirror
	}
	// A run that ends here goes on from this step, and what the ledger lacks of it nobody enters later.
	r.data.entered(step, enteredWait)
	if err := host.CommitShards(checkpoint.OS, c.Dir, step, parts, sections, copies); err != nil {
		return err
	}
	var best []int64
	if b, ok := r.bestSaved(); ok {
		best = append(best, b.Step)
	}
	if b, err := os.ReadFile(filepath.Join(checkpoint.StepDir(c.Dir, step), checkpoint.ManifestName)); err == nil {
		r.chain.Save(step, b)
	}
	_, err := checkpoint.Prune(checkpoint.OS, c.Dir, c.Keep, best...)
	if err == nil {
		r.data.durable(step)
	}
	return err
}

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

// reachSection is what the manifest says of sums in fixed point; see core.LossScale.
const reachSection = "reach"

// sections are what a checkpoint of a step has beside its tensors.
func (r *Run) sections(step int64, state []float64) map[string]any {
	sections := map[string]any{"config": r.cfg.Flat(), "state": state[:stateLen],
		"data": r.data.position(step), "params": r.layout.Order, runSection: r.record.ID}
	if usual := state[stateLen : stateLen+usualLen]; usual[usualLen-1] > 0 {
		sections[usualSection] = usual
	}
	if r.cfg.Run.Train.AnyPlan() {
		sections[reachSection] = state[filedLen-1]
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
