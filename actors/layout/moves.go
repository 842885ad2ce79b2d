package layout

import (
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/topology"
)

// Move is what ranks exchange when the experts of a block change places: rows of weights and of the
// optimizer's state, each an expert's.
type Move struct {
	Block   int
	Axes    []int // of the decoder's mesh
	Group   int   // index into core.RankLayout.Groups
	Members int
	Params  []int // places in the rank's list of all that it holds
}

// Kinds of tensors whose rows are experts: the model's own, and those of the optimizer, which may be
// shared out further.
const (
	MovedParam = iota
	MovedState
)

// Transfer is a row that a member of a move takes: of which of Move.Params, of which kind, who has it, and
// where it lies there and here.
type Transfer struct {
	Param, Kind, From, Row, To int
}

// moveAxes are the axes along which experts' rows are shared out: those of a group whose members exchange them.
func (l *Layout) moveAxes() (axes []int) {
	o := grad.Options{Mesh: l.meshes[DecoderSide]}
	ep := o.Axis(topology.EP)
	if ep < 0 || l.Design.MoveEvery == 0 {
		return nil
	}
	if l.Design.Zero > 0 {
		axes = o.ZeroAxes(o.Mesh[ep].Fold)
	}
	return append(axes, ep)
}

// Moves are those of a rank, in order of its blocks. There are none where experts stay.
func (l *Layout) Moves(part *RankPart) (out []Move) {
	axes := l.moveAxes()
	if axes == nil {
		return nil
	}
	o := grad.Options{Mesh: l.meshes[DecoderSide]}
	for i, h := range part.All {
		if !h.Experts {
			continue
		}
		at := slices.IndexFunc(out, func(m Move) bool { return m.Block == h.Block })
		if at < 0 {
			at = len(out)
			out = append(out, Move{Block: h.Block, Axes: axes, Group: l.Group(DecoderSide, axes),
				Members: o.Members(axes)})
		}
		out[at].Params = append(out[at].Params, i)
	}
	slices.SortFunc(out, func(a, b Move) int { return a.Block - b.Block })
	return out
}

// Transfers lists what a member takes, itself among the givers, in order of parameters, kinds and its rows,
// when places that had the experts old come to have the experts new, by place; nil is in order of experts.
// Of an expert's copies, which are alike, a member's own gives, or else the first.
func (l *Layout) Transfers(part *RankPart, m Move, old, new []int, to int) (out []Transfer) {
	o := grad.Options{Mesh: l.meshes[DecoderSide]}
	pos := m.position(&o, part, to)
	for i, at := range m.Params {
		h := part.All[at]
		from, expert := places(Seated(old, h.Param)), Seated(new, h.Param)
		for kind, zero := range l.rowAxes(part, h) {
			for q, e := range expert {
				here, row := seat(&o, m.Axes, h, zero, q, pos)
				if here != to {
					continue
				}
				t := Transfer{Param: i, Kind: kind, To: row}
				t.From, t.Row = seat(&o, m.Axes, h, zero, from[e][0], pos)
				for _, p := range from[e][1:] {
					if member, own := seat(&o, m.Axes, h, zero, p, pos); member == to && t.From != to {
						t.From, t.Row = member, own
					}
				}
				out = append(out, t)
			}
		}
	}
	return out
}

// position is where a member of a move stands on the decoder's mesh, beside the rank of part.
func (m Move) position(o *grad.Options, part *RankPart, member int) []int {
	pos := slices.Clone(part.Sides[DecoderSide].Pos)
	for i := len(m.Axes) - 1; i >= 0; i-- {
		a := m.Axes[i]
		pos[a], member = member%o.Mesh[a].Size, member/o.Mesh[a].Size
	}
	return pos
}

// rowAxes are the axes over which a parameter's tensors are shared out by rows beside its cuts, by kind; one
// that is not trained has no state.
func (l *Layout) rowAxes(part *RankPart, h Held) [][]int {
	var whole []int
	if l.Design.Zero == 3 {
		o := grad.Options{Mesh: l.meshes[h.Side]}
		whole = o.ZeroAxes(h.Fold)
	}
	out := [][]int{whole}
	if i := slices.IndexFunc(part.Params, func(p ParamPlan) bool { return p.Name == h.Name }); i >= 0 {
		out = append(out, part.Params[i].Zero)
	}
	return out
}

// Seated are the experts that lie at the rows of a parameter, in order if nothing is said.
func Seated(at []int, p *grad.Param) []int {
	if at != nil {
		return at
	}
	return InOrder(p.Shape[0]-p.Copies, p.Copies)
}

// InOrder lists the expert of each place before any expert has moved: all experts in order, then the
// copies, which are of the first experts.
func InOrder(experts, copies int) []int {
	out := make([]int, experts+copies)
	for i := range out {
		out[i] = i % experts
	}
	return out
}

// places are those of each expert, in order.
func places(at []int) (out [][]int) {
	for q, e := range at {
		for len(out) <= e {
			out = append(out, nil)
		}
		out[e] = append(out[e], q)
	}
	return out
}

// seat is the member of a move that has the row of a place, of those that hold the same slices and copies as
// the rank at pos, and where the row lies in the member's tensor.
func seat(o *grad.Options, axes []int, h Held, zero []int, place int, pos []int) (member, row int) {
	at, rows := slices.Clone(pos), h.Shape[0]
	for _, m := range h.Place.Cuts(0) {
		rows /= o.Mesh[m].Size
		at[m], place = place/rows, place%rows
	}
	n, from := o.Members(zero), 0
	for k := range n {
		first, end := grad.ShardRows(rows, k, n)
		if place < first || place >= end {
			continue
		}
		from = first
		for i, left := len(zero)-1, k; i >= 0; i-- {
			size := o.Mesh[zero[i]].Size
			at[zero[i]], left = left%size, left/size
		}
	}
	return o.Member(at, axes), place - from
}

// movingSegments are those of an optimizer step behind which experts move: a block's at a time, so that
// memory has the rows of one block twice and not those of all. Bytes are those of a move in which every
// expert comes to lie on a rank drawn at random.
func (l *Layout) movingSegments(part *RankPart) []core.Segment {
	moves := l.Moves(part)
	if moves == nil {
		return nil
	}
	segs := append([]core.Segment{}, l.updateSegments(part)...)
	gather := Gather
	if l.Turning() {
		gather++
	}
	if len(segs) == gather { // nothing is gathered
		segs = append(segs, core.Segment{})
	}
	for i, m := range moves {
		bytes := l.movedBytes(part, m)
		at := &segs[gather+i]
		at.Comms = []core.Comm{{Group: m.Group, Bytes: bytes * int64(m.Members-1) / int64(m.Members)}}
		segs = append(segs, core.Segment{Await: []core.Issued{{Segment: int32(gather + i)}}, Bytes: 2 * bytes,
			Calls: len(m.Params)})
	}
	return segs
}

// movedBytes are those of a rank's rows that belong to experts of a block.
func (l *Layout) movedBytes(part *RankPart, m Move) (n int64) {
	for _, i := range m.Params {
		h := part.All[i]
		row := int64(tensor.Len(h.Local[1:]))
		n += int64(h.Region.To-h.Region.From) * row * int64(h.Value.DType.Size())
		at := slices.IndexFunc(part.Params, func(p ParamPlan) bool { return p.Name == h.Name })
		if at < 0 {
			continue
		}
		p := &part.Params[at]
		for _, f := range l.states(p) {
			n += int64(f.Type.Size() * tensor.Len(f.Shape(rowsOfShape(p.Local, p.Own.From, p.Own.To))))
		}
	}
	return n
}

// Fitting is where experts lay in a checkpoint, if they can lie there now too: it is of as many places. Else
// they begin in order.
func (l *Layout) Fitting(x core.Laid) core.Laid {
	e := &l.Design.Model.Spec.Experts
	for _, p := range x.At {
		alone := map[int]bool{}
		for _, i := range p.Expert {
			if alone[i] = true; i < 0 || i >= e.Experts {
				return core.Laid{}
			}
		}
		if len(p.Expert) != e.Experts+e.Limit.Copies || len(alone) != e.Experts {
			return core.Laid{}
		}
	}
	for _, load := range x.Loads {
		if len(load.Rows) != e.Experts {
			return core.Laid{}
		}
	}
	if l.Design.MoveEvery == 0 {
		return core.Laid{}
	}
	return x
}

// leastGain is what the fullest rank must lose of its rows before a layer's experts move, as a share.
const leastGain = 0.02

// Rebalance says where experts go by the rows that they had, as DeepSeek's EPLB places them with one copy each.
// Ranks whose experts mostly stay keep them, and a layer that would gain next to nothing is left alone.
func (l *Layout) Rebalance(_ int64, loads []core.Load, now []core.Placed) (out []core.Placed) {
	e := &l.Design.Model.Spec.Experts
	ranks, groups := l.Design.Mesh.Len(topology.EP), max(1, e.Router.Groups)
	for _, x := range loads {
		n := len(x.Rows)
		old := InOrder(n, e.Limit.Copies)
		for _, p := range now {
			if p.Block == x.Block {
				old = p.Expert
			}
		}
		spread, err := topology.SpreadExperts(x.Rows, len(old), groups, max(1, l.Design.Nodes), ranks)
		if err != nil {
			panic("layout: a checked plan: " + err.Error())
		}
		held := topology.Replicas{Expert: old, Count: make([]int, n)}
		for _, i := range old {
			held.Count[i]++
		}
		was := held.Most(x.Rows, ranks)
		if was-spread.Most(x.Rows, ranks) > leastGain*was {
			out = append(out, core.Placed{Block: x.Block, Expert: settle(spread.Expert, old, len(old)/ranks,
				ranks/max(1, l.Design.Nodes))})
		}
	}
	return out
}

// settle gives every rank of the sets of experts that belong together the one it has most of already, within
// its node, and leaves those that stay at their places.
func settle(sets, old []int, each, ranks int) []int {
	n := len(old)
	out, taken := make([]int, n), make([]bool, n/each)
	for s := 0; s < n; s += each {
		set, node := sets[s:s+each], s/each/ranks*ranks
		best, most, sat := -1, -1, []int(nil)
		for r := node; r < node+ranks; r++ {
			seats, stay := sit(set, old[r*each:(r+1)*each])
			if !taken[r] && stay > most {
				best, most, sat = r, stay, seats
			}
		}
		taken[best] = true
		copy(out[best*each:], sat)
	}
	return out
}

// sit puts a set of experts on a rank that had others: those that are there stay, and the rest take what is
// free, in order. It says how many stay.
func sit(set, old []int) (out []int, stay int) {
	come := slices.Clone(set)
	slices.Sort(come)
	for _, e := range old {
		at := slices.Index(come, e)
		if at < 0 {
			e = -1
		} else {
			come = slices.Delete(come, at, at+1)
			stay++
		}
		out = append(out, e)
	}
	for i := range out {
		if out[i] < 0 {
			out[i], come = come[0], come[1:]
		}
	}
	return out, stay
}
