package host

import (
	"math"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Where no plan is to change a bit (train.reproducible: any-plan), gradients lie in fixed point from the first
// microbatch to the sum over all ranks, and are read out of it there; losses and squared norms are float64 numbers
// with so few digits that their sums are exact.

// gradType is the type that the gradient of a parameter is added up in.
func (r *Rank) gradType(p *layout.ParamPlan) tensor.DType {
	o := grad.Options{FixedPoint: r.c.FixedPoint}
	return o.GradType(p.Param)
}

// opened takes in what the step began with.
func (r *Rank) opened(values []float64) {
	open := core.OpeningOf(values)
	for _, run := range r.runs {
		run.Seed, run.Reach = open.Scale, open.Reach
	}
}

// readFixed reads the reduced gradients of this rank's rows out of fixed point.
func (r *Rank) readFixed(j actors.Job) {
	if !r.c.FixedPoint {
		return
	}
	r.opened(j.Values)
	for i := range r.c.Params {
		p := &r.c.Params[i]
		q := r.owned[p.Name]
		if r.gradType(p) != tensor.I64 {
			continue
		}
		r.owned[p.Name] = r.alloc("reduced gradient of "+p.Name, tensor.F32, q.Shape...)
		r.kernel(kernels.FixedRead, kernels.Attr{F: [2]float64{grad.FixedUnit(r.run.Reach)}}, []*tensor.Tensor{q},
			r.owned[p.Name])
		q.Release()
	}
}

// squared writes the squared norm of a gradient into numbers of all: its words are so many places apart.
func (r *Rank) squared(g, all *tensor.Tensor, at, apart int) {
	if !r.c.FixedPoint {
		one := all.RowSlice(at, at+1)
		r.kernel(kernels.SumSquares, kernels.Attr{}, []*tensor.Tensor{g}, one)
		one.Release()
		return
	}
	words := tensor.Make(tensor.F64, kernels.FixedWords)
	r.kernel(kernels.FixedSquares, kernels.Attr{F: [2]float64{math.Ldexp(1, 2*int(r.run.Reach))}},
		[]*tensor.Tensor{g}, words)
	for w, x := range words.F64() {
		all.F64()[at+w*apart] = x
	}
}

// lossUnit is the worth of the last place of a microbatch's loss in fixed point: losses up to 2^21 add up exactly.
const lossUnit = 1.0 / (1 << 32)

// added is a number of a microbatch that is to be added to those of others, in any order.
func (r *Rank) added(x float64) float64 {
	if r.c.FixedPoint && math.Abs(x) < 1<<21 {
		return math.RoundToEven(x/lossUnit) * lossUnit
	}
	return x
}
