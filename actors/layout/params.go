package layout

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// Held is a parameter of a rank with what the rank holds of it.
type Held struct {
	*grad.Param
	Side   int           // the mesh that it lies on
	Region family.Region // in the model's dtype; with ZeRO-3 a shard by rows
	Saves  bool          // this rank puts the region into checkpoints; of its copies one does
}

// Sharded reports whether the rank holds only some rows of its slice (ZeRO-3).
func (h Held) Sharded() bool { return h.Region.From > 0 || h.Region.To < h.Local[0] }

// ParamPlan is one trained parameter of a rank with what the optimizer step does with it. Axes are those of
// its side's mesh.
type ParamPlan struct {
	Held
	Index    int           // in the whole model
	Sum      []int         // axes of its gradient that share out no state: each rank takes the whole sum
	Reduce   []int         // axes over which it is summed, for each member the rows that it updates
	Zero     []int         // axes over which its state is sharded, none without ZeRO
	Gather   []int         // axes over which updated rows are gathered: Zero where every rank holds all rows
	Own      family.Region // the rows that this rank updates
	SavesOwn bool          // this rank puts their state into checkpoints
	// SavesWhole says so of state that belongs to matrices as wholes
	SavesWhole bool
	// 1 + its tie group: it lies on several ranks, whose gradients are summed; 0 for none
	Tie    int
	Counts bool // this rank counts it in the gradient norm
	Clip   int  // the group whose gradient norm it is clipped by, from 1; 0 for that of all others
	First  int  // its first own row among all of the parameter's, where it shrinks by greatest scores
	Away   bool // its optimizer state waits on the host between updates
	Optim  *optim.Optimizer
	Whole  []int // axes over which its matrices are brought together for an update that needs wholes
}

// gradType is the type that the gradient of a parameter is added up in.
func (l *Layout) gradType(p *ParamPlan) tensor.DType {
	o := grad.Options{FixedPoint: l.Design.FixedPoint}
	return o.GradType(p.Param)
}

// gradBytes are those of a number of a gradient on the way to other ranks.
func (l *Layout) gradBytes() int64 {
	if l.Design.FixedPoint {
		return int64(tensor.I64.Size())
	}
	return int64(tensor.F32.Size())
}

// findOwners lists, by parameter, the pipeline ranks that hold it, in stage order.
func (l *Layout) findOwners() {
	l.owners = map[string][]int{}
	for s := range l.Stages {
		for _, p := range l.Main(s).Params {
			own := l.owners[p.Name]
			if r := l.pipe[s]; len(own) == 0 || own[len(own)-1] != r {
				l.owners[p.Name] = append(own, r)
			}
		}
	}
}

// ranks works out what each rank of the world holds, in the order of the ranks.
func (l *Layout) ranks() {
	n := l.World()
	if l.Design.First {
		n = 1
	}
	l.findOwners()
	for r := range n {
		l.Ranks = append(l.Ranks, l.rank(r))
	}
}

// rank works out what rank r is and holds: its coordinates on the mesh, its sides, its stages, and
// the parameters of these with the part of each that it keeps.
func (l *Layout) rank(r int) RankPart {
	m := l.Design.Mesh
	dp, local := l.Local(r)
	part := RankPart{Rank: r, Coord: Coord{PP: -1, DP: dp}, Row: local}
	for side := range l.sidesOf() {
		part.Sides = append(part.Sides, l.place(r, side))
	}
	// Ranks past the mesh serve encoders alone: they have no place in the pipeline.
	if r < m.Size() {
		cp := m.At(r, topology.CP)*m.Len(topology.Ulysses) + m.At(r, topology.Ulysses)
		part.Coord = Coord{PP: m.At(r, topology.PP), DP: dp, CP: cp, TP: m.At(r, topology.TP)}
	}
	if l.Program.Homes == nil {
		part.Row = part.Coord.PP
	}
	seen := map[string]*grad.Param{}
	tieOf := map[string]int{}
	for s := range l.Stages {
		if !l.Program.Owns(s, part.Row) {
			continue
		}
		part.Stages = append(part.Stages, s)
		for _, p := range l.Main(s).Params {
			// Two stages of one rank may share a parameter; it is held once, so both must place its gradient alike.
			if first := seen[p.Name]; first != nil {
				if first.Grad != p.Grad {
					panic(fmt.Sprintf("layout: the gradient of %s is placed %v on one stage and %v on "+
						"another", p.Name, first.Grad, p.Grad))
				}
				continue
			}
			seen[p.Name] = p
			h := l.held1(&part, p)
			part.All = append(part.All, h)
			if !p.Frozen {
				part.Params = append(part.Params, l.param(&part, h, tieOf))
			}
		}
	}
	l.keepAway(&part)
	return part
}

// shard is the part of a parameter's slice that the rank at pos has where rows are shared out over some axes.
func shard(o *grad.Options, h family.Region, rows int, pos, axes []int) family.Region {
	h.From, h.To = grad.ShardRows(rows, o.Member(pos, axes), o.Members(axes))
	return h
}

// held1 is what a rank holds of a parameter.
func (l *Layout) held1(part *RankPart, p *grad.Param) Held {
	side := l.SideOf[p.Name]
	o, pos := &grad.Options{Mesh: l.meshes[side]}, part.Sides[side].Pos
	h := Held{Param: p, Side: side, Region: family.Region{Cuts: family.CutsOf(o, p, pos), To: p.Local[0]}}
	var zero []int
	if l.Design.Zero == 3 && !p.Largest {
		zero = o.ZeroAxes(p.Fold)
		h.Region = shard(o, h.Region, p.Local[0], pos, zero)
	}
	h.Saves = l.alone(part, h, zero)
	return h
}

// alone reports whether the rank is the first of those that hold the same region: at the beginning of every axis of the
// parameter's mesh over which it is neither cut nor shared out by rows, and on the first stage that has it.
func (l *Layout) alone(part *RankPart, h Held, rows []int) bool {
	for m, a := range l.meshes[h.Side] {
		if a.Fold == h.Fold && part.Sides[h.Side].Pos[m] > 0 && h.Place.On(m).Kind == grad.Replicated &&
			!slices.Contains(rows, m) {
			return false
		}
	}
	return h.Side != DecoderSide || l.owners[h.Name][0] == part.Coord.PP
}

// param plans how the gradient of one parameter is summed, which part of it the rank owns for the
// optimizer, and which members get the new values afterwards.
func (l *Layout) param(part *RankPart, h Held, tieOf map[string]int) ParamPlan {
	o, pos := &grad.Options{Mesh: l.meshes[h.Side]}, part.Sides[h.Side].Pos
	out := ParamPlan{Held: h, Index: l.Index[h.Name], Own: h.Region, Optim: l.optimizer(h.Param)}
	// Sums over data go with the reduction of the step; sums within a tensor group have to come before.
	for _, m := range h.Grad.Sums() {
		if !h.Largest && (o.Mesh[m].Data || l.Design.Zero > 0 && o.Mesh[m].Zero) {
			out.Reduce = append(out.Reduce, m)
		} else {
			out.Sum = append(out.Sum, m)
		}
	}
	if l.Design.Zero > 0 && !h.Largest {
		out.Zero = slices.DeleteFunc(o.ZeroAxes(h.Fold),
			func(m int) bool { // its members have the whole gradient
				return l.Design.Zero == 1 && !slices.Contains(out.Reduce, m)
			})
		out.Own = shard(o, h.Region, h.Local[0], pos, out.Zero)
	}
	if l.Design.Zero == 1 || l.Design.Zero == 2 {
		out.Gather = out.Zero
	}
	out.Whole = l.whole(&out)
	// A value that several ranks hold is saved and counted in the norm by one of them alone.
	out.SavesOwn = l.alone(part, h, out.Zero)
	whole, rows := h, []int(nil)
	if whole.Param = OfState(h.Param, optim.Form{Whole: slices.Clone[[]int]}); h.Experts {
		rows = out.Zero
	}
	out.SavesWhole = l.alone(part, whole, rows)
	out.Counts = out.SavesOwn && !h.Fixed
	if h.Peak != nil {
		out.First = out.Own.Intervals(h.Param)[0][0]
	}
	if l.Design.ClipOf != nil {
		_, out.Clip = l.Design.ClipOf(h.Name)
	}
	// A parameter of several pipeline stages (tied embeddings) has its gradients summed over their ranks.
	if own := l.owners[h.Name]; len(own) > 1 {
		key := fmt.Sprint(own)
		if tieOf[key] == 0 {
			var ranks []int
			for _, pp := range own {
				ranks = append(ranks, l.Design.Mesh.Move(part.Rank, topology.PP, pp))
			}
			part.Ties = append(part.Ties, ranks)
			tieOf[key] = len(part.Ties)
		}
		out.Tie = tieOf[key]
	}
	return out
}
