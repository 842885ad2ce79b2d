// Package core holds lfactor's protocols as state machines without I/O: messages in, effects only through actors.Context.
// It reads no clock, no global randomness and no map order; cmd/lfvet checks this.
package core

import (
	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// Comm is one communication at the end of a segment, among the ranks of a group.
type Comm struct {
	Group int   // index into RankLayout.Groups
	Bytes int64 // that this rank sends in all
}

// Segment is what a behaviour knows of a piece of work between communications.
type Segment struct {
	Comms []Comm
	Flops int64
	Bytes int64 // moved by its kernels
	Calls int
}

// Port joins two stages: an activation flows along it, and its cotangent back when Grad is set.
type Port struct {
	ID       int32 // dense over the model
	From, To int   // stages
	Grad     bool
	Bytes    int64
}

// Group is a set of ranks that communicate, in the order in which sums are taken; Pos is the owner's place in it.
type Group struct {
	Members []actors.Ref
	Pos     int
}

// RankLayout is what the plan says about one rank: plain values, made once.
type RankLayout struct {
	Rank        int
	Program     *plan.Program                     // of a training step
	Row         int                               // this rank's row in the programs
	Eval        *plan.Program                     // of an evaluation step, or nil
	Lower       func(plan.Action, bool) []Segment // segments of an action; true for evaluation
	Update      []Segment                         // of the optimizer step
	Groups      []Group
	Ports       []Port
	Peer        func(stage int) actors.Ref // the rank of this replica that owns a stage
	Loader      actors.Ref
	Coordinator actors.Ref
	Credits     int // messages in flight on one edge
}

// inputs lists the ports that stage s takes.
func (l *RankLayout) inputs(s int) (out []Port) {
	for _, p := range l.Ports {
		if p.To == s {
			out = append(out, p)
		}
	}
	return
}

// outputs lists the ports that leave stage s.
func (l *RankLayout) outputs(s int) (out []Port) {
	for _, p := range l.Ports {
		if p.From == s {
			out = append(out, p)
		}
	}
	return
}
