package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
)

// latentCases join heads of equal and unequal parts, one head and many, and no rows at all.
func latentCases() (l []Case) {
	for _, c := range [][4]int{{0, 2, 4, 4}, {1, 1, 2, 3}, {5, 3, 8, 16}, {130, 16, 64, 128}} {
		t, h, r, n := c[0], c[1], c[2], c[3]
		l = append(l, Case{Op: kernels.JoinHeads, Name: fmt.Sprint(c), Why: "copies", Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, 1, r), g.act(t, h, n)}, Out: tensors{g.raw(g.a, t, h, r+n)}}
		}}, Case{Op: kernels.JoinHeadsBwd, Name: fmt.Sprint(
			c), Tol: 1e-6, Why: "float32 sums of up to 16", Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, h, r+n)}, Out: tensors{g.raw(g.a, t, 1, r), g.raw(g.a, t, h, n)}}
		}})
	}
	return l
}

var _ = add(latentCases()...)
