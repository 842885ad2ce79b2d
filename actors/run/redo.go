package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Redone is a step that was trained once more from the state behind the step before, in one process.
type Redone struct {
	// Missing says why it was not: there is no state, or the run's metrics do not have the step.
	Missing  string  `json:"missing,omitempty"`
	Loss     float64 `json:"loss"`
	GradNorm float64 `json:"grad_norm"`
	// Same says that loss and norm of the gradient have the bits that the run wrote down.
	Same bool `json:"same"`
	// Weights are the parameters behind the step where a checkpoint has those of the run: "same", or the
	// name of the first that differs; "" where there is none.
	Weights string `json:"weights,omitempty"`
}

// redo trains a step once more: answers that were in flight are those of the checkpoint, the others are drawn and
// judged again, and gradient and update are those of the plan of the run with all its ranks in this process.
func redo(cfg *configs.Config, step int64) (*Redone, error) {
	all, err := allMetrics(filepath.Join(cfg.Run.Log.Dir, "metrics.jsonl"))
	was, ok := all[step]
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if !ok {
		return &Redone{Missing: fmt.Sprintf("metrics.jsonl does not have step %d", step)}, err
	}
	tmp, err := os.MkdirTemp("", "lfactor-replay-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // rubbish of the system's folder for it
	kept, err := keptBy(cfg)
	if err != nil {
		return nil, err
	}
	if kept[step-1] == "" && step > 1 {
		return &Redone{Missing: fmt.Sprintf("there is no checkpoint of step %d", step-1)}, nil
	}
	c := *cfg
	if dir := cfg.Run.Objective.Cache; dir == "" { // what is kept of the reference is kept for this too
		c.Run.Objective.Cache = filepath.Join(cfg.Run.Log.Dir, "reference")
	}
	out := &Redone{}
	if err := trainAgain(context.Background(), &c, tmp, kept[step-1], step, func(m Metrics) {
		if m.Step == step {
			out.Loss, out.GradNorm = m.Loss, m.GradNorm
		}
	}); err != nil {
		return nil, fmt.Errorf("training step %d again: %w", step, err)
	}
	out.Same = out.Loss == was.Loss && out.GradNorm == was.GradNorm
	if then, ok := kept[step]; ok {
		out.Weights, err = sameParams(then, filepath.Join(tmp, "checkpoints"))
	}
	return out, err
}

// keptBy are the folders of the checkpoints of a run that are still there, by step.
func keptBy(cfg *configs.Config) (map[int64]string, error) {
	kept := map[int64]string{}
	if cfg.Run.Checkpoint.Dir == "" {
		return kept, nil
	}
	all, err := checkpoint.List(cfg.Run.Checkpoint.Dir)
	for _, e := range all {
		if err == nil {
			kept[e.Step], err = filepath.Abs(e.Path)
		}
	}
	return kept, err
}

// trainAgain trains a run up to a step once more, with all ranks in this process, from a checkpoint of it or, without
// one, from its beginning. All that it writes lies in tmp: records in run, and the state behind the step in
// checkpoints.
func trainAgain(ctx context.Context, cfg *configs.Config, tmp, from string, step int64, see func(Metrics)) error {
	root := filepath.Join(tmp, "checkpoints")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	if from != "" {
		name := filepath.Base(from)
		if err := errors.Join(os.Symlink(from, filepath.Join(root, name)),
			os.WriteFile(filepath.Join(root, "latest"), []byte(name), 0o600)); err != nil {
			return err
		}
	}
	c := *cfg
	c.Notices = nil
	c.Run.Checkpoint.Dir, c.Run.Checkpoint.SaveHF, c.Run.Checkpoint.Keep = root, false, 2
	c.Run.Checkpoint.Interval, c.Run.Checkpoint.Best = 0, false
	c.Run.Train.EvalInterval, c.Run.Train.Patience, c.Run.Train.PatienceDelta = 0, 0, 0
	c.Run.Log.Trackers, c.Run.Log.TensorBoard = nil, ""
	if c.Run.Schedule.DecaySteps == 0 { // which rates follow from
		c.Run.Schedule.DecaySteps = cfg.Run.Train.Steps
	}
	c.Run.Log.Dir, c.Run.Train.Steps = filepath.Join(tmp, "run"), int(step)
	c.Run.Plan.Procs, c.Run.Rollout.Samplers, c.Run.Reward.Judges = 1, 0, 0
	return Train(ctx, &c, Options{Progress: io.Discard, Step: see})
}

// sameParams is "same", or the first parameter that differs between two checkpoints.
func sameParams(a, b string) (string, error) {
	var both [2]checkpoint.Source
	for i, dir := range []string{a, b} {
		r, err := checkpoint.Open(dir)
		if err != nil {
			return "", err
		}
		defer r.Close() //nolint:errcheck // it is only read
		both[i] = r.Kind("param")
	}
	diff, err := checkpoint.Diff(both[0], both[1])
	if err != nil || len(diff) == 0 {
		return "same", err
	}
	return diff[0].Name, nil
}
