package layout

import (
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/grad"
)

// Copies of an expert are experts like others: each has weights and a state of the optimizer of its own. They stay
// alike because each is updated with the same gradient, the sum of what all of them got, taken in order of places.

// CopyRow is the gradient of one expert's part of a parameter, which a rank with a copy of that expert has to sum. Param
// counts in Move.Params, Place is where the expert lies, From is the rank that has the gradient, and Row where it lies there.
type CopyRow struct {
	Param, Place, Expert, From, Row int
}

// CopyRows lists what a member takes, itself among the givers, in order of parameters, experts and places,
// where the experts of the move's block lie at places as at says; nil is in order.
func (l *Layout) CopyRows(part *RankPart, m Move, at []int, to int) (out []CopyRow) {
	o := grad.Options{Mesh: l.meshes[DecoderSide]}
	pos := m.position(&o, part, to)
	for i, k := range m.Params {
		h := part.All[k]
		plan := slices.IndexFunc(part.Params, func(p ParamPlan) bool { return p.Name == h.Name })
		if plan < 0 || h.Copies == 0 { // frozen: it has no gradient
			continue
		}
		for e, seats := range places(Seated(at, h.Param)) {
			if len(seats) == 1 {
				continue
			}
			rows, mine := make([]CopyRow, len(seats)), false
			for n, q := range seats {
				from, row := seat(&o, m.Axes, h, part.Params[plan].Zero, q, pos)
				rows[n], mine = CopyRow{Param: i, Place: q, Expert: e, From: from, Row: row}, mine || from == to
			}
			if mine {
				out = append(out, rows...)
			}
		}
	}
	return out
}

// copyComm is the exchange of copies' gradients, of all blocks of a rank at once; nil where no expert has
// copies. Its bytes are those of copies that all lie on different ranks, two of each of as many experts.
func (l *Layout) copyComm(part *RankPart) []core.Comm {
	moves := l.Moves(part)
	if l.Copies() == 0 || len(moves) == 0 {
		return nil
	}
	n := int64(0)
	for _, m := range moves {
		for _, i := range m.Params {
			h := part.All[i]
			at := slices.IndexFunc(part.Params, func(p ParamPlan) bool { return p.Name == h.Name })
			if at >= 0 {
				own := part.Params[at].Own
				n += 4 * part.elements([]int{at}) / int64(h.Local[0]) * int64(own.To-own.From) *
					2 * int64(h.Copies) / int64(h.Shape[0])
			}
		}
	}
	return []core.Comm{{Group: moves[0].Group, Bytes: n}}
}

// Copies are the places of a layer's experts beyond one each.
func (l *Layout) Copies() int { return l.Design.Model.Spec.Experts.Limit.Copies }
