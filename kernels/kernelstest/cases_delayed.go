package kernelstest

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// delayedCases are products whose scales follow from magnitudes of steps before, the magnitudes, and histories of them.
func delayedCases() (l []Case) {
	for _, recipe := range []string{"delayed", "delayed_e4m3"} {
		p, err := kernels.PrecisionOf(recipe)
		if err != nil {
			panic(err)
		}
		low := kernels.Attr{I: [4]int{0, p}}
		for _, s := range [][3]int{{5, 7, 40}, {150, 33, 129}} {
			m, n, k := s[0], s[1], s[2]
			name := fmt.Sprintf("%s of a history-%dx%dx%d", recipe, m, n, k)
			one := func(op kernels.Op, call func(g *gen) *kernels.Call) {
				l = append(l, Case{Op: op, Name: name, Tol: 4e-6, Why: sumWhy, Call: func(g *gen) *kernels.Call {
					c := call(g)
					c.Attr = low
					return c
				}})
			}
			one(kernels.LowLinear, func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.uneven(m, k), g.uneven(n, k), nil, scales(2, 0)},
					Out: tensors{g.raw(g.a, m, n)}}
			})
			one(kernels.LowLinearDX, func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.uneven(m, n), g.uneven(n, k), scales(1, 0)},
					Out: tensors{g.raw(g.a, m, k)}}
			})
			one(kernels.LowLinearDW, func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.uneven(m, n), g.uneven(m, k), scales(3, 2)},
					Out: tensors{g.f32(n, k)}}
			})
		}
		for operand := range 6 {
			at := kernels.Attr{I: [4]int{operand / 2, p, operand % 2}}
			l = append(l, Case{Op: kernels.Rounded, Name: fmt.Sprintf("%s operand %d of a history", recipe, operand),
				Tol: 1e-6, Why: "one product and rounding", Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.uneven(35, 130), nil, scales(2, 1)},
						Out: tensors{g.raw(g.a, 35, 130)}, Attr: at}
				}})
		}
	}
	return append(append(l, greatestCases()...), historyCases()...)
}

// greatestCases are greatest magnitudes, of no numbers too and of such as are not finite.
func greatestCases() (l []Case) {
	for _, s := range [][3]int{{0, 3, 4}, {1, 1, 1}, {5, 7, 40}, {150, 33, 4100}} {
		m, n, k := s[0], s[1], s[2]
		l = append(l, Case{Op: kernels.Greatest, Name: fmt.Sprint(s), Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.uneven(m, k), g.uneven(n, k), g.uneven(m, n)},
				Out: tensors{g.raw(tensor.F32, 1, kernels.DelayedLen(2))}}
		}})
	}
	for _, bad := range []float32{float32(math.Inf(-1)), float32(math.NaN())} {
		l = append(l, Case{Op: kernels.Greatest, Name: fmt.Sprint("of ", bad), Types: onlyF32,
			Call: func(g *gen) *kernels.Call {
				x := g.act(3, 40)
				x.F32()[77] = bad
				return &kernels.Call{In: tensors{g.act(3, 40), g.act(2, 40), x}, Out: tensors{g.raw(tensor.F32, 1, 19)}}
			}})
	}
	return l
}

// historyCases are histories of magnitudes, and maxima.
func historyCases() (l []Case) {
	for _, overflow := range []float64{0, 1} {
		for _, at := range []int{0, 2} {
			l = append(l, Case{Op: kernels.DelayedScales, Name: fmt.Sprintf("%g-%d", overflow, at),
				Call: func(g *gen) *kernels.Call {
					e := make([]float32, kernels.DelayedLen(3))
					e[0], e[1], e[2] = 0.25, 7, float32(math.Inf(1))
					return &kernels.Call{In: tensors{tensor.Of(tensor.F32, e, 1, len(e)), g.f64(1, 1, overflow)},
						Out: tensors{scales(3, at)}}
				}})
		}
	}
	for _, into := range []int{0, kernels.Accumulate} {
		l = append(l, Case{Op: kernels.LargestTo, Name: fmt.Sprint(into), Types: onlyF32,
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.f32(3, 40)}, Out: tensors{g.f32(3, 40)},
					Attr: kernels.Attr{I: [4]int{into}}}
			}})
	}
	for _, overflow := range []float64{0, 1} {
		l = append(l, Case{Op: kernels.LargestTo, Name: fmt.Sprint("clip ", overflow), Types: onlyF32,
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.f32(3, 40), g.f64(1, 1, overflow)}, Out: tensors{g.f32(3, 40)}}
			}})
	}
	return l
}

// scales are delayed scales with histories of so many steps, of which the next goes to a place.
func scales(history, at int) *tensor.Tensor {
	v := make([]float32, kernels.DelayedLen(history))
	for i := range 3 {
		for k := range history {
			m := float32(i+1) * (0.5 + float32(k*k%5))
			v[kernels.DelayedAt+i*history+k] = m
			v[kernels.DelayedMost+i] = max(v[kernels.DelayedMost+i], m)
		}
	}
	v[kernels.DelayedNext] = float32(at)
	return tensor.Of(tensor.F32, v, 1, len(v))
}

var _ = add(delayedCases()...)
