package layout

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/topology"
)

// ParamPlan is one parameter of a rank with what the optimizer step does with it.
type ParamPlan struct {
	*grad.Param
	Index  int  // in the whole model
	Side   int  // the mesh that it lies on
	TPSum  bool // its gradient is partial over tensor parallelism
	Tie    int  // 1 + its tie group: it lies on several ranks, whose gradients are summed; 0 for none
	Counts bool // this rank counts it in the gradient norm
	From   int  // first row, of the local tensor, that this rank updates
	To     int
}

// Owners lists the pipeline ranks that hold a parameter, in stage order.
func (l *Layout) Owners(name string) (out []int) {
	for s := range l.Stages {
		for _, p := range l.Main(s).Params {
			if r := l.pipe[s]; p.Name == name && (len(out) == 0 || out[len(out)-1] != r) {
				out = append(out, r)
			}
		}
	}
	return
}

func (l *Layout) ranks() {
	for r := range l.World() {
		l.Ranks = append(l.Ranks, l.rank(r))
	}
}

func (l *Layout) rank(r int) RankPart {
	m := l.Job.Mesh
	dp, local := l.Local(r)
	part := RankPart{Rank: r, Coord: topology.Coord{PP: -1, DP: dp}, Row: local, Sides: l.sides(r)}
	if r < m.Size() {
		part.Coord = m.Coord(r)
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
			if first := seen[p.Name]; first != nil {
				if first.Grad != p.Grad {
					panic(fmt.Sprintf("layout: the gradient of %s is placed %v on one stage and %v on another", p.Name, first.Grad, p.Grad))
				}
				continue
			}
			seen[p.Name] = p
			part.All = append(part.All, p)
			if !p.Frozen {
				part.Params = append(part.Params, l.param(&part, p, tieOf))
			}
		}
	}
	return part
}

func (l *Layout) param(part *RankPart, p *grad.Param, tieOf map[string]int) ParamPlan {
	j, c := l.Job, part.Coord
	out := ParamPlan{Param: p, Index: l.Index[p.Name], Side: l.SideOf[p.Name], TPSum: p.Grad.On(AxisTP).Kind == grad.Partial, To: p.Local[0]}
	m := part.Sides[out.Side]
	if j.Zero > 0 && m.DP > 1 {
		out.From, out.To = grad.ShardRows(p.Local[0], m.DPPos, m.DP)
	}
	out.Counts = (p.Place.On(AxisTP).Kind == grad.Sharded || m.TPPos == 0) && (j.Zero > 0 || m.DPPos == 0)
	if own := l.Owners(p.Name); len(own) > 1 {
		key := fmt.Sprint(own)
		if tieOf[key] == 0 {
			var ranks []int
			for _, pp := range own {
				ranks = append(ranks, j.Mesh.Rank(topology.Coord{PP: pp, DP: c.DP, TP: c.TP}))
			}
			part.Ties = append(part.Ties, ranks)
			tieOf[key] = len(part.Ties)
		}
		out.Tie = tieOf[key]
		out.Counts = out.Counts && own[0] == c.PP
	}
	return out
}
