package run

import (
	"fmt"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
)

// Width is a number of replicas that a run can have: what a cluster goes down to where a host is lost and no
// other has room.
type Width struct {
	Replicas int
	Procs    int      // processes that the run has then
	Bytes    []int64  // of memory that each of them needs
	Args     []string // settings that ask for it
}

// Sizer is a Fleet that places processes by the memory that they need.
type Sizer interface {
	// Widths takes in with how many replicas the run can do, the most first, beginning with those that it has.
	Widths(all []Width)
}

// widthsMost bounds how many plans with fewer replicas are laid out.
const widthsMost = 8

// tellWidths tells the fleet of a run with how many replicas it can do. To lay the plans out takes a while
// for a large model, for which nobody waits.
func (r *Run) tellWidths(f Fleet) {
	if s, ok := f.(Sizer); ok {
		go func() { s.Widths(r.widths()) }()
	}
}

// widths are the numbers of replicas that a run can have.
func (r *Run) widths() []Width {
	all := []Width{widthOf(r.layout, r.cfg, nil)}
	plan := r.cfg.Run.Plan
	for dp := plan.DP - 1; dp > 0 && len(all) < widthsMost; dp-- {
		procs := max(1, plan.Procs*dp/plan.DP)
		args := []string{fmt.Sprint("plan.dp=", dp), fmt.Sprint("plan.procs=", procs)}
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: r.cfg.YAML(), Args: args})
		if err != nil {
			continue // as where the batch does not divide by so many
		}
		if err := cfg.CheckVocab(r.cfg.Model.Vocab); err != nil {
			continue
		}
		job, err := layout.FromConfig(cfg)
		if err != nil {
			continue
		}
		if l, err := layout.New(job); err == nil {
			all = append(all, widthOf(l, cfg, args))
		}
	}
	return all
}

// widthOf is what a plan needs: its budgets, where it has some, else what it is predicted to take.
func widthOf(l *layout.Layout, cfg *configs.Config, args []string) Width {
	w := Width{Replicas: l.Design.Mesh.Replicas(), Procs: max(1, cfg.Run.Plan.Procs), Args: args}
	w.Bytes = make([]int64, w.Procs)
	for rank := range l.World() {
		need := int64(cfg.Run.Plan.Memory)
		if need == 0 {
			need = l.Memory(rank).WorstTotal()
		}
		w.Bytes[l.Owner(rank, w.Procs)] += need
	}
	return w
}
