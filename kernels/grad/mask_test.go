package grad_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// seeing records an attention layer whose queries see tiles of four rows and near positions only.
func seeing(o grad.Options) *grad.Trace {
	const rows, d, v = 12, 8, 10
	t := grad.NewTape(o)
	t.Block(0, func() {
		x, cu := t.Data("x", tensor.F32, rows, d), t.Data("cu", tensor.I32, 2)
		head := func(name string) *grad.Value {
			return t.Heads(t.Linear(x, t.Param(name, []int{d, d}, 0, 4, true), nil), 4)
		}
		pos := t.Data("pos", tensor.I32, rows, 3)
		a := t.Attention(head("q"), head("k"), head("v"), cu, cu, grad.AttentionConfig{Scale: .5,
			Blocks: t.Data("blocks", tensor.I32, 3, 1), Tile: 4,
			PosQ: pos, PosK: pos, Near: t.Data("near", tensor.I32, 6)})
		y := t.Place("residual", t.Linear(t.Flat(a), t.Param("o", []int{d, d}, 1, 4, true), nil))
		t.Loss(t.LinearCrossEntropy(y, t.Param("head", []int{v, d}, -1, 1, true),
			t.Data("target", tensor.I32, rows), t.Data("weight", tensor.F32, rows), 0))
	})
	return t.Finish()
}

// TestMaskedAttention: the gradients of a layer with both masks are those of finite differences, under recompute too.
func TestMaskedAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	target, weight, pos := make([]int32, 12), make([]float32, 12), make([]int32, 36)
	for i := range target {
		target[i], weight[i] = int32(r.IntN(10)), 1./12
		copy(pos[3*i:], []int32{int32(i / 6), int32(i / 3 % 2), int32(i % 3)})
	}
	data := map[string]*tensor.Tensor{"x": randT(r, 1, 12, 8),
		"cu":     tensor.Of(tensor.I32, []int32{0, 12}, 2),
		"blocks": tensor.Of(tensor.I32, []int32{3, 6, 1}, 3, 1),
		"pos":    tensor.Of(tensor.I32, pos, 12, 3),
		"near":   tensor.Of(tensor.I32, []int32{1, 0, 1, 1, 2, 1}, 6),
		"target": tensor.Of(tensor.I32, target, 12), "weight": tensor.Of(tensor.F32, weight, 12)}
	params := map[string]*tensor.Tensor{}
	for _, p := range seeing(grad.Options{}).Params {
		params[p.Name] = randT(r, .5, p.Shape...)
	}
	step := func(tr *grad.Trace) (float64, map[string]*tensor.Tensor) {
		run := &grad.Runner{Backend: ref.New(), Pool: tensor.NewPool("rank", 0).Poison(),
			Host: tensor.NewPool("host", 0), Pos: []int{0}, Params: params,
			Grads: map[string]*tensor.Tensor{}, Seed: 1}
		have := map[string]*tensor.Tensor{}
		for k, v := range data {
			have[k] = v
		}
		f := run.NewFrame(tr, have, nil, nil)
		_, err := run.Step(f, grad.F, 0, nil)
		require.NoError(t, err)
		_, err = run.Step(f, grad.B, 0, nil)
		require.NoError(t, err)
		loss := f.Loss()
		f.Close()
		return loss, run.Grads
	}
	tr := seeing(grad.Options{})
	for _, policy := range []grad.Recompute{grad.RecomputeNone, grad.RecomputeFull} {
		_, grads := step(seeing(grad.Options{Recompute: policy}))
		for _, name := range []string{"q", "k", "v", "o"} {
			g, v := grads[name].F32(), params[name].F32()
			for i := 0; i < len(v); i += 7 {
				const h = 0x1p-7
				x := v[i]
				v[i] = x + h
				up, _ := step(tr)
				v[i] = x - h
				down, _ := step(tr)
				v[i] = x
				// A float32 loss near 2 leaves 1e-7 over twice the step, truncation about as much.
				require.InDelta(t, (up-down)/(2*h), g[i], 1e-4, "%s[%d] with policy %d", name, i, policy)
			}
		}
	}
}
