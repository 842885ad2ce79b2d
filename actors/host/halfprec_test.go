package host

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// trainHalf trains 30 steps in a precision and returns losses and the loss scale of each step.
func trainHalf(t *testing.T, d tensor.DType, scale core.LossScale, mesh topology.Mesh,
	zero int) (losses, scales []float64, skipped []bool) {
	m := tiny(true)
	l, err := layout.New(&layout.Design{Model: m, Mesh: mesh, Zero: zero, Schedule: "1f1b",
		Micro: 4 / mesh.Replicas(), Rows: 8, DType: d,
		Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}})
	require.NoError(t, err)
	o := RunOptions{Coord: core.RunLayout{First: 1, Last: 30, LossScale: scale, LR: func(int64) float64 {
		return 0.003
	}},
		Backend: func(int) kernels.Backend { return cpu.New(1) },
		Batches: func(_ int64, dp int) ([]family.Microbatch, error) {
			return testBatches(mesh.Replicas(), 8)(1, dp)
		},
		Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind == "param" {
				m.Init(7, p, g, dst)
			}
			return kind == "param", nil
		},
		Observe: func(m actors.Message) {
			if m.Text == core.TopicStep {
				x := core.SummaryOf(m.Values)
				losses, scales = append(losses, x.Loss), append(scales, x.Scale)
				skipped = append(skipped, x.Overflow)
			}
		}}
	require.NoError(t, Run(l, o))
	return
}

// TestHalfPrecision: bf16 and fp16 with float32 master weights learn the same batch as float32 does.
// One rounding errs by 2^-9 (bf16) or 2^-12 (fp16), and each forward has some 40 in a row, so that the first loss
// agrees within 40^½ of that; after 30 steps, each of which amplifies what the one before left, within 3 %.
func TestHalfPrecision(t *testing.T) {
	want, _, _ := trainHalf(t, tensor.F32, core.LossScale{Scale: 1}, topology.Grid(1, 1, 1), 0)
	require.Less(t, want[29], want[0]-0.5)
	dynamic := core.LossScale{Dynamic: true, Scale: 65536, Min: 1, Window: 1000, Hysteresis: 2, Left: 2}
	for _, mesh := range []topology.Mesh{topology.Grid(1, 1, 1), topology.Grid(2, 2, 1)} {
		bf16, _, _ := trainHalf(t, tensor.BF16, core.LossScale{Scale: 1}, mesh, 1)
		fp16, _, skipped := trainHalf(t, tensor.F16, dynamic, mesh, 1)
		over := 0
		for i := range want {
			if skipped[i] {
				over++
			}
		}
		require.InEpsilon(t, want[0], bf16[0], math.Sqrt(40)/512)
		require.InEpsilon(t, want[0], fp16[0], math.Sqrt(40)/4096)
		require.LessOrEqual(t, math.Abs(bf16[29]-want[29])/want[29], 0.03)
		require.LessOrEqual(t, math.Abs(fp16[29]-want[29])/want[29], 0.03, "%d steps skipped", over)
	}
}

// TestOverflow: a scale that overflows fp16 skips the step on every rank: nothing is learnt until the scale
// has come down, by halves after two overflows, and then training goes on with finite losses.
func TestOverflow(t *testing.T) {
	scale := core.LossScale{Dynamic: true, Scale: 1 << 40, Min: 1, Window: 1000, Hysteresis: 2, Left: 2}
	losses, scales, skipped := trainHalf(t, tensor.F16, scale, topology.Grid(2, 2, 1), 1)
	require.True(t, skipped[0])
	n := 0
	for n < len(skipped) && skipped[n] {
		require.Equal(t, losses[0], losses[n], "a skipped step changes no weight")
		n++
	}
	require.Greater(t, n, 2)
	require.Less(t, n, 30)
	require.Equal(t, float64(1<<40), scales[1], "the first overflow only uses up hysteresis")
	require.Equal(t, float64(1<<39), scales[2])
	require.Less(t, losses[29], losses[0])
}
