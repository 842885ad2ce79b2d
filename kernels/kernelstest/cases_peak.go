package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// peakCases are greatest scores of attention, causal and not, with windows and groups of heads, and
// parameters that shrink by them.
func peakCases() (l []Case) {
	for _, s := range [][5]int{{1, 1, 1, 1, 0}, {7, 4, 2, 16, 0}, {150, 6, 3, 24, 0}, {150, 4, 1, 40, 9},
		{700, 2, 2, 8, 0}, {70, 2, 1, 100, 0}, {70, 2, 1, 200, 0}} {
		for causal := range 2 {
			t, h, g, d := s[0], s[1], s[2], s[3]
			l = append(l, Case{Op: kernels.AttentionPeak, Name: fmt.Sprint(s, causal), Tol: 4e-6, Half: 1, Why: sumWhy,
				Call: func(gen *gen) *kernels.Call {
					cu := gen.i32(0, int32(t/3), int32(t/3), int32(t))
					return &kernels.Call{In: tensors{gen.act(t, h, d), gen.act(t, g, d), cu, cu},
						Out:  tensors{gen.raw(tensor.F32, 1, 2*h)},
						Attr: kernels.Attr{F: [2]float64{0.4}, I: [4]int{causal, s[4], h - 1}}}
				}})
		}
	}
	for _, overflow := range []float64{0, 1} {
		for _, first := range []int{0, 5} {
			l = append(l, Case{Op: kernels.PeakClip, Name: fmt.Sprintf("%g-%d", overflow, first), Tol: 2e-7,
				Why: "one product", Call: func(g *gen) *kernels.Call {
					peak := tensor.Of(tensor.F32, []float32{5, 20, 0, 9, 11, 1e6, 3, 2}, 1, 8)
					return &kernels.Call{In: tensors{peak, g.f64(1, 1, overflow)}, Out: tensors{g.f32(13, 7),
						g.act(13, 7)}, Attr: kernels.Attr{F: [2]float64{10, 0.5}, I: [4]int{first, 6, 1, 2}}}
				}})
		}
	}
	return append(l, Case{Op: kernels.PeakClip, Name: "a bias", Tol: 2e-7, Why: "one product", Types: onlyF32,
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{tensor.Of(tensor.F32, []float32{5, 20}, 1, 2), g.f64(1, 1, 0)},
				Out: tensors{g.f32(6), nil}, Attr: kernels.Attr{F: [2]float64{10, 1}, I: [4]int{0, 3, 0, 1}}}
		}})
}

var _ = add(peakCases()...)
