package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/block"
)

// writeEdges writes down what the actors of a process have sent.
func (r *Run) writeEdges(proc int) func([]host.Edge) {
	return func(all []host.Edge) {
		text, err := json.Marshal(all)
		if err == nil {
			name := filepath.Join(r.cfg.Run.Log.Dir, fmt.Sprintf("edges-%d.json", proc))
			err = os.WriteFile(name, text, 0o600)
		}
		if err != nil {
			fmt.Fprintf(r.io.Warnings, "! what was sent is not written down: %v\n", err)
		}
	}
}

// capture keeps what Options.Capture asks for.
func (r *Run) capture(o *host.RunOptions) error {
	if r.io.Capture == "" {
		return nil
	}
	to := r.io.CaptureDir
	if to == "" {
		to = filepath.Join(r.cfg.Run.Log.Dir, "edges")
	}
	var err error
	o.Capture, err = host.NewCapture(r.io.Capture, to, r.layout.ActorNames(o.Procs), func(err error) {
		fmt.Fprintf(r.io.Warnings, "! messages are not kept any more: %v; training goes on\n", err)
	})
	if err != nil {
		return exit.With(fmt.Errorf("--capture %w", err), exit.Usage)
	}
	return nil
}

// forgetEdges removes what earlier runs have written of their edges.
func forgetEdges(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "edges-*.json")) // the pattern is right
	for _, f := range files {
		_ = os.Remove(f) // else it is replaced
	}
}

// ErrNoEdges says that a directory has no run whose edges are known.
var ErrNoEdges = errors.New("no run here has written down its edges, and none is under way")

// Edges lists what the actors of a run have sent each other: of one under way, by asking its processes; of
// one that has ended, as these have written it down. Silent are processes that do not answer.
func Edges(dir string, timeout time.Duration) (all []host.Edge, silent []host.Silent, err error) {
	status, silent, err := host.AskWhy(dir, timeout)
	if err == nil {
		for _, s := range status {
			all = append(all, s.Sent...)
		}
		return all, silent, nil
	}
	for n := 0; ; n++ {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("edges-%d.json", n)))
		switch {
		case errors.Is(err, os.ErrNotExist) && n > 0:
			return all, nil, nil
		case errors.Is(err, os.ErrNotExist):
			return nil, nil, exit.With(fmt.Errorf("%s: %w", dir, ErrNoEdges), exit.Corrupt)
		case err != nil:
			return nil, nil, err
		}
		var part []host.Edge
		if err := json.Unmarshal(text, &part); err != nil {
			return nil, nil, exit.With(fmt.Errorf("%s: edges-%d.json: %w", dir, n, err), exit.Corrupt)
		}
		all = append(all, part...)
	}
}

// TensorsName is the folder of what a run writes down of its tensors, below its own.
const TensorsName = "tensors"

// sight is what the run writes down of its tensors; nil for nothing.
func (r *Run) sight() *host.Sight {
	l := &r.cfg.Run.Log
	if len(l.Tensors) == 0 {
		return nil
	}
	var steps []configs.Steps
	for _, text := range l.TensorSteps {
		s, err := configs.ParseSteps(text)
		if err != nil {
			panic("run: steps that were checked: " + err.Error())
		}
		steps = append(steps, s)
	}
	return &host.Sight{Dir: filepath.Join(l.Dir, TensorsName), Values: l.TensorValues, Names: func(name string) bool {
		return slices.ContainsFunc(l.Tensors, func(p string) bool { return block.Match(p, name) })
	}, Steps: func(step int64) bool {
		return slices.ContainsFunc(steps, func(s configs.Steps) bool { return s.Has(step) })
	}, Micro: func(micro int) bool { return slices.Contains(l.TensorMicro, micro) }}
}
