package run

import (
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
)

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
