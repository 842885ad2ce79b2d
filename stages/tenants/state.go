package tenants

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// State is what an optimizer keeps of a slot beside its weights.
type State struct {
	Steps   int64
	Moments map[string][]float32 // by the parameter's name, a dot and the moment's
}

// Shapes are those of a slot's moments, by their names in State.
func (t *Trainer) Shapes() map[string][]int {
	out := map[string][]int{}
	for _, p := range t.params {
		for _, name := range t.adam.State {
			out[p.Name+"."+name] = p.Shape[1:]
		}
	}
	return out
}

// State copies what the optimizer keeps of a slot. A gradient that no step has taken is not in it.
func (t *Trainer) State(slot int) State {
	s := State{t.steps[slot], map[string][]float32{}}
	for _, p := range t.params {
		for i, name := range t.adam.State {
			x := t.slice(t.moments[p.Name][i], slot)
			s.Moments[p.Name+"."+name] = slices.Clone(x.F32())
			x.Release()
		}
	}
	return s
}

// Fits says why a state is none of a slot's.
func (t *Trainer) Fits(s State) error {
	shapes := t.Shapes()
	for name, shape := range shapes {
		v := s.Moments[name]
		if len(v) != tensor.Len(shape) || slices.ContainsFunc(v, func(x float32) bool { return !finite(float64(x)) }) {
			return fmt.Errorf("%s: the optimizer's numbers are none, or are not as many as those of %v", name, shape)
		}
	}
	if s.Steps < 0 || len(s.Moments) != len(shapes) {
		return fmt.Errorf("the optimizer's state is of %d steps and %d tensors, and not of %d", s.Steps, len(s.Moments),
			len(shapes))
	}
	return nil
}

// SetState puts a state in place of a slot's, whose gradient is 0 then: with the weights that it was of, the slot goes
// on with the bits that it would have had. On an error nothing has changed.
func (t *Trainer) SetState(slot int, s State) error {
	if err := t.Fits(s); err != nil {
		return err
	}
	t.forget(slot)
	for _, p := range t.params {
		for i, name := range t.adam.State {
			x := t.slice(t.moments[p.Name][i], slot)
			copy(x.F32(), s.Moments[p.Name+"."+name])
			x.Release()
		}
	}
	t.steps[slot], t.reach[slot] = s.Steps, t.reaches(slot)
	return nil
}
