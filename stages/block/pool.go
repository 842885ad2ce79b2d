package block

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/grad"
)

// Pool makes a feature of the mean of neighbouring patches: a norm and a product without a bias bring it to
// the decoder's width, as in Gemma 3.
type Pool struct {
	Tower *Tower
	Out   int
	Norm  Norm
}

// Forward gives features [p/join out] of rows x [p hidden], whose neighbours follow each other.
func (m *Pool) Forward(r *Rec, name string, x *grad.Value) *grad.Value {
	t, n := r.T, m.Tower.Join
	rows := x.Shape[0] / n
	var sum *grad.Value
	for i := range n {
		from := t.Indices(fmt.Sprintf("%s.pool.%d", name, i), rows, func(k int) int { return k*n + i })
		one := t.Take(x, from)
		if sum == nil {
			sum = one
		} else {
			sum = t.Add(sum, one)
		}
	}
	h := m.Norm.Record(r, name+".norm", t.Scale(sum, 1/float64(n)), m.Tower.Hidden)
	return t.Place("", r.Linear(name+".proj", h, m.Out, m.Tower.Hidden, LinearOpts{}))
}
