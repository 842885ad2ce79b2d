package optim

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestChance16: numbers are rounded to one of their neighbours, to the upper one as often as they are near to it, and
// those of bf16 stay as they are.
func TestChance16(t *testing.T) {
	const lower, step = float32(1), float32(1. / 128)
	for _, share := range []float32{0, 0.25, 0.5, 0.9} {
		up := 0
		for salt := range uint32(20000) {
			switch y := tensor.BF16Value(kernels.StochasticRound16(-(lower + share*step), kernels.NoiseAt(3, int(salt)))); y {
			case -lower:
			case -(lower + step):
				up++
			default:
				t.Fatalf("%g became %g", lower+share*step, y)
			}
		}
		require.InDelta(t, share, float64(up)/20000, 0.012)
	}
	for _, x := range []float32{0, float32(math.Inf(-1)), math.MaxFloat32, 3e38} {
		require.Equal(t, tensor.BF16Bits(x), kernels.StochasticRound16(x, 0xffff))
	}
	require.True(t, math.IsNaN(float64(tensor.BF16Value(kernels.StochasticRound16(float32(math.NaN()), 7)))))
}

// TestNarrow: moments in bf16 take half the memory, and 200 steps of them move weights as those in float32 do, within
// 2 % of the way; rounded to the nearest, a second moment with β2 near 1 would stand still.
func TestNarrow(t *testing.T) {
	text, err := os.ReadFile("testdata/optimizers.json") // bench/golden/optimizers.py
	require.NoError(t, err)
	var g struct {
		Start []float32
		Grads [][]float32
	}
	require.NoError(t, json.Unmarshal(text, &g))
	run := func(narrow bool) []float32 {
		c := Config{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8,
			Moments: map[bool]string{true: Half}[narrow]}
		o, err := Of(c)
		require.NoError(t, err)
		require.EqualValues(t, map[bool]int{true: 4, false: 8}[narrow], o.StateBytes(1))
		p, n := tensor.Of(tensor.F32, append([]float32{}, g.Start...), len(g.Start)), len(g.Start)
		state := []*tensor.Tensor{tensor.Make(o.Form(0).Type, n), tensor.Make(o.Form(1).Type, n)}
		hyper, clip := tensor.Make(tensor.F64, kernels.HyperLen), tensor.Make(tensor.F64, kernels.ClipLen)
		clip.F64()[kernels.ClipFactor] = 1
		for i, x := range g.Grads {
			o.Hyper(c, 1e-3, int64(i+1), hyper.F64())
			o.Apply(cpu.New(1), tensor.Of(tensor.F32, x, n), hyper, clip, p, state, nil, true)
		}
		return p.F32()
	}
	wide, narrow := run(false), run(true)
	way, apart := 0.0, 0.0
	for i, x := range wide {
		way += math.Abs(float64(x - g.Start[i]))
		apart += math.Abs(float64(x - narrow[i]))
	}
	t.Logf("%.4f of the way apart", apart/way)
	require.Less(t, apart/way, 0.02)
	require.NotZero(t, apart)
}
