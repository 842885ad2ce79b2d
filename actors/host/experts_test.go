package host

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	routers "github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// mixture is a model of four layers, of which the second has no experts, with a loss of balance.
func mixture(t *testing.T, kind block.BalanceKind, replicas int) *family.Model {
	s := family.Spec{Layers: 4, Hidden: 16, Inter: 24, Heads: 4, KV: 2, HeadDim: 4, Vocab: 32, Eps: 1e-5, QKNorm: true,
		Rope:    block.Rope{Dim: 4, Theta: 10000, Max: 64, Original: 64, Length: 8},
		MLPs:    []string{"experts", "gated", "experts", "experts"},
		Experts: block.Experts{Inter: 6, Experts: 8, Each: 3, Router: routers.Router{Normalize: true}}, InitStd: 0.3}
	require.NoError(t, s.Check())
	m := family.Decoder("toy", s)
	m.Balance(block.Balance{Kind: kind, Scale: 0.5 / 8})
	return m
}

// TestExperts trains a mixture under plans that share experts out over ranks of data and tensor parallelism, and each expert over some, to the
// losses of one device: within 1e-5, which the order of sums over tokens bounds.
func TestExperts(t *testing.T) {
	for _, kind := range []block.BalanceKind{block.NoBalance, block.PooledBalance, block.LayerBalance} {
		want := toyRun(t, &layout.Job{Model: mixture(t, kind, 1), Mesh: layout.MeshOf(&configs.Plan{PP: 1, DP: 1, TP: 1, EP: 1, ETP: 1}), Schedule: "1f1b", Micro: 8}, toyBatches(1), 4)
		for _, c := range []struct {
			configs.Plan
			rc grad.Recompute
		}{
			{configs.Plan{PP: 1, DP: 2, TP: 1, EP: 2, ETP: 1}, grad.RecomputeNone},
			{configs.Plan{PP: 1, DP: 1, TP: 2, EP: 1, ETP: 1}, grad.RecomputeSelective},
			{configs.Plan{PP: 1, DP: 1, TP: 2, EP: 2, ETP: 1, SequenceParallel: true}, grad.RecomputeSelective},
			{configs.Plan{PP: 2, DP: 2, TP: 2, EP: 2, ETP: 2, Zero: 1}, grad.RecomputeFull},
			{configs.Plan{PP: 2, DP: 4, TP: 1, EP: 2, ETP: 1, Zero: 2, Overlap: true}, grad.RecomputeNone},
			{configs.Plan{PP: 1, DP: 4, TP: 1, EP: 2, ETP: 1, Zero: 3, ZeroRanks: 2}, grad.RecomputeFull},
			{configs.Plan{PP: 2, DP: 2, TP: 1, EP: 1, ETP: 2, Schedule: "zb-h1"}, grad.RecomputeSelective},
			{configs.Plan{PP: 1, DP: 8, TP: 1, EP: 8, ETP: 1}, grad.RecomputeNone},
		} {
			t.Run(fmt.Sprintf("%d %+v", kind, c), func(t *testing.T) {
				if c.Schedule == "" {
					c.Schedule = "1f1b"
				}
				got := toyRun(t, &layout.Job{Model: mixture(t, kind, c.DP), Mesh: layout.MeshOf(&c.Plan), Zero: c.Zero, SeqParallel: c.SequenceParallel,
					Schedule: c.Schedule, Micro: 8 / c.DP, Recompute: c.rc, Overlap: c.Overlap}, toyBatches(c.DP), 4)
				require.Len(t, got, len(want))
				for i := range want {
					require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5, "step %d: %v, want %v", i+1, got, want)
				}
			})
		}
	}
}
