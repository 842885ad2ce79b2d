//go:build cuda

package host

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/cuda"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
	"github.com/lfactor/lfactor/stages/family"
)

// emulatedRanks opens a stream of an emulated device for each rank, the devices in turn, with random delays.
func emulatedRanks(t *testing.T) func(int) kernels.Backend {
	e := emulate.New(t)
	e.Set(t, "jitter", 20, 0)
	t.Setenv(cuda.LibraryVariable, e.Path)
	return func(rank int) kernels.Backend {
		b, err := kernels.Open("cuda", kernels.Options{Rank: rank, Strict: true})
		require.NoError(t, err)
		t.Cleanup(func() { kernels.Close(b) })
		return b
	}
}

// small is a model of two layers of a published family.
func small(t *testing.T, c configs.Model) *family.Model {
	c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.Vocab = 2, 16, 4, 2, 4, 32
	c.Intermediate, c.MaxPositions, c.RopeTheta, c.NormEps, c.InitRange, c.Act, c.SparseStep = 24, 64,
		10000, 1e-6, 0.2, "silu", 1
	m, err := family.Build(c, 8)
	require.NoError(t, err)
	return m
}

// TestTrainOnEmulatedDevices: a dense model and one with experts train in a pipeline of two devices to
// the losses that the processor gives, within the bound of float32 sums of up to 32 terms in another
// order.
func TestTrainOnEmulatedDevices(t *testing.T) {
	v := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}
	for name, m := range map[string]*family.Model{
		"llama": small(t, configs.Model{ModelType: "llama"}),
		"qwen3_moe": small(t, configs.Model{ModelType: "qwen3_moe", Experts: 4, ExpertsEach: 2,
			ExpertWidth: 12, NormTopK: true, BalanceCoef: 0.01}),
	} {
		t.Run(name, func(t *testing.T) {
			want, norms := v.train(t, m, 5, func(int) kernels.Backend { return cpu.New(1) })
			got, gn := v.train(t, m, 5, emulatedRanks(t))
			require.Len(t, got, 5)
			for i := range want {
				require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5, "step %d: %v, want %v",
					i+1, got, want)
				require.LessOrEqual(t, math.Abs(gn[i]-norms[i])/norms[i], 2e-4,
					"gradient norm of step %d", i+1)
			}
			again, _ := v.train(t, m, 5, emulatedRanks(t))
			require.Equal(t, got, again, "the same bits in a second run")
		})
	}
}
