package layout

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
)

// Piece is some rows of a parameter whose optimizer state waits on the host. The optimizer step has the
// state of two pieces on the device: of the one that it updates, and of the next, which is on its way.
type Piece struct {
	Param    int // place in the rank's list
	From, To int // of the rows that the rank updates, counted from their first
}

// pieceBytes is the size of each state tensor of a piece, where a row is not larger.
const pieceBytes = 16 << 20

// keepAway says which parameters' state waits on the host: the first ones that have the share of all state
// that the job asks for.
func (l *Layout) keepAway(part *RankPart) {
	all, before := int64(0), int64(0)
	for i := range part.Params {
		if part.Params[i].Optim.Turning == nil { // whose state is needed for whole matrices at a time
			all += l.stateBytes(&part.Params[i])
		}
	}
	for i := range part.Params {
		p := &part.Params[i]
		if p.Optim.Turning != nil {
			continue
		}
		n := l.stateBytes(p)
		p.Away = n > 0 && p.Rule.Op == "" && float64(before) < l.Design.OffloadState*float64(all)
		before += n
	}
}

// states are the forms of the tensors of optimizer state of a parameter, its master copy among them.
func (l *Layout) states(p *ParamPlan) (out []optim.Form) {
	if p.Value.DType != tensor.F32 {
		out = append(out, optim.Form{})
	}
	for i := range p.Optim.State {
		out = append(out, p.Optim.Form(i))
	}
	return out
}

// blocksFit holds forms of state that several numbers of a row have together to what a rank has of each row.
func (l *Layout) blocksFit() error {
	for _, part := range l.Ranks {
		for i := range part.Params {
			p := &part.Params[i]
			for _, f := range l.states(p) {
				if n := p.Local[len(p.Local)-1]; f.Per > 0 && n%f.Per > 0 {
					return exit.With(fmt.Errorf("optimizer.moments_block: %s keeps moments in blocks of %d numbers of a row, and "+
						"%d of its %d lie on a rank; set it to %d", p.Name, f.Per, n,
						p.Shape[len(p.Shape)-1], n&-n), exit.Usage)
				}
			}
		}
	}
	return nil
}

// OfState is a parameter as a tensor of its state looks: of the same places, and shorter rows where some
// numbers have one element together. State of whole matrices is cut by experts alone.
func OfState(p *grad.Param, f optim.Form) *grad.Param {
	if f.Per == 0 && f.Whole == nil {
		return p
	}
	q := *p
	q.Shape, q.Local = f.Shape(p.Shape), f.Shape(p.Local)
	if f.Whole == nil {
		return &q
	}
	for m := range q.Place {
		if x := q.Place[m]; x.Kind == grad.Sharded && (!p.Experts || x.Axis > 0) {
			q.Place[m] = grad.Part{}
		}
	}
	q.Local = f.Shape(p.Shape)
	if p.Experts {
		q.Local[0] = p.Local[0]
	}
	return &q
}

// OwnState is the region that a rank has of a tensor of a parameter's state, and whether it puts it into checkpoints.
func (p *ParamPlan) OwnState(f optim.Form) (own family.Region, saves bool) {
	if f.Whole == nil {
		return p.Own, p.SavesOwn
	}
	if own = (family.Region{To: f.Shape(p.Shape)[0]}); p.Experts {
		own = p.Own
		own.Cuts = slices.DeleteFunc(slices.Clone(own.Cuts), func(c family.Cut) bool { return c.Axis > 0 })
	}
	return own, p.SavesWhole
}

// stateBytes is the memory of a parameter's optimizer state on a rank.
func (l *Layout) stateBytes(p *ParamPlan) int64 { return l.statesOf(p, p.Own.From, p.Own.To) }

// statesOf is that of some of its rows.
func (l *Layout) statesOf(p *ParamPlan, from, to int) (n int64) {
	for _, f := range l.states(p) {
		shape := rowsOfShape(p.Local, from, to)
		if f.Whole != nil {
			q := OfState(p.Param, f)
			if shape = q.Local; p.Experts {
				shape = rowsOfShape(shape, from, to)
			}
		} else {
			shape = f.Shape(shape)
		}
		n += classOf(f.Type, shape)
	}
	return n
}

// rowsOfShape is the shape of some rows of a tensor.
func rowsOfShape(shape []int, from, to int) []int { return append([]int{to - from}, shape[1:]...) }

// Pieces lists what the optimizer step of a rank takes from the host and back, in order.
func (l *Layout) Pieces(part *RankPart) (out []Piece) {
	most := l.Design.Piece
	if most == 0 {
		most = pieceBytes
	}
	for i := range part.Params {
		p := &part.Params[i]
		if !p.Away {
			continue
		}
		row := tensor.Len(p.Local[1:]) * tensor.F32.Size()
		step, n := max(1, most/max(1, row)), p.Own.To-p.Own.From
		for from := 0; from < n; from += step {
			out = append(out, Piece{i, from, min(from+step, n)})
		}
	}
	return out
}

// updatePeak is the most that gradients and pieces of state take while a rank updates its parameters.
func (l *Layout) updatePeak(part *RankPart) (most int64) {
	pieces := l.Pieces(part)
	grads := make([]int64, len(part.Params))
	live := int64(0)
	for i := range part.Params {
		p := &part.Params[i]
		grads[i] = classOf(tensor.F32, rowsOfShape(p.Local, p.Own.From, p.Own.To))
		live += grads[i]
	}
	size := func(i int) int64 {
		if i >= len(pieces) {
			return 0
		}
		x := pieces[i]
		p := &part.Params[x.Param]
		return l.statesOf(p, x.From, x.To)
	}
	freed := 0
	for i, x := range pieces {
		for ; freed < x.Param; freed++ { // gradients of parameters that are done
			live -= grads[freed]
		}
		most = max(most, live+size(i)+size(i+1))
	}
	return most
}

// through is what the update of a rank's parameters copies from the host, and back to it, in bytes.
func (l *Layout) through(part *RankPart) (n int64) {
	for i := range part.Params {
		if p := &part.Params[i]; p.Away {
			for _, f := range l.states(p) {
				n += int64(f.Type.Size()) * int64(tensor.Len(f.Shape(rowsOfShape(p.Local, p.Own.From, p.Own.To))))
			}
		}
	}
	return n
}
