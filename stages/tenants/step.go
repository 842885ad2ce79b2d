package tenants

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/optim"
)

// Adam is how a slot's step is made: AdamW, with a gradient whose norm is Clip at most, 0 for any.
type Adam struct {
	LR    float64 `json:"lr"`
	Beta1 float64 `json:"beta1"`
	Beta2 float64 `json:"beta2"`
	Eps   float64 `json:"eps"`
	Decay float64 `json:"weight_decay"`
	Clip  float64 `json:"clip"`
}

// Check reports numbers that mean nothing.
func (a Adam) Check() error {
	for _, c := range []struct {
		name string
		x    float64
		most float64
	}{{"lr", a.LR, 10}, {"beta1", a.Beta1, 1}, {"beta2", a.Beta2, 1}, {"eps", a.Eps, 1},
		{"weight_decay", a.Decay, math.MaxFloat32}, {"clip", a.Clip, math.MaxFloat32}} {
		if !(c.x >= 0 && c.x <= c.most) || c.most == 1 && c.x == 1 {
			return fmt.Errorf("%s is %g, and not from 0 to %g", c.name, c.x, c.most)
		}
	}
	return nil
}

// Step updates a slot by its gradient, which is 0 then, and returns the gradient's norm and the number of updates.
// A slot without a gradient, or with one that is no number, is left as it is, and so is one whose weights or moments
// the update would make infinite or no numbers.
func (t *Trainer) Step(slot int, a Adam) (norm float64, steps int64, err error) {
	if !t.filled[slot] {
		return 0, t.steps[slot], errors.New("the adapter has no gradient: call forward_backward first")
	}
	norm = t.norm(slot)
	factor := 1.0
	if a.Clip > 0 && norm > a.Clip {
		factor = a.Clip / norm
	}
	defer t.Empty(slot)
	if !finite(norm) {
		return norm, t.steps[slot], errors.New("the gradient's norm is no number: the adapter is as it was")
	}
	t.steps[slot]++
	if next, sure := t.reach[slot].behind(a, norm*factor, t.steps[slot]); sure {
		t.update(slot, a, factor, false)
		t.reach[slot] = next
		return norm, t.steps[slot], nil
	}
	if !t.update(slot, a, factor, true) {
		t.steps[slot]--
		return norm, t.steps[slot], errors.New("behind the update some weights would be infinite, or no numbers: " +
			"the adapter is as it was, without a gradient")
	}
	t.update(slot, a, factor, false)
	t.reach[slot] = t.reaches(slot)
	return norm, t.steps[slot], nil
}

// norm is that of a slot's gradient.
func (t *Trainer) norm(slot int) float64 {
	sum, part := 0.0, tensor.Make(tensor.F64, 1)
	for _, p := range t.params {
		g := t.slice(t.run.Grads[p.Name], slot)
		t.run.Backend.Run(&kernels.Call{Op: kernels.SumSquares, In: []*tensor.Tensor{g}, Out: []*tensor.Tensor{part}})
		t.run.Backend.Sync()
		sum += part.F64()[0]
		g.Release()
	}
	return math.Sqrt(sum)
}

// reach bounds the numbers of a slot: none of its weights and moments is greater.
type reach struct{ weight, first, second float64 }

// sureMost is how great numbers may be so that nothing that an update computes of them leaves float32.
const sureMost = 1e30

// behind bounds what an update makes of a slot, the number of which is steps, by a gradient of which no number
// is greater than most. It is sure where everything is certain to stay finite, so that nobody needs to look.
func (r reach) behind(a Adam, most float64, steps int64) (next reach, sure bool) {
	const rounding = 1 + 1e-5
	eps := float64(float32(a.Eps))
	next.first = max(r.first, most) * rounding // means of what was there and what comes
	next.second = max(r.second, most*most) * rounding
	by := a.LR / (1 - math.Pow(a.Beta1, float64(steps))) * next.first / eps
	next.weight = (r.weight*max(1, math.Abs(1-a.LR*a.Decay)) + by) * rounding
	for _, x := range []float64{next.first / eps, next.second, by, next.weight} {
		if !(x <= sureMost) {
			return r, false
		}
	}
	return next, true
}

// reaches looks at all numbers of a slot.
func (t *Trainer) reaches(slot int) (r reach) {
	for _, p := range t.params {
		m := t.moments[p.Name]
		for i, to := range []*float64{&r.weight, &r.first, &r.second} {
			x := t.slice([]*tensor.Tensor{t.run.Params[p.Name], m[0], m[1]}[i], slot)
			for _, v := range x.F32() {
				*to = max(*to, math.Abs(float64(v)))
			}
			x.Release()
		}
	}
	return r
}

// update carries out one update of a slot, or tries it, on copies of one parameter after the other: so that nothing
// of an adapter lies there twice. It reports whether all weights and moments are finite numbers then.
func (t *Trainer) update(slot int, a Adam, factor float64, try bool) bool {
	hyper := tensor.Make(tensor.F64, kernels.HyperLen)
	c := optim.Config{Name: "adamw", Beta1: a.Beta1, Beta2: a.Beta2, Eps: a.Eps, Decay: a.Decay}
	t.adam.Hyper(c, a.LR, t.steps[slot], hyper.F64())
	clip := tensor.Make(tensor.F64, kernels.ClipLen)
	clip.F64()[kernels.ClipFactor] = factor
	all := true
	for _, p := range t.params {
		g := t.slice(t.run.Grads[p.Name], slot)
		var changed []*tensor.Tensor // moments, and the weight
		for i, x := range append(slices.Clone(t.moments[p.Name]), t.run.Params[p.Name]) {
			part := t.slice(x, slot)
			if try {
				own := tensor.Of(tensor.F32, t.scratch[i][:part.Len()], part.Shape...)
				copy(own.F32(), part.F32())
				part.Release()
				part = own
			}
			changed = append(changed, part)
		}
		last := len(changed) - 1
		t.adam.Apply(t.run.Backend, g, hyper, clip, changed[last], changed[:last], nil, !p.Decay)
		t.run.Backend.Sync()
		for _, x := range changed {
			all = all && !(try && slices.ContainsFunc(x.F32(), notFinite))
			x.Release()
		}
		g.Release()
		if !all {
			return false
		}
	}
	return true
}

func notFinite(x float32) bool { return x-x != 0 }
