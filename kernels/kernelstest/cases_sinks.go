package kernelstest

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// sinkCases: no rows, one head, widths that are no whole vectors, and queries that see no key.
func sinkCases() (l []Case) {
	for _, c := range [][3]int{{0, 2, 4}, {1, 1, 3}, {7, 3, 33}, {130, 4, 64}} {
		t, h, e := c[0], c[1], c[2]
		lse := func(g *gen) *tensor.Tensor {
			x := g.normal(tensor.F32, 3, t, h)
			if t > 1 {
				x.F32()[1] = float32(math.Inf(-1))
			}
			return x
		}
		l = append(l, Case{Op: kernels.AttentionSink, Name: fmt.Sprint(c), Tol: 1e-6,
			Why: "two exponentials and a logarithm", Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(t, h, e), lse(g), g.act(1, h)},
					Out: tensors{g.raw(g.a, t, h, e), g.raw(tensor.F32, t, h)}}
			}})
		for mode := range 2 {
			l = append(l, Case{Op: kernels.AttentionSinkBwd, Name: fmt.Sprint(c, mode), Tol: 2e-6,
				Why: "an exponential of a float32 difference", Call: func(g *gen) *kernels.Call {
					sink, all := g.act(1, h), g.raw(tensor.F32, t, h)
					for i := range all.F32() { // never below the sink's logit
						all.F32()[i] = float32(values(sink)[i%h]) + 3*g.Float32()
					}
					return &kernels.Call{In: tensors{g.act(t, h, e), g.act(t, h, e), all, sink},
						Out: tensors{g.f32(1, h)}, Attr: kernels.Attr{I: [4]int{mode}}}
				}})
		}
	}
	return l
}

// boundedCases have numbers within and beyond both bounds.
func boundedCases() (l []Case) {
	at := kernels.Attr{F: [2]float64{2.5, 1.702}}
	for _, n := range lengths {
		l = append(l, Case{Op: kernels.BoundedGLU, Name: fmt.Sprint(n), Tol: 2e-6, Terms: 1,
			Why: "one exponential and three quotients", Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.normal(g.a, 3, n), g.normal(g.a, 2, n)},
					Out: tensors{g.raw(g.a, n)}, Attr: at}
			}}, Case{Op: kernels.BoundedGLUBwd, Name: fmt.Sprint(n), Tol: 2e-6, Terms: 1,
			Why: "one exponential and three quotients", Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(n), g.normal(g.a, 3, n), g.normal(g.a, 2, n)},
					Out: tensors{g.raw(g.a, n), g.raw(g.a, n)}, Attr: at}
			}})
	}
	return l
}

func groupIDCases() (l []Case) {
	for _, off := range [][]int32{{0, 0}, {0, 7}, {0, 2, 2, 5, 9}, {1, 3, 4}} {
		for _, rows := range []int{9, 12} {
			l = append(l, Case{Op: kernels.GroupIDs, Name: fmt.Sprint(off, rows), Types: onlyF32,
				Why: "integers", Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.i32(off...)}, Out: tensors{g.raw(tensor.I32, rows)}}
				}})
		}
	}
	return l
}

var _ = add(sinkCases()...)
var _ = add(boundedCases()...)
var _ = add(groupIDCases()...)
