package ref_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestDeltaGradients: the gradients of the delta rule, of its gates and of the convolution before it are
// those of finite differences, over packed sequences and several value heads a key head.
func TestDeltaGradients(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(3, 4))}
	cu := tensor.Of(tensor.I32, []int32{0, 5, 5, 7}, 4)
	q, k, v, g, beta := m.normal(
		8,
		1,
		4,
	), m.normal(
		8,
		1,
		4,
	), m.normal(
		8,
		2,
		3,
	), m.normal(
		8,
		2,
	), m.normal(
		8,
		2,
	)
	for i := range g.F32() {
		g.F32()[i], beta.F32()[i] = -g.F32()[i]*g.F32()[i]/4, 0.5+beta.F32()[i]/8
	}
	at := kernels.Attr{F: [2]float64{1e-6}}
	x, w := m.normal(8, 3), m.normal(3, 4)
	a, b, decay, bias, dbeta := m.normal(3, 2), m.normal(3, 2), m.normal(2), m.normal(2), m.normal(3, 2)
	for _, c := range []gradCase{
		m.of("delta_rule", kernels.DeltaRule, at, tensors{q, k, v, g, beta, cu}, tensors{q, k, v, g, beta},
			func(dy *tensor.Tensor) tensors {
				return run(kernels.DeltaRuleBwd, at, tensors{dy, q, k, v, g, beta, cu}, q.Shape, k.Shape,
					v.Shape, g.Shape, beta.Shape)
			}, v.Shape),
		m.of("causal_conv", kernels.CausalConv, kernels.Attr{}, tensors{x, w, cu}, tensors{x, w},
			func(dy *tensor.Tensor) tensors {
				return tensors{
					run(kernels.CausalConvDX, kernels.Attr{}, tensors{dy, w, cu}, x.Shape)[0],
					run(kernels.CausalConvDW, kernels.Attr{}, tensors{dy, x, cu}, w.Shape)[0],
				}
			}, x.Shape),
		{"delta_gates", tensors{a, b}, func() float64 {
			out := run(kernels.DeltaGates, kernels.Attr{}, tensors{a, b, decay, bias}, a.Shape, a.Shape)
			return inner(dbeta, out[0]) + inner(dbeta, out[1])
		}, func() tensors {
			return run(kernels.DeltaGatesBwd, kernels.Attr{}, tensors{dbeta, dbeta, a, b, decay, bias},
				a.Shape, b.Shape)
		}},
	} {
		grads := c.gradient()
		require.Len(t, grads, len(c.vary), c.name)
		for i, v := range c.vary {
			far := distance(grads[i].F32(), differences(v.F32(), c.forward))
			require.Less(t, far, 1e-3, "%s: gradient of operand %d", c.name, i)
		}
	}
}
