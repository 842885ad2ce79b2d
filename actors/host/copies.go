package host

import (
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// seated is a region of a logical parameter whose rows lie one behind the other at places of a rank.
type seated struct {
	region family.Region
	row    int  // of the rank's tensor
	of     int  // rows that the tensor's region has
	first  bool // the experts' first places, not copies
}

// regions cuts a region whose rows are experts, as they lie, into pieces that are regions of the logical
// tensor: files do not depend on where experts lie.
func (x *experts) regions(p *grad.Param, g family.Region) (out []seated) {
	rows, at := g.Intervals(p)[0], layout.Seated(x.at[p.Block], p)
	cuts := slices.DeleteFunc(slices.Clone(g.Cuts), func(c family.Cut) bool { return c.Axis == 0 })
	for q := rows[0]; q < rows[1]; q++ {
		e, first := at[q], slices.Index(at, at[q]) == q
		if n := len(out) - 1; n >= 0 && e == at[q-1]+1 && out[n].first == first {
			out[n].region.To++
			continue
		}
		out = append(out, seated{family.Region{Cuts: cuts, From: e, To: e + 1}, q - rows[0], rows[1] - rows[0], first})
	}
	return out
}

// copyGradients sends every member of the moves the gradients of experts that it has copies of.
func (r *Rank) copyGradients() []actors.Output {
	if !r.copies() {
		return nil
	}
	m0 := r.c.Moves[0]
	sent := map[gradientRow]*tensor.Tensor{} // each row once, however many take it
	defer func() {
		for _, t := range sent {
			t.Release()
		}
	}()
	return toAll(int32(len(r.c.Ties)), m0.Members, func(member int) (ts []*tensor.Tensor) {
		for _, m := range r.c.Moves {
			for _, x := range r.c.CopyRows(m, r.experts.at[m.Block], member) {
				if x.From == r.c.Member(m) {
					ts = append(ts, r.sentCopy(sent, r.c.Held[m.Params[x.Param]].Name, x.Row))
				}
			}
		}
		return ts
	})
}

// copies reports whether experts of this rank's layers have copies.
func (r *Rank) copies() bool {
	return len(r.c.Moves) > 0 && r.c.Held[r.c.Moves[0].Params[0]].Copies > 0
}

// gradientRow is a row of a parameter's gradients.
type gradientRow struct {
	param string
	row   int
}

// sentCopy is a row of a parameter's gradients as it is sent: others may look at it after the sum has taken its place.
func (r *Rank) sentCopy(sent map[gradientRow]*tensor.Tensor, name string, row int) *tensor.Tensor {
	key := gradientRow{name, row}
	if sent[key] == nil {
		have := r.owned[name].RowSlice(row, row+1)
		t := r.alloc("gradient of a copy", tensor.F32, have.Shape...)
		kernels.Move(r.c.Backend, t, have)
		have.Release()
		sent[key] = t
	}
	return sent[key].Retain()
}

// takeCopies gives all copies of an expert the sum of their gradients, in order of places.
func (r *Rank) takeCopies(in [][]*links.Pack) {
	if !r.copies() {
		return
	}
	next := make([]int, len(in[0])) // of what a member has sent
	for _, m := range r.c.Moves {
		me := r.c.Member(m)
		list := r.c.CopyRows(m, r.experts.at[m.Block], me)
		for len(list) > 0 {
			n := slices.IndexFunc(list, func(x layout.CopyRow) bool {
				return x.Param != list[0].Param || x.Expert != list[0].Expert
			})
			if n < 0 {
				n = len(list)
			}
			var rows []*tensor.Tensor
			for _, x := range list[:n] {
				rows = append(rows, in[0][x.From].Tensors[next[x.From]])
				next[x.From]++
			}
			g := r.owned[r.c.Held[m.Params[list[0].Param]].Name]
			for _, x := range list[:n] {
				if x.From == me {
					sum := g.RowSlice(x.Row, x.Row+1)
					r.kernel(kernels.Sum, kernels.Attr{}, rows, sum)
					sum.Release()
				}
			}
			list = list[n:]
		}
	}
}
