package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// watchCases are errors of products in each precision, with and without groups, and products that a choice leaves
// as they are.
func watchCases() (l []Case) {
	for p := 1; p < len(kernels.Precisions); p++ {
		low := kernels.Attr{I: [4]int{0, p}}
		for _, s := range [][3]int{{1, 1, 1}, {5, 7, 40}, {40, 150, 260}, {150, 33, 129}} {
			m, n, k := s[0], s[1], s[2]
			name := fmt.Sprintf("%s-%dx%dx%d", kernels.Precisions[p].Name, m, n, k)
			l = append(l, Case{Op: kernels.LowError, Name: name, Tol: 2e-4, Why: "differences of two sums",
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.uneven(m, k), g.uneven(n, k), g.uneven(m, n), choice(0, 0)},
						Out: tensors{g.raw(tensor.F32, 1, kernels.ChoiceLen)}, Attr: low}
				}},
				Case{Op: kernels.LowError, Name: name + " of groups", Tol: 2e-4,
					Why: "differences of two sums",
					Call: func(g *gen) *kernels.Call {
						return &kernels.Call{In: tensors{g.uneven(m, k), g.uneven(3, n, k),
							g.uneven(m, n), choice(3, 0), g.i32(0, int32(m/4), int32(m/4), int32(m))},
							Out: tensors{g.raw(tensor.F32, 1, kernels.ChoiceLen)}, Attr: low}
					}})
		}
		name := kernels.Precisions[p].Name + " of a choice"
		l = append(l,
			Case{Op: kernels.LowError, Name: name, Tol: 2e-4, Why: "differences of two sums", Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(3, 40), g.act(5, 40), g.act(3, 5), choice(0, 2)},
					Out: tensors{g.raw(tensor.F32, 1, kernels.ChoiceLen)}, Attr: low}
			}}, Case{Op: kernels.LowLinear, Name: name, Tol: 4e-6, Why: sumWhy, Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.uneven(3, 40), g.uneven(5, 40), nil, choice(1, 0)},
					Out: tensors{g.raw(g.a, 3, 5)}, Attr: low}
			}}, Case{Op: kernels.LowLinearDX, Name: name, Tol: 4e-6, Why: sumWhy, Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.uneven(3, 5), g.uneven(5, 40), choice(1, 0)},
					Out: tensors{g.raw(g.a, 3, 40)}, Attr: low}
			}}, Case{Op: kernels.LowLinearDW, Name: name, Tol: 4e-6, Why: sumWhy, Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.uneven(3, 5), g.uneven(3, 40), choice(1, 0)},
					Out: tensors{g.f32(5, 40)}, Attr: low}
			}}, Case{Op: kernels.Rounded, Name: name, Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.uneven(3, 40), nil, choice(1, 0)},
					Out: tensors{g.raw(g.a, 3, 40)}, Attr: low}
			}})
	}
	for _, overflow := range []float64{0, 1} {
		for _, of := range []float32{0.5, 40} {
			l = append(l, Case{Op: kernels.LowChoice, Name: fmt.Sprintf("%g-%g", overflow, of), Tol: 1e-6,
				Why: "one root", Call: func(g *gen) *kernels.Call {
					e := make([]float32, kernels.ChoiceLen)
					for i := range e {
						e[i] = of * float32(i%4)
					}
					e[kernels.ErrorSeen] = 1000
					return &kernels.Call{In: tensors{tensor.Of(tensor.F32, e, 1, len(e)), g.f64(1, 1, overflow)},
						Out:  tensors{choice(2, 0)},
						Attr: kernels.Watch{Limit: 0.9, Lost: 0.01, Every: 3, Stay: 5}.Attr()}
				}})
		}
	}
	return l
}

// choice is one that stays for some steps and looks at errors behind some.
func choice(stay, next float32) *tensor.Tensor {
	v := make([]float32, kernels.ChoiceLen)
	v[kernels.ChoiceStay], v[kernels.ChoiceNext] = stay, next
	return tensor.Of(tensor.F32, v, 1, len(v))
}

var _ = add(watchCases()...)
