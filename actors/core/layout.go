package core

import (
	"fmt"

	"iter"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// Comm is one communication at the end of a segment, among the ranks of a group.
type Comm struct {
	Group int   // index into RankLayout.Groups
	Bytes int64 // that this rank sends in all
	// Apart is set where each member gets a part of its own, which nobody adds up or passes on: rows that go to
	// their experts and back, tokens exchanged for heads.
	Apart bool
	// Shift other than 0 is a rotation: each member sends to the one so many places on, and takes from the
	// one as many places before.
	Shift int
	// Early is set for a communication of the optimizer step that jobs of the program issue, as
	// RankLayout.Early says, and its own segment does not.
	Early bool
}

// parts is the number of parts that a member of the group takes.
func (c *Comm) parts(g *Group) int {
	if c.Shift != 0 {
		return 1
	}
	return len(g.Members)
}

// From is the member that part i comes from.
func (c *Comm) From(g *Group, i int) int {
	if c.Shift == 0 {
		return i
	}
	n := len(g.Members)
	return ((g.Pos-c.Shift)%n + n) % n
}

// Segment is what a behaviour knows of a piece of work between communications: it begins when those that it
// awaits have arrived, and issues its own at its end.
type Segment struct {
	Await []Issued // communications of earlier segments of the action, each awaited once
	Comms []Comm
	Flops int64 // that the device could do in the time of its arithmetic
	Bytes int64 // moved by kernels that do not hide it behind their own arithmetic
	Calls int
	Away  int64 // bytes that it offloads to host memory when it has ended
	Back  int64 // offloaded bytes that must be on the device before it begins
	// bytes that come from host memory and go back there, in pieces, while it runs
	Through int64
	// Ready ends the part of the optimizer step that may still be given up: the rank reports its gradients' norms to
	// the coordinator, keeps the gradients, and runs the next segment when the coordinator has committed the step.
	Ready bool
}

// Alternate goes through the segments of two overlapped actions in the order in which a rank runs them:
// which of the two, and its segment. One goes on until its next segment awaits something, then it is the other's turn.
func Alternate(actions [2][]Segment) iter.Seq2[int, int] {
	return func(yield func(action, segment int) bool) {
		at, turn := [2]int{}, 0
		for {
			if at[turn] == len(actions[turn]) {
				if turn = 1 - turn; at[turn] == len(actions[turn]) {
					return
				}
			}
			if !yield(turn, at[turn]) {
				return
			}
			at[turn]++
			ended, other := at[turn] == len(actions[turn]), at[1-turn] < len(actions[1-turn])
			if other && (ended || len(actions[turn][at[turn]].Await) > 0) {
				turn = 1 - turn
			}
		}
	}
}

// Issued names a communication of an action: the i-th of a segment.
type Issued struct{ Segment, Comm int32 }

// Chain lets every segment await all that the one before has issued. A last segment behind which something
// is still to come, a communication or the commit of the step, gets an empty one behind it.
func Chain(segs []Segment) []Segment {
	out := append([]Segment{}, segs...)
	if n := len(out); n > 0 && (len(out[n-1].Comms) > 0 || out[n-1].Ready) {
		out = append(out, Segment{})
	}
	for i := 1; i < len(out); i++ {
		out[i].Await = nil
		for k := range out[i-1].Comms {
			out[i].Await = append(out[i].Await, Issued{int32(i - 1), int32(k)})
		}
	}
	return out
}

// Early says which communications of the optimizer step are issued by jobs of the program, as soon as what
// they send is final. They are awaited in the optimizer step, like those that it issues itself.
type Early struct {
	Segment int32 // of the optimizer step that they belong to
	// Of lists those that a job issues: places in the segment's list. It is nil for most jobs.
	Of func(a plan.Action, class, segment int32) []int32
}

// Port joins two stages: an activation flows along it, and its cotangent back when Grad is set.
type Port struct {
	ID       int32 // dense over the model
	From, To int   // stages
	Grad     bool
	Bytes    int64
	Optional bool // microbatches of some classes send nothing along it: features of images
}

// Route says which ranks send and take what runs along a port, where a stage runs on other ranks for other
// microbatches: microbatch m goes by entry m modulo the length. A rank that has only one side leaves the other's empty.
type Route struct {
	From []actors.Ref   // who sends this rank the port's value
	To   [][]actors.Ref // to whom this rank sends its own; none drops it
}

// Group is a set of ranks that communicate, in the order in which sums are taken; Pos is the owner's place in it.
type Group struct {
	Members []actors.Ref
	Pos     int
}

// RankLayout is what the plan says about one rank: plain values, made once.
type RankLayout struct {
	// What every action reads comes first, in one line of a cache.

	// Lower lists the segments of an action; true for evaluation. Class is that of the microbatch's shape; a
	// stage whose forward has no segments for a class does nothing for such microbatches: an encoder, when
	// there are no images.
	Lower       func(a plan.Action, eval bool, class int32) []Segment
	Early       *Early // communications of the optimizer step that begin before it; nil for none
	Shaped      bool   // segments depend on the microbatch's class: an action waits for its data
	Loader      actors.Ref
	Coordinator actors.Ref
	Credits     int // messages in flight on one edge

	Rank    int
	Program *plan.Program // of a training step
	Row     int           // this rank's row in the programs
	Eval    *plan.Program // of an evaluation step, or nil
	// Absent reports whether an optional port carries nothing for microbatches of a class;
	// nil where no port is optional.
	Absent func(port, class int32) bool
	Update []Segment // of the optimizer step
	Moving []Segment // the same where experts move behind it: it goes on behind the commit; nil where the rank has none
	Groups []Group
	Ports  []Port
	Peer   func(stage int) actors.Ref // the rank of this replica that owns a stage
	// Routes of activations and of cotangents by port, for ports whose ends are not one rank each; nil for none.
	Routes func(port int32, back bool) *Route
}

// wire is one end of a port: the neighbour's rank and what runs along it.
type wire struct {
	id   int32
	peer actors.Ref
	far  int16 // stage at the other end
	is   wireIs
}

type wireIs uint8

const (
	withGrad wireIs = 1 << iota // a cotangent runs back
	routed                      // the layout's Routes say who is at the other end, by microbatch
	optional
)

// wiring is the ports of one stage of a rank, with the ranks at their other ends.
type wiring struct {
	stage   int16
	in, out []wire
}

// wires lists the ports of every stage that a rank has, in the two lists that it is given as far as they reach.
func (l *RankLayout) wires(all []wiring, ends []wire) []wiring {
	end := func(p *Port, stage int) wire {
		w := wire{id: p.ID, far: int16(stage)}
		if p.Grad {
			w.is |= withGrad
		}
		if p.Optional {
			w.is |= optional
		}
		if l.Routes != nil && l.Routes(p.ID, false) != nil {
			w.is |= routed
		} else {
			w.peer = l.Peer(stage)
		}
		return w
	}
	for s := range l.Program.StageRank {
		if !l.Program.Owns(s, l.Row) {
			continue
		}
		w := wiring{stage: int16(s)}
		first := len(ends)
		for i := range l.Ports {
			if p := &l.Ports[i]; p.To == s {
				ends = append(ends, end(p, p.From))
			}
		}
		w.in, first = ends[first:len(ends):len(ends)], len(ends)
		for i := range l.Ports {
			if p := &l.Ports[i]; p.From == s {
				ends = append(ends, end(p, p.To))
			}
		}
		w.out = ends[first:len(ends):len(ends)]
		all = append(all, w)
	}
	return all
}

// StepName is a step in words: batches of an evaluation have negative numbers, from -1 on.
func StepName(step int64) string {
	if step < 0 {
		return fmt.Sprintf("evaluation batch %d", -step)
	}
	return fmt.Sprintf("step %d", step)
}
