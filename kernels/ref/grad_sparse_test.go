package ref_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func (m maker) sparse() gradCase {
	q, k, v := m.normal(5, 4, 5), m.normal(7, 2, 5), m.normal(7, 2, 3)
	idx := tensor.Of(tensor.I32, []int32{0, 2, -1, 1, 4, 6, -1, -1, -1, 3, 5, 6, 0, 1, 2}, 5, 3)
	a := kernels.Attr{F: [2]float64{0.6}}
	return m.of("attention_sparse", kernels.AttentionSparse, a, tensors{q, k, v, idx}, tensors{q, k, v},
		func(dy *tensor.Tensor) tensors {
			y := run(kernels.AttentionSparse, a, tensors{q, k, v, idx}, []int{5, 4, 3}, []int{5, 4})
			return run(kernels.AttentionSparseBwd, a, tensors{dy, q, k, v, y[0], y[1], idx}, q.Shape, k.Shape,
				v.Shape)
		}, []int{5, 4, 3}, []int{5, 4})
}

// index is the loss of an indexer over all visible keys, or over those of a list.
func (m maker) index(some bool) gradCase {
	iq, ik, iw := m.normal(4, 3, 6), m.normal(6, 1, 6), m.normal(4, 3)
	q, k := m.normal(4, 4, 5), m.normal(6, 2, 5)
	see := tensor.Of(tensor.I32, []int32{0, 1, 0, 4, 4, 6, 0, 0}, 4, 2)
	mean := tensor.Of(tensor.F32, []float32{0.5, 0.25, 0.25, 0.1}, 4)
	in := tensors{iq, ik, iw, q, k, see, mean}
	if some {
		in = append(in, tensor.Of(tensor.I32, []int32{0, -1, 1, 3, 4, 5, -1, -1}, 4, 2))
	}
	a := kernels.Attr{F: [2]float64{0.7, 0.5}}
	return m.of("index_loss", kernels.IndexLoss, a, in, tensors{iq, ik, iw},
		func(dy *tensor.Tensor) tensors {
			return run(kernels.IndexLossBwd, a, append(tensors{dy}, in...), iq.Shape, ik.Shape, iw.Shape)
		}, []int{1})
}

// TestSparseGradients bounds errors as TestGradients does.
func TestSparseGradients(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(7, 8))}
	for _, c := range []gradCase{m.sparse(), m.index(false), m.index(true)} {
		grads := c.gradient()
		require.Len(t, grads, len(c.vary), c.name)
		for i, v := range c.vary {
			require.Less(t, distance(grads[i].F32(), differences(v.F32(), c.forward)), 1e-3,
				"%s: operand %d", c.name, i)
		}
	}
}

// TestIndexTopK: the best keys that a query sees, in ascending order, the first of equal scores.
func TestIndexTopK(t *testing.T) {
	q := tensor.Of(tensor.F32, []float32{1, 1, 1, 1}, 4, 1, 1)
	k := tensor.Of(tensor.F32, []float32{3, -1, 5, -2, 4}, 5, 1, 1)
	w := tensor.Of(tensor.F32, []float32{1, 1, -1, 1}, 4, 1)
	see := tensor.Of(tensor.I32, []int32{0, 5, 1, 4, 0, 5, 2, 2}, 4, 2)
	out := tensor.Make(tensor.I32, 4, 2)
	b := ref.New()
	b.Run(&kernels.Call{Op: kernels.IndexTopK, Attr: kernels.Attr{F: [2]float64{1}},
		In: tensors{q, k, w, see}, Out: tensors{out}})
	require.Equal(t, []int32{2, 4, 1, 2, 1, 3, -1, -1}, out.I32())
}

func TestVisibleKeys(t *testing.T) {
	see, mean := tensor.Make(tensor.I32, 6, 2), tensor.Make(tensor.F32, 6)
	ref.New().Run(&kernels.Call{Op: kernels.VisibleKeys, In: tensors{
		tensor.Of(tensor.I32, []int32{1, 3, 5}, 3), tensor.Of(tensor.I32, []int32{2, 6, 7}, 3)},
		Out: tensors{see, mean}})
	require.Equal(t, []int32{0, 0, 2, 5, 2, 6, 6, 6, 6, 7, 0, 0}, see.I32())
	require.Equal(t, []float32{0, 0.25, 0.25, 0.25, 0.25, 0}, mean.F32())
}
