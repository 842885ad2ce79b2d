package fidelity

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
)

// ProgramSlots runs the 1F1B program of a pipeline of equal stages in the simulator, with full recompute:
// forward 1, backward 3 of 4.
func ProgramSlots() cost.Slots {
	type key struct{ p, m int }
	known := map[key]float64{}
	return func(p, m int) (float64, error) {
		if x, ok := known[key{p, m}]; ok {
			return x, nil
		}
		x, err := simulateRow(&cost.Measured{PP: p, Micro: 1, Batch: m, DP: 1}, &cost.Pieces{Products: 1})
		if err != nil {
			return 0, err
		}
		known[key{p, m}] = x
		return x, nil
	}
}

// simulateRow runs a row's program with the behaviours of training: the stages' passes, the messages between
// them, which a stage sends itself, the logits on the last stage, and the exchange and step at the end. The
// time is in seconds.
func simulateRow(r *cost.Measured, p *cost.Pieces) (float64, error) {
	prog, err := schedule.Build("1f1b", schedule.Shape{Ranks: r.PP, Micro: r.Microbatches()})
	if err != nil {
		return 0, exit.With(err, exit.Usage)
	}
	d := &sim.Description{Mesh: topology.Grid(r.PP, 1, 1), Program: prog, Steps: 1,
		Update: []core.Segment{{Ready: true}}, Passes: func(plan.Action) []core.Segment {
			return rehearsal.OnePass
		}}
	res := sim.New(d.Layout(), sim.Prices{Job: func(rank int, j *actors.Job, _ *core.Segment) int64 {
		switch {
		case rank < 0, j.Kind == actors.UpdatePhase && j.Segment > 0:
			return 0
		case j.Kind == actors.UpdatePhase:
			return int64(math.Round(1e9 * (p.DP + p.Step)))
		}
		t := p.Stage()
		if rank == r.PP-1 {
			t += p.Logits
		}
		if j.Action.Kind == plan.F {
			return int64(math.Round(1e9 * (t/4 + p.Message)))
		}
		return int64(math.Round(1e9 * (3*t/4 + p.Message)))
	}}, sim.Options{}).Run()
	if res.Failed != "" || res.Stall != nil {
		return 0, fmt.Errorf("the simulated run ended badly: %s", rehearsal.Why(res))
	}
	return res.Steps[0].Time / 1e9, nil
}

// Prediction is one row beside what was measured.
type Prediction struct {
	Row       cost.Measured `json:"row"`
	Terms     cost.Terms    `json:"terms_s"`
	Predicted float64       `json:"predicted_s"`
	Error     *float64      `json:"relative_error,omitempty"`
}

// Predict simulates each row under the constants of its cluster.
func Predict(k *cost.Constants, rows []cost.Measured, slots cost.Slots) (all []Prediction, err error) {
	for _, r := range rows {
		n, err := slots(r.PP, r.Microbatches())
		if err != nil {
			return nil, err
		}
		p, pieces := Prediction{Row: r, Terms: k.Predict(&r, n)}, k.Pieces(&r)
		if p.Predicted, err = simulateRow(&r, &pieces); err != nil {
			return nil, err
		}
		if r.Seconds > 0 {
			e := p.Predicted/r.Seconds - 1
			p.Error = &e
		}
		all = append(all, p)
	}
	return all, nil
}
