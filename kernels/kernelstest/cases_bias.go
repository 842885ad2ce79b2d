package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// biasShapes: a single token, none, sequences shorter and longer than the bias reaches, more keys than
// queries, and more of them than a block has.
var biasShapes = []struct {
	lensQ, lensK    []int
	h, g, d, e, far int
	causal          int
	scale           float64
}{
	{[]int{1}, []int{1}, 1, 1, 4, 4, 0, 0, 1},
	{[]int{}, []int{}, 2, 1, 4, 4, 3, 0, 1},
	{[]int{5, 0, 9}, []int{5, 3, 9}, 2, 2, 8, 12, 3, 0, 1},
	{[]int{7, 40}, []int{12, 40}, 4, 2, 17, 5, 60, 0, 0.3},
	{[]int{33}, []int{33}, 2, 1, 16, 16, 8, 1, 0.25},
	{[]int{130, 20}, []int{700, 20}, 2, 2, 8, 8, 128, 0, 1},
	{[]int{20}, []int{24}, 2, 1, 72, 80, 5, 0, 0.1},
}

const biasWhy = "sums of some hundred products and exponentials of scores of size 10, in another order"

// biasCases are attention with a bias by distance and its gradient, with rows beyond the last
// sequence, and with tables in the type of activations and in float32.
func biasCases() []Case {
	var l []Case
	for i, s := range biasShapes {
		at := kernels.Attr{I: [4]int{s.causal}, F: [2]float64{s.scale}}
		operands := func(g *gen, wide bool) (in tensors, o, lse *tensor.Tensor) {
			cuQ, cuK := cumulative(s.lensQ), cumulative(s.lensK)
			t, k := int(cuQ[len(cuQ)-1])+2, int(cuK[len(cuK)-1])+1 // rows of no sequence
			in = tensors{g.normal(g.a, 0.6, t, s.h, s.d), g.normal(g.a, 0.6, k, s.g, s.d), g.act(k, s.g, s.e),
				g.i32(cuQ...), g.i32(cuK...), g.act(2*s.far+1, s.h)}
			if wide {
				in[5] = g.f32(2*s.far+1, s.h)
			}
			return in, g.raw(g.a, t, s.h, s.e), g.raw(tensor.F32, t, s.h)
		}
		wide := i%2 == 1
		name := fmt.Sprintf("%d_%v-%v", i, s.lensQ, s.lensK)
		l = append(l, Case{Op: kernels.AttentionBias, Name: name, Tol: 3e-5, Half: 1, Terms: 1, Why: biasWhy,
			Leaky: true, Call: func(g *gen) *kernels.Call {
				in, o, lse := operands(g, wide)
				return &kernels.Call{In: in, Out: tensors{o, lse}, Attr: at}
			}},
			Case{Op: kernels.AttentionBiasBwd, Name: name, Tol: 1e-4, Half: 2, Terms: 1, Why: biasWhy,
				Leaky: true,
				Call: func(g *gen) *kernels.Call {
					in, o, lse := operands(g, wide)
					do(kernels.AttentionBias, at, in, tensors{o, lse})
					c := &kernels.Call{Attr: at, In: append(tensors{g.act(o.Shape...), in[0], in[1], in[2],
						o, lse}, in[3:]...)}
					for _, x := range in[:3] {
						c.Out = append(c.Out, g.raw(g.a, x.Shape...))
					}
					c.Out = append(c.Out, g.raw(in[5].DType, in[5].Shape...))
					return c
				}})
	}
	return l
}

var _ = add(biasCases()...)
