package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// kinds are those of t tokens: two kinds, and none.
func (g *gen) kinds(t int) *tensor.Tensor {
	kind := g.raw(tensor.I32, t)
	for i := range kind.I32() {
		kind.I32()[i] = int32(i*7%3) - 1
	}
	return kind
}

// some are the experts of t tokens, of which some go to none.
func (g *gen) some(t, k, e int) *tensor.Tensor {
	own := g.raw(tensor.I32, t, k)
	do(kernels.KindExperts, kernels.Attr{}, tensors{g.routed(t, k, e), g.kinds(t)}, tensors{own})
	return own
}

// kindCases are of experts that are for one kind of tokens.
func kindCases() []Case {
	var l []Case
	const e, k = 6, 3
	for _, t := range tokensOf {
		name := fmt.Sprintf("%d tokens of two kinds", t)
		for kind := range 2 {
			at := kernels.Attr{I: [4]int{kind}}
			of := fmt.Sprintf("%s, %d", name, kind)
			l = append(l, Case{Op: kernels.KindExperts, Name: of, Types: onlyF32, Why: "integers",
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.routed(t, k, e), g.kinds(t)}, Attr: at,
						Out: tensors{g.raw(tensor.I32, t, k)}}
				}}, Case{Op: kernels.KindRows, Name: of, Why: "copies", Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(t, e), g.kinds(t)}, Attr: at, Out: tensors{g.raw(g.a, t, e)}}
			}})
		}
		for _, add := range []int{0, kernels.Accumulate} {
			l = append(l, Case{Op: kernels.KindSurplus, Name: fmt.Sprintf("%s add %d", name, add),
				Types: onlyF32, Tol: 1e-7, Why: "counts", Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.some(t, k, e)}, Out: tensors{g.f32(e)},
						Attr: kernels.Attr{I: [4]int{add}}}
				}})
		}
		for _, at := range limits {
			l = append(l, Case{Op: kernels.RouteOrder, Name: fmt.Sprintf("%s limit %g by %d", name, at.F[0],
				at.I[0]), Types: onlyF32, Why: "integers", Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.some(t, k, e), g.positive(t, k)}, Attr: at,
					Out: tensors{g.raw(tensor.I32, t*k), g.raw(tensor.I32, t, k), g.raw(tensor.I32, e)}}
			}})
		}
	}
	return l
}
