package layout

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/topology"
)

// EncoderPlan gives a vision tower and its projector a mesh of their own beside the decoder's.
type EncoderPlan struct {
	TP    int // tensor parallelism of the tower
	Over  string
	Ranks int // ranks of their own for each replica of the decoder, for OverOwn
	Ahead int // microbatches encoded before their consumer runs; 0 chooses
	Fill  bool
}

// Where replicas of the encoder live: on the tensor-parallel group of the first pipeline rank, on all ranks of the decoder's
// replica, or on ranks of their own. With TP smaller than such a set there are several replicas, which take microbatches in turn.
const (
	OverFirst = "first"
	OverAll   = "all"
	OverOwn   = "own"
)

// Check reports a plan that the decoder's mesh, or the tower, cannot carry out.
func (e *EncoderPlan) Check(m topology.Mesh, heads, inter int) error {
	n := e.slots(m)
	switch {
	case e.Over != OverFirst && e.Over != OverAll && e.Over != OverOwn:
		return fmt.Errorf("encoder over %q: want %s, %s or %s", e.Over, OverFirst, OverAll, OverOwn)
	case e.Over == OverOwn && e.Ranks < 1:
		return fmt.Errorf("an encoder on ranks of its own needs at least one; set plan.encoder.ranks")
	case e.TP < 1 || n%e.TP != 0:
		return fmt.Errorf("encoder tp=%d does not divide the %d ranks that it runs on; set plan.encoder.tp to a divisor", e.TP, n)
	case e.Over != OverOwn && m.TP%e.TP != 0:
		return fmt.Errorf("encoder tp=%d does not divide the decoder's tp=%d; set plan.encoder.tp to a divisor, or give the encoder ranks of its own", e.TP, m.TP)
	case heads%e.TP != 0 || inter%e.TP != 0:
		return fmt.Errorf("encoder tp=%d does not divide the tower's %d heads and MLP width %d", e.TP, heads, inter)
	}
	return nil
}

// slots is the number of ranks of a replica on which the encoder runs.
func (e *EncoderPlan) slots(m topology.Mesh) int {
	switch e.Over {
	case OverAll:
		return m.TP * m.PP
	case OverOwn:
		return e.Ranks
	}
	return m.TP
}

// Side is a rank's place on the mesh of a component: the decoder's (0) or the encoder's (1). A rank that has no part in it is
// alone there.
type Side struct{ TPPos, TP, DPPos, DP int }

// Axes of a side's mesh, as its traces list them.
const (
	AxisDP = iota
	AxisTP
)

// meshOf is a side's mesh as the tape sees it.
func meshOf(m Side, rows bool) []grad.MeshAxis {
	return []grad.MeshAxis{{Name: "dp", Size: m.DP, Data: true, Zero: true}, {Name: grad.TP, Size: m.TP, Rows: rows}}
}

// Sides of a rank.
const (
	DecoderSide = iota
	EncoderSide
	NumSides
)

// own is the number of ranks of a replica that run the encoder alone.
func (l *Layout) own() int {
	if e := l.Job.Encoder; e != nil && e.Over == OverOwn {
		return e.Ranks
	}
	return 0
}

// World is the number of ranks of the run.
func (l *Layout) World() int { return l.Job.Mesh.Size() + l.Job.Mesh.DP*l.own() }

// LocalRanks is the number of ranks of one replica of the decoder with those of its encoder.
func (l *Layout) LocalRanks() int { return l.Job.Mesh.PP*l.Job.Mesh.TP + l.own() }

// Local is the replica of a rank and its number there: the decoder's by pipeline rank and tensor-parallel place, then the
// encoder's own.
func (l *Layout) Local(rank int) (dp, local int) {
	m := l.Job.Mesh
	if rank < m.Size() {
		c := m.Coord(rank)
		return c.DP, c.PP*m.TP + c.TP
	}
	n := rank - m.Size()
	return n / l.own(), m.PP*m.TP + n%l.own()
}

// Global is the inverse of Local.
func (l *Layout) Global(dp, local int) int {
	m := l.Job.Mesh
	if local < m.PP*m.TP {
		return m.Rank(topology.Coord{PP: local / m.TP, DP: dp, TP: local % m.TP})
	}
	return m.Size() + dp*l.own() + local - m.PP*m.TP
}

// Name is how messages name a rank.
func (l *Layout) Name(rank int) string {
	if rank < l.Job.Mesh.Size() {
		return l.Job.Mesh.Name(rank)
	}
	dp, local := l.Local(rank)
	return fmt.Sprintf("rank %d (encoder %d dp %d)", rank, local-l.Job.Mesh.PP*l.Job.Mesh.TP, dp)
}

// encoderGroups are the replicas of the encoder as local ranks; microbatch m is encoded by replica m modulo their number.
func (l *Layout) encoderGroups() (out [][]int) {
	e := l.Job.Encoder
	first := 0
	if e.Over == OverOwn {
		first = l.Job.Mesh.PP * l.Job.Mesh.TP
	}
	for g := range e.slots(l.Job.Mesh) / e.TP {
		var group []int
		for t := range e.TP {
			group = append(group, first+g*e.TP+t)
		}
		out = append(out, group)
	}
	return
}

// encoderPos is the replica of the encoder that a local rank belongs to and its place there, or -1.
func (l *Layout) encoderPos(local int) (group, pos int) {
	if l.Job.Encoder == nil {
		return -1, -1
	}
	for g, ranks := range l.encoderGroups() {
		for i, r := range ranks {
			if r == local {
				return g, i
			}
		}
	}
	return -1, -1
}

// Side is the mesh of a stage: the encoder's is the first stage where it has a mesh of its own.
func (l *Layout) Side(stage int) int {
	if l.Job.Encoder != nil && stage == 0 {
		return EncoderSide
	}
	return DecoderSide
}

// sides are rank's places.
func (l *Layout) sides(rank int) (out [NumSides]Side) {
	m := l.Job.Mesh
	out = [NumSides]Side{{TP: 1, DP: 1}, {TP: 1, DP: 1}}
	dp, local := l.Local(rank)
	if rank < m.Size() {
		c := m.Coord(rank)
		out[DecoderSide] = Side{c.TP, m.TP, c.DP, m.DP}
	}
	if g, pos := l.encoderPos(local); g >= 0 {
		n := len(l.encoderGroups())
		out[EncoderSide] = Side{pos, l.Job.Encoder.TP, dp*n + g, m.DP * n}
	}
	return
}

// sideGroups are the ranks with which rank shares tensors and replicas of a component, in the order of sums.
func (l *Layout) sideGroups(rank, side int) (tp, dp []int) {
	m := l.Job.Mesh
	if side == DecoderSide {
		if rank >= m.Size() {
			return []int{rank}, []int{rank}
		}
		return m.TPGroup(rank), m.DPGroup(rank)
	}
	replica, local := l.Local(rank)
	g, pos := l.encoderPos(local)
	if g < 0 {
		return []int{rank}, []int{rank}
	}
	groups := l.encoderGroups()
	for _, r := range groups[g] {
		tp = append(tp, l.Global(replica, r))
	}
	for d := range m.DP {
		for _, ranks := range groups {
			dp = append(dp, l.Global(d, ranks[pos]))
		}
	}
	return tp, dp
}

// routes makes the table of who sends and takes what runs between the encoder and the decoder, for one rank: features go to every
// rank of the consumer's tensor-parallel group, and one of those sends the cotangent back to each rank of the encoder's, both
// being replicated on either side.
func (l *Layout) routes(rank int) func(port int32, back bool) *core.Route {
	if l.Job.Encoder == nil {
		return nil
	}
	type ends [2]*core.Route
	table := make([]ends, len(l.Ports))
	for i, p := range l.Ports {
		if l.Side(p.From) == EncoderSide {
			table[i] = ends{l.route(rank, p, false), l.route(rank, p, true)}
		}
	}
	return func(port int32, back bool) *core.Route {
		if back {
			return table[port][1]
		}
		return table[port][0]
	}
}

func (l *Layout) route(rank int, p core.Port, back bool) *core.Route {
	dp, local := l.Local(rank)
	m := l.Job.Mesh
	consumers := make([]int, m.TP)
	for t := range consumers {
		consumers[t] = l.pipeOf(p.To)*m.TP + t
	}
	r := &core.Route{}
	for _, group := range l.encoderGroups() {
		from, to := group, consumers
		if back {
			from, to = consumers, group
		}
		r.From = append(r.From, RankRef(l.Global(dp, from[placeIn(to, local)%len(from)])))
		var refs []actors.Ref
		for i, t := range to {
			if at := placeOf(from, local); at >= 0 && i%len(from) == at {
				refs = append(refs, RankRef(l.Global(dp, t)))
			}
		}
		r.To = append(r.To, refs)
	}
	return r
}

// placeOf is the index of x in list, or -1; placeIn is 0 where x is not.
func placeOf(list []int, x int) int {
	for i, v := range list {
		if v == x {
			return i
		}
	}
	return -1
}

func placeIn(list []int, x int) int { return max(0, placeOf(list, x)) }

// pipeOf is the pipeline rank of a decoder stage.
func (l *Layout) pipeOf(stage int) int { return l.pipe[stage] }
