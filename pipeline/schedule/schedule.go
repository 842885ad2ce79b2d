// Package schedule builds programs: one file a schedule, which registers itself with its paper's claims, so that adding a
// schedule edits no existing file.
package schedule

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lfactor/lfactor/pipeline/plan"
)

// Shape is what a schedule needs to know.
type Shape struct {
	Ranks int   // pipeline-parallel ranks
	Micro int   // microbatches a step
	Loops int   // stages a rank, 0 is 1
	Split []int // chunks of each microbatch, nil is one each
}

// Schedule is a builder together with what its paper claims, so that one test can hold every schedule to its own claims.
type Schedule struct {
	Name  string
	Paper string // arXiv id
	Build func(Shape) (*plan.Program, error)
	Ticks func(s Shape, f, b int) int // length of a step with equal stages and free communication
	Live  func(s Shape, rank int) int // most microbatches whose activations rank holds
}

var all = map[string]Schedule{}

// register is called from a package-level variable of each schedule's own file.
func register(s Schedule) struct{} {
	if _, dup := all[s.Name]; dup {
		panic("schedule: " + s.Name + " registered twice")
	}
	all[s.Name] = s
	return struct{}{}
}

// Names lists the schedules in order.
func Names() []string { return slices.Sorted(maps.Keys(all)) }

// Get returns the named schedule.
func Get(name string) (Schedule, error) {
	s, ok := all[name]
	if !ok {
		return s, fmt.Errorf("schedule %q: unknown, have %v", name, Names())
	}
	return s, nil
}

// Build makes the named program and checks it.
func Build(name string, shape Shape) (*plan.Program, error) {
	s, err := Get(name)
	if err != nil {
		return nil, err
	}
	p, err := s.Build(shape)
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("schedule %q %+v: %w", name, shape, err)
	}
	return p, nil
}

// chain is an empty program of one stage a rank.
func chain(s Shape) *plan.Program {
	p := &plan.Program{Rows: make([][]plan.Entry, s.Ranks), Micro: s.Micro, Chunks: s.Split}
	for r := range s.Ranks {
		p.StageRank = append(p.StageRank, r)
	}
	return p
}

func entry(k plan.Kind, stage, micro int) plan.Entry {
	return plan.Entry{Action: plan.Action{Kind: k, Stage: int16(stage), Micro: int32(micro)}}
}
