package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// fakeCases are weights that are rounded while they learn: whole groups, a short one behind them, whole rows, rows of
// zeros, and none.
func fakeCases() (l []Case) {
	for _, f := range []kernels.Fake{{Bits: 4, Group: 32}, {Bits: 8, Group: 0}, {Bits: 2, Group: 16}} {
		for _, s := range [][2]int{{0, 5}, {3, 0}, {1, 1}, {3, 64}, {20, 300}, {70, 513}} {
			name := fmt.Sprint(f, s)
			l = append(l, Case{Op: kernels.FakeQuant, Name: name, Tol: 1e-7, Why: "the same numbers",
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.uneven(s[0], s[1])}, Out: tensors{g.raw(g.a, s[0], s[1])},
						Attr: f.Attr()}
				}}, Case{Op: kernels.FakeQuantDW, Name: name, Tol: 1e-7, Why: "the same numbers",
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.f32(s[0], s[1]), g.uneven(s[0], s[1])},
						Out: tensors{g.raw(tensor.F32, s[0], s[1])}, Attr: f.Attr()}
				}})
		}
	}
	return l
}

var _ = add(fakeCases()...)
