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

// wire is one end of a port: the neighbour's rank and what runs along it.
type wire struct {
	id   int32
	peer actors.Ref
	grad bool
}

// wiring is the ports of one stage of a rank, with the ranks at their other ends.
type wiring struct {
	stage   int16
	in, out []wire
}

// wires lists the ports of every stage that a rank has, in the two lists that it is given as far as they reach.
func (l *RankLayout) wires(all []wiring, ends []wire) []wiring {
	for s, row := range l.Program.StageRank {
		if row != l.Row {
			continue
		}
		w := wiring{stage: int16(s)}
		first := len(ends)
		for i := range l.Ports {
			if p := &l.Ports[i]; p.To == s {
				ends = append(ends, wire{p.ID, l.Peer(p.From), p.Grad})
			}
		}
		w.in, first = ends[first:len(ends):len(ends)], len(ends)
		for i := range l.Ports {
			if p := &l.Ports[i]; p.From == s {
				ends = append(ends, wire{p.ID, l.Peer(p.To), p.Grad})
			}
		}
		w.out = ends[first:len(ends):len(ends)]
		all = append(all, w)
	}
	return all
}
