package ref_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// sinks is attention with a further logit a head: attention_bwd takes the results of both operations.
func (m maker) sinks(window int) gradCase {
	cu := tensor.Of(tensor.I32, []int32{0, 3, 8}, 3)
	q, k, v, sink := m.normal(8, 4, 5), m.normal(8, 2, 5), m.normal(8, 2, 3), m.normal(1, 4)
	a := kernels.Attr{I: [4]int{1, window}, F: [2]float64{0.6}}
	dy, shapes := m.normal(8, 4, 3), [][]int{{8, 4, 3}, {8, 4}}
	forward := func() tensors {
		o := run(kernels.Attention, a, tensors{q, k, v, cu, cu}, shapes...)
		return run(kernels.AttentionSink, kernels.Attr{}, tensors{o[0], o[1], sink}, shapes...)
	}
	return gradCase{"sinks", tensors{q, k, v, sink}, func() float64 { return inner(dy, forward()[0]) },
		func() tensors {
			y := forward()
			return append(run(kernels.AttentionBwd, a, tensors{dy, q, k, v, y[0], y[1], cu, cu}, q.Shape,
				k.Shape, v.Shape), run(kernels.AttentionSinkBwd, kernels.Attr{},
				tensors{dy, y[0], y[1], sink}, sink.Shape)...)
		}}
}

func (m maker) bounded() gradCase {
	g, u := m.normal(3, 16), m.normal(3, 16)
	for _, v := range [][]float32{g.F32(), u.F32()} { // differences do not cross a bound
		for i, x := range v {
			if math.Abs(math.Abs(float64(x))-0.8) < 0.02 {
				v[i] = 0.5
			}
		}
	}
	a := kernels.Attr{F: [2]float64{0.8, 1.702}}
	return m.of("bounded_glu", kernels.BoundedGLU, a, tensors{g, u}, tensors{g, u},
		func(dy *tensor.Tensor) tensors {
			return run(kernels.BoundedGLUBwd, a, tensors{dy, g, u}, g.Shape, u.Shape)
		}, g.Shape)
}

// TestSinkGradients bounds errors as TestGradients does.
func TestSinkGradients(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(5, 6))}
	for _, c := range []gradCase{m.sinks(0), m.sinks(2), m.bounded()} {
		grads := c.gradient()
		require.Len(t, grads, len(c.vary), c.name)
		for i, v := range c.vary {
			require.Less(t, distance(grads[i].F32(), differences(v.F32(), c.forward)), 1e-3,
				"%s: operand %d", c.name, i)
		}
	}
}
