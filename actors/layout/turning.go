package layout

import (
	"cmp"
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/optim"
)

// Some optimizers update matrices as wholes, as Muon does. A rank then makes directions of its own numbers as
// soon as the step is committed, sends them to all that have numbers of the same matrices, and turns the
// wholes itself, so that nothing is sent back (arXiv:2502.16982, distributed Muon).

// optimizer is that of a parameter.
func (l *Layout) optimizer(p *grad.Param) *optim.Optimizer { return l.Design.Optimizer(p) }

// Optimizer is that of a parameter.
func (j *Design) Optimizer(p *grad.Param) *optim.Optimizer {
	s := optim.Subject{Shape: p.Shape, Experts: p.Experts, Taps: p.Taps,
		Layer: p.Block < len(j.Model.Blocks) && j.Model.Blocks[p.Block].Recompute}
	c := j.Optim
	if j.OptimOf != nil {
		c.Name = cmp.Or(j.OptimOf(p.Name), c.Name)
	}
	o, err := c.For(s)
	if err != nil {
		panic("layout: an optimizer that was found before: " + err.Error())
	}
	if p.Rule.Op != "" && o.Turning != nil { // its gradient is no direction, and is left as it is
		return &optim.Optimizer{Name: o.Name}
	}
	return &o
}

// StateBytes are those of an optimizer's state for each of the model's parameters, and what its update reads
// and writes of one: the means over all of them.
func (j *Design) StateBytes() (state, traffic int64) {
	all := int64(0)
	for _, p := range j.Model.Params(nil) {
		o, n := j.Optimizer(p), int64(tensor.Len(p.Shape))
		all, state, traffic = all+n, state+o.StateBytes(n), traffic+j.traffic(o, n)
	}
	return state / max(1, all), traffic / max(1, all)
}

// traffic is what an update of n numbers reads and writes, in the software that the job is priced for.
func (j *Design) traffic(o *optim.Optimizer, n int64) int64 {
	return int64(float64(o.Traffic(n)) * cmp.Or(j.Updates, 1))
}

// whole lists the axes of a parameter's mesh over which its matrices are shared out: all that cut it, and
// those over which its rows are; an expert's matrix is a row.
func (l *Layout) whole(p *ParamPlan) (axes []int) {
	if p.Optim.Turning == nil {
		return nil
	}
	o := grad.Options{Mesh: l.meshes[p.Side]}
	for m, a := range o.Mesh {
		cut := a.Fold == p.Fold && p.Place.On(m).Kind == grad.Sharded && (!p.Experts || p.Place.On(m).Axis > 0)
		if (cut || !p.Experts && slices.Contains(p.Zero, m)) && a.Size > 1 {
			axes = append(axes, m)
		}
	}
	return axes
}

// Turning reports whether a parameter of the run has an optimizer that needs wholes: the optimizer step then
// has a segment more, in which directions are sent.
func (l *Layout) Turning() bool { return l.turning }

// turns reports whether a parameter of the model has such an optimizer.
func (j *Design) turns() bool {
	if j.OptimOf == nil {
		o, err := optim.Of(j.Optim)
		return err == nil && o.Turning != nil
	}
	return slices.ContainsFunc(j.Model.Params(j.Lora), func(p *grad.Param) bool { return j.Optimizer(p).Turning != nil })
}

// updateGroups adds groups for directions, and for maxima, that are sent along axes which nothing else is.
func (l *Layout) updateGroups() {
	for _, part := range l.Ranks {
		for _, p := range part.Params {
			if len(p.Whole) > 0 {
				l.groupAlong(p.Side, p.Whole)
			}
			if p.Largest {
				l.groupAlong(p.Side, p.Sum)
			}
		}
	}
}

// WholeShape is the shape of a parameter's matrices when they are brought together.
func (l *Layout) WholeShape(p *ParamPlan) []int {
	shape := slices.Clone(p.Local)
	if p.Experts {
		shape[0] = p.Own.To - p.Own.From
	}
	o := grad.Options{Mesh: l.meshes[p.Side]}
	for _, m := range p.Whole {
		if part := p.Place.On(m); part.Kind == grad.Sharded {
			shape[part.Axis] *= o.Mesh[m].Size
		}
	}
	return shape
}

// turningSegment is what a rank sends of directions.
func (l *Layout) turningSegment(part *RankPart) (s core.Segment) {
	for _, x := range l.Exchanges(part, Directions) {
		n := int64(0)
		for _, i := range x.Params {
			p := &part.Params[i]
			n += int64(tensor.Len(rowsOfShape(p.Local, p.Own.From, p.Own.To)))
		}
		s.Comms = append(s.Comms, core.Comm{Group: x.Group, Bytes: 4 * n * int64(x.Members-1)})
	}
	for i := range part.Params {
		if p := &part.Params[i]; p.Optim.Turning != nil {
			s.Bytes += 16 * int64(tensor.Len(rowsOfShape(p.Local, p.Own.From, p.Own.To)))
			s.Calls++
		}
	}
	return s
}

// Matrices is a shape as one of matrices [e n k]: an expert's is one by itself, and a vector has rows of one number.
func Matrices(experts bool, shape []int) []int {
	if !experts {
		shape = append([]int{1}, shape...)
	}
	if len(shape) < 3 { // of vectors
		if shape = append(slices.Clone(shape), 1); len(shape) < 3 {
			shape = append(shape, 1)
		}
	}
	return []int{shape[0], shape[1], tensor.Len(shape[2:])}
}

// turns is the arithmetic of a rank's turning.
func (l *Layout) turns(part *RankPart) (flops int64) {
	for i := range part.Params {
		p := &part.Params[i]
		if t := p.Optim.Turning; t != nil {
			shape := l.WholeShape(p)
			shape = Matrices(p.Experts, shape)
			flops += int64(shape[0]) * t.Flops(l.Design.Optim, shape[1], shape[2])
		}
	}
	return flops
}

// turningPeak is what turning takes of a rank's memory beside its gradients, in bytes: its own part of each matrix, for
// directions are held until all are turned, and a matrix put together, in strips and as a whole where its columns are
// shared out too. What members in other processes have sent waits beside that, and is not counted.
func (l *Layout) turningPeak(part *RankPart) (most int64) {
	turned := int64(0)
	for _, x := range l.Exchanges(part, Directions) {
		for _, i := range x.Params {
			p := &part.Params[i]
			own, whole := classOf(tensor.F32, rowsOfShape(p.Local, p.Own.From, p.Own.To)), classOf(tensor.F32, l.WholeShape(p))
			if p.Optim.Turning.Squares { // a number a matrix
				turned += classOf(tensor.F64, []int{Matrices(p.Experts, p.Local)[0]})
			}
			beside := own
			if o := (grad.Options{Mesh: l.meshes[p.Side]}); slices.ContainsFunc(p.Whole, func(m int) bool {
				at := p.Place.On(m)
				return at.Kind == grad.Sharded && int(at.Axis) == len(p.Local)-1 && o.Mesh[m].Size > 1
			}) {
				beside = whole
			}
			most = max(most, turned+whole+beside)
			turned += own
		}
	}
	return most
}
