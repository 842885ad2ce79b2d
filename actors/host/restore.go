package host

import (
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// restore gives up all that belongs to the step under way and takes the state of a step that is durable.
func (r *Rank) restore(j actors.Job) error {
	r.abandon()
	if r.c.Saved == nil {
		return errors.New("a rank is to go back to a saved state, and nothing is saved")
	}
	fill, done, err := r.c.Saved(j.Step)
	if err == nil {
		err = r.Load(fill)
		done()
	}
	if err != nil {
		return fmt.Errorf("%s: going back to step %d: %w", r.c.Name, j.Step, err)
	}
	return nil
}

// abandon drops frames and gradients.
func (r *Rank) abandon() {
	for k, f := range r.frames {
		f.Drop()
		delete(r.frames, k)
	}
	for _, m := range []map[string]*tensor.Tensor{r.run.Grads, r.owned} {
		for k, t := range m {
			t.Release()
			delete(m, k)
		}
	}
}
