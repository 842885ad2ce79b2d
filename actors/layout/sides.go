package layout

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology"
)

// PartPlan gives a leading component of a model, such as a vision tower with its projector, a mesh of its
// own beside the decoder's.
type PartPlan struct {
	From   int // its first block; it ends where the next part, or the decoder, begins
	TP     int // its tensor parallelism
	Over   string
	Ranks  int // ranks of its own for each replica of the decoder, for OverOwn
	Ahead  int // microbatches that it works on before their consumer runs; 0 chooses
	Fill   bool
	Widths []int // heads and widths that TP has to divide
}

// TowerParts are the parts of a model whose vision tower, with its projector, has the given plan; nil is none.
func TowerParts(m *family.Model, e *PartPlan) []*PartPlan {
	if e == nil {
		return nil
	}
	out := *e
	if v := m.Vision; v != nil {
		out.Widths = []int{v.Tower.Heads, v.Tower.Inter}
	}
	return []*PartPlan{&out}
}

// Where replicas of a part live: on the ranks of the first pipeline rank, on all ranks of the decoder's replica, or on
// ranks of their own. With TP smaller than such a set there are several replicas, which take microbatches in turn.
const (
	OverFirst = "first"
	OverAll   = "all"
	OverOwn   = "own"
)

// Check reports a plan that the decoder's mesh, or the part, cannot carry out.
func (e *PartPlan) Check(m topology.Mesh) error {
	n, width := e.slots(m), widthOf(m)
	switch {
	case e.Over != OverFirst && e.Over != OverAll && e.Over != OverOwn:
		return fmt.Errorf("encoder over %q: want %s, %s or %s", e.Over, OverFirst, OverAll, OverOwn)
	case e.Over == OverOwn && e.Ranks < 1:
		return fmt.Errorf("an encoder on ranks of its own needs at least one; set plan.encoder.ranks")
	case e.TP < 1 || n%e.TP != 0:
		return fmt.Errorf("encoder tp=%d does not divide the %d ranks that it runs on; set "+
			"plan.encoder.tp to a divisor", e.TP, n)
	case e.Over != OverOwn && width%e.TP != 0:
		return fmt.Errorf("encoder tp=%d does not divide the decoder's tp=%d; set plan.encoder.tp to a "+
			"divisor, or give the encoder ranks of its own", e.TP, width)
	}
	for _, w := range e.Widths {
		if w%e.TP != 0 {
			return fmt.Errorf("encoder tp=%d does not divide the tower's heads and MLP widths %v; set "+
				"plan.encoder.tp to a divisor", e.TP, e.Widths)
		}
	}
	return nil
}

// widthOf is the number of ranks of one pipeline rank of one replica.
func widthOf(m topology.Mesh) int { return m.Size() / m.Replicas() / m.Len(topology.PP) }

// slots is the number of ranks of a replica on which the part runs.
func (e *PartPlan) slots(m topology.Mesh) int {
	switch e.Over {
	case OverAll:
		return m.Size() / m.Replicas()
	case OverOwn:
		return e.Ranks
	}
	return widthOf(m)
}

// DecoderSide is the side of the job's mesh; side i+1 is that of the i-th part with a mesh of its own.
const DecoderSide = 0

// Side is a rank's place on the mesh of a component.
type Side struct {
	Mesh []grad.MeshAxis // as the component's traces list it
	Pos  []int           // of the rank, by axis; nil for one that has no part in the component
}

// First reports whether the rank is the first of those that compute the same: a value that all of them
// have counts once.
func (s Side) First() bool {
	for m, a := range s.Mesh {
		if !a.Data && a.Fold == 0 && s.Pos != nil && s.Pos[m] > 0 {
			return false
		}
	}
	return true
}

// sidesOf is the number of sides.
func (l *Layout) sidesOf() int { return 1 + len(l.Design.Parts) }

// own is the number of ranks of a replica that run part i alone, and before how many such ranks of earlier parts lie.
func (l *Layout) own(i int) (n, before int) {
	for k, e := range l.Design.Parts[:i+1] {
		before += n
		if n = 0; e.Over == OverOwn {
			n = l.Design.Parts[k].Ranks
		}
	}
	return
}

// owned is the number of ranks of a replica that run parts alone.
func (l *Layout) owned() int {
	if len(l.Design.Parts) == 0 {
		return 0
	}
	n, before := l.own(len(l.Design.Parts) - 1)
	return n + before
}

// shared is the number of ranks of a replica that the decoder runs on.
func (l *Layout) shared() int { return l.Design.Mesh.Size() / l.Design.Mesh.Replicas() }

// World is the number of ranks of the run.
func (l *Layout) World() int { return l.Design.Mesh.Size() + l.Design.Mesh.Replicas()*l.owned() }

// LocalRanks is the number of ranks of one replica of the decoder with those of its parts.
func (l *Layout) LocalRanks() int { return l.shared() + l.owned() }

// Local is the replica of a rank and its number there: the decoder's by pipeline rank and place in it, then
// the parts' own.
func (l *Layout) Local(rank int) (dp, local int) {
	m := l.Design.Mesh
	if rank < m.Size() {
		return m.Replica(rank), m.Local(rank)
	}
	n := rank - m.Size()
	return n / l.owned(), l.shared() + n%l.owned()
}

// Global is the inverse of Local.
func (l *Layout) Global(dp, local int) int {
	if local < l.shared() {
		return l.Design.Mesh.Global(dp, local)
	}
	return l.Design.Mesh.Size() + dp*l.owned() + local - l.shared()
}

// Name is how messages name a rank.
func (l *Layout) Name(rank int) string {
	if rank < l.Design.Mesh.Size() {
		return l.Design.Mesh.Name(rank)
	}
	dp, local := l.Local(rank)
	return fmt.Sprintf("rank %d (encoder %d dp %d)", rank, local-l.shared(), dp)
}

// partGroups are the replicas of part i as local ranks; microbatch m belongs to replica m modulo their number.
func (l *Layout) partGroups(i int) (out [][]int) {
	e, first := l.Design.Parts[i], 0
	if e.Over == OverOwn {
		_, before := l.own(i)
		first = l.shared() + before
	}
	for g := range e.slots(l.Design.Mesh) / e.TP {
		var group []int
		for t := range e.TP {
			group = append(group, first+g*e.TP+t)
		}
		out = append(out, group)
	}
	return
}

// partPos is the replica of part i that a local rank belongs to and its place there, or -1.
func (l *Layout) partPos(i, local int) (group, pos int) {
	for g, ranks := range l.partGroups(i) {
		if at := slices.Index(ranks, local); at >= 0 {
			return g, at
		}
	}
	return -1, -1
}

// Side is the side of a stage: the parts with a mesh of their own are the first stages.
func (l *Layout) Side(stage int) int {
	if stage < len(l.Design.Parts) {
		return stage + 1
	}
	return DecoderSide
}

// mesh is that of a side as the tape sees it.
func (l *Layout) mesh(side int) (out []grad.MeshAxis) {
	m := l.Design.Mesh
	if side != DecoderSide {
		e := l.Design.Parts[side-1]
		return []grad.MeshAxis{{Name: topology.DP, Size: m.Replicas() * e.slots(m) / e.TP, Data: true,
			Zero: true}, {Name: topology.TP, Size: e.TP}}
	}
	for _, a := range m.Axes() {
		if a.Name == topology.PP {
			continue
		}
		x := grad.MeshAxis{Name: a.Name, Size: a.Size, Fold: a.Fold}
		switch a.Name {
		case topology.DPReplicate, topology.EDPReplicate:
			x.Data = true
		case topology.DP, topology.EDP:
			x.Data, x.Zero = true, true
		case topology.CP:
			x.Rows, x.Context, x.Zero, x.Ring, x.Zigzag = true, true, true, l.Design.Ring, l.Design.Zigzag
		case topology.Ulysses:
			x.Rows, x.Context, x.Zero, x.Exchange = true, true, true, true
		case topology.TP:
			x.Rows = l.Design.SeqParallel
		}
		out = append(out, x)
	}
	return
}

// place is a rank's on a side.
func (l *Layout) place(rank, side int) Side {
	m := l.Design.Mesh
	s := Side{Mesh: l.meshes[side]}
	if side == DecoderSide {
		if rank < m.Size() {
			s.Pos = []int{}
			for _, a := range s.Mesh {
				s.Pos = append(s.Pos, m.At(rank, a.Name))
			}
		}
		return s
	}
	dp, local := l.Local(rank)
	if g, pos := l.partPos(side-1, local); g >= 0 {
		s.Pos = []int{dp*len(l.partGroups(side-1)) + g, pos}
	}
	return s
}

// members are the ranks that differ from rank on some axes of a side only, in the order of sums.
func (l *Layout) members(rank, side int, axes []int) []int {
	s := l.place(rank, side)
	if s.Pos == nil {
		return []int{rank}
	}
	if side == DecoderSide {
		var names []string
		for _, m := range axes {
			names = append(names, s.Mesh[m].Name)
		}
		return l.Design.Mesh.Group(rank, names...)
	}
	groups, places := l.partGroups(side-1), [][]int{s.Pos}
	for _, m := range axes {
		var next [][]int
		for _, p := range places {
			for i := range s.Mesh[m].Size {
				q := slices.Clone(p)
				q[m] = i
				next = append(next, q)
			}
		}
		places = next
	}
	var out []int
	for _, p := range places {
		out = append(out, l.Global(p[0]/len(groups), groups[p[0]%len(groups)][p[1]]))
	}
	return out
}

// groupKey names a communication's group: some axes of a side.
type groupKey struct {
	side int
	axes string
}

// groupAxes lists every group that traces and the optimizer step communicate in: each axis by itself, the
// data axes together, and those over which state is sharded. A group's place in the list is its index in
// core.RankLayout.Groups; those of tied parameters follow.
func (l *Layout) groupAxes() {
	l.groups = map[groupKey]int{}
	add := l.groupAlong
	for side, mesh := range l.meshes {
		o := grad.Options{Mesh: mesh}
		for m := range mesh {
			add(side, []int{m})
		}
		for fold := range folds(mesh) {
			var data, others, reduced, rest, copies []int
			for m, a := range mesh {
				if a.Fold != fold || a.Size == 1 {
					continue
				}
				if a.Data {
					data = append(data, m)
				} else {
					others = append(others, m)
				}
				if a.Data || a.Zero {
					reduced = append(reduced, m)
				} else {
					rest = append(rest, m)
				}
				if a.Data && !a.Zero {
					copies = append(copies, m)
				}
			}
			for _, axes := range [][]int{data, others, reduced, rest, o.ZeroAxes(fold), copies} {
				add(side, axes)
			}
		}
	}
	add(DecoderSide, l.moveAxes())
}

// groupAlong adds a group of a side's axes if it is not there yet.
func (l *Layout) groupAlong(side int, axes []int) {
	k := groupKey{side, fmt.Sprint(axes)}
	if _, known := l.groups[k]; !known && len(axes) > 0 {
		l.groups[k] = len(l.axes)
		l.axes = append(l.axes, sideAxes{side, axes})
	}
}

// folds is the number of meshes folded over a side's ranks.
func folds(mesh []grad.MeshAxis) (n int) {
	for _, a := range mesh {
		n = max(n, a.Fold+1)
	}
	return
}

// sideAxes are axes of a side.
type sideAxes struct {
	side int
	axes []int
}

// Group is the index of the group along some axes of a side in every rank's list of groups.
func (l *Layout) Group(side int, axes []int) int {
	g, ok := l.groups[groupKey{side, fmt.Sprint(axes)}]
	if !ok {
		panic(fmt.Sprintf("layout: no group along the axes %v of side %d", axes, side))
	}
	return g
}

// GroupAlong is Group by the names of the axes.
func (l *Layout) GroupAlong(side int, names ...string) int {
	o, axes := grad.Options{Mesh: l.meshes[side]}, []int{}
	for _, name := range names {
		axes = append(axes, o.Axis(name))
	}
	return l.Group(side, axes)
}

// routes makes the table of who sends and takes what runs between the parts and the decoder, for one rank:
// what a part gives goes to every rank of the consumer's pipeline rank, and one of those sends the cotangent
// back to each rank of the part's replica, both being replicated on either side.
func (l *Layout) routes(rank int) func(port int32, back bool) *core.Route {
	if len(l.Design.Parts) == 0 {
		return nil
	}
	type ends [2]*core.Route
	table := make([]ends, len(l.Ports))
	for i, p := range l.Ports {
		if l.Side(p.From) != DecoderSide {
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

// route tells a rank whose parts it takes and to whom it sends for a port between an encoder and
// the pipeline, whose widths may differ. Entries run over the groups of the producer; members
// without a counterpart are served in turn. back gives the way of the gradients.
func (l *Layout) route(rank int, p core.Port, back bool) *core.Route {
	dp, local := l.Local(rank)
	width := widthOf(l.Design.Mesh)
	consumers := make([]int, width)
	for t := range consumers {
		consumers[t] = l.pipe[p.To]*width + t
	}
	r := &core.Route{}
	for _, group := range l.partGroups(p.From) {
		from, to := group, consumers
		if back {
			from, to = consumers, group
		}
		at := slices.Index(from, local)
		r.From = append(r.From, RankRef(l.Global(dp, from[max(0, slices.Index(to, local))%len(from)])))
		var refs []actors.Ref
		for i, t := range to {
			if at >= 0 && i%len(from) == at {
				refs = append(refs, RankRef(l.Global(dp, t)))
			}
		}
		r.To = append(r.To, refs)
	}
	return r
}
