package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// adafactorCases are updates of matrices and of stacks of them, of vectors, and of a step that is skipped.
func adafactorCases() (l []Case) {
	for _, s := range [][]int{{1, 1}, {3, 5}, {130, 70}, {3, 17, 9}, {0, 4}} {
		for _, factored := range []bool{true, false} {
			for _, overflow := range []float64{0, 1} {
				l = append(l, Case{Op: kernels.Adafactor, Name: fmt.Sprint(s, factored, overflow), Types: onlyF32,
					Tol: 2e-5, Why: "sums of 9,100 squares and a root", Leaky: true, Call: func(g *gen) *kernels.Call {
						n := len(s)
						e := tensor.Len(s[:n-2])
						square := make([]float64, e)
						for i := range square {
							square[i] = 3.5 * float64(i+1)
						}
						row, col := g.positive(append(append([]int{}, s[:n-1]...), 1)...), (*tensor.Tensor)(nil)
						if factored {
							col = g.positive(append(append([]int{}, s[:n-2]...), 1, s[n-1])...)
						} else {
							row = g.positive(s...)
						}
						h := make([]float64, kernels.HyperLen)
						h[kernels.HyperBeta2], h[kernels.HyperFloor] = 0.2, 1e-3
						h[kernels.HyperClipAbove], h[kernels.HyperMeasured] = 0.7, 1
						return &kernels.Call{In: tensors{g.f32(s...), tensor.Of(tensor.F64, square, e),
							tensor.Of(tensor.F64, h, len(h)), g.f64(1, 0.5, overflow)},
							Out: tensors{g.raw(tensor.F32, s...), row, col}}
					}})
			}
		}
	}
	return l
}

var _ = add(adafactorCases()...)
