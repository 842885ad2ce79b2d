package sim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
)

// sharedTokens lays a small decoder out over ranks that share tokens.
func sharedTokens(t *testing.T, p configs.Plan, change func(j *layout.Design)) *layout.Layout {
	m := family.Decoder("llama", family.Spec{
		Layers: 4, Hidden: 16, Inter: 24, Heads: 4, KV: 2, HeadDim: 4, Vocab: 32, Eps: 1e-6,
		Rope: block.Rope{Dim: 4, Theta: 10000}, InitStd: 0.2,
	})
	p.EP, p.ETP = 1, 1
	j := &layout.Design{
		Model: m, Mesh: layout.MeshOf(&p), Schedule: "1f1b", Micro: 4 / p.DP, Rows: 48, Zigzag: true,
		Optim: optim.Config{Name: "adamw"},
	}
	change(j)
	l, err := layout.New(j)
	require.NoError(t, err)
	return l
}

// TestContextSeeds runs rings, exchanges and gathers over pipelines, tensor and data parallelism, ZeRO,
// overlap and chunks with many seeds of delays: no deadlock, nothing lost, steps complete. One seed a plan is watched
// for all promises, among them that every part of a rotation comes from the one member that sends it.
func TestContextSeeds(t *testing.T) {
	t.Parallel()
	seeds := uint64(120)
	if *long {
		seeds = 1000
	} else {
		t.Logf("%d of 1000 seeds a plan; -long runs all", seeds)
	}
	ring := func(j *layout.Design) { j.Ring = true }
	run := core.RunLayout{
		First: 1, Last: 2, LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return 0 },
	}
	for i, c := range []struct {
		p      configs.Plan
		change func(j *layout.Design)
	}{
		{configs.Plan{PP: 1, DP: 1, TP: 1, CP: 4}, ring},
		{configs.Plan{PP: 2, DP: 1, TP: 1, CP: 4, Ulysses: 2}, ring},
		{configs.Plan{PP: 2, DP: 1, TP: 2, CP: 2}, func(j *layout.Design) {
			j.Ring, j.SeqParallel,
				j.Overlap = true, true, true
		}},
		{configs.Plan{PP: 2, DP: 2, TP: 1, CP: 3}, func(j *layout.Design) { j.Ring, j.Zero = true, 2 }},
		{configs.Plan{PP: 1, DP: 2, TP: 1, CP: 2}, func(j *layout.Design) {
			j.Zero, j.Ring, j.Overlap = 3,
				true, true
		}},
		{configs.Plan{PP: 2, DP: 1, TP: 1, CP: 2}, func(j *layout.Design) {
			j.Schedule, j.Ring = "zb-1p",
				true
		}},
		{configs.Plan{PP: 2, DP: 1, TP: 1, CP: 2, Ulysses: 2}, func(j *layout.Design) { j.Zigzag = false }},
		{configs.Plan{PP: 2, DP: 1, TP: 1, CP: 2}, func(j *layout.Design) {
			j.Schedule,
				j.Chunks = "chunkpipe", 3
		}},
		{configs.Plan{PP: 2, DP: 1, TP: 1, CP: 4, Ulysses: 2}, func(j *layout.Design) {
			j.Schedule,
				j.Chunks = "seq1f1b", 3
		}},
	} {
		l := sharedTokens(t, c.p, c.change)
		s := simLayout(l, run)
		watch := sim.NewMonitor(s)
		res := sim.New(s, flat(50), watch.Attach(sim.Options{Seed: uint64(i), Jitter: 0.8})).Run()
		require.Empty(t, watch.End(res, 2), "%+v", c.p)
		for seed := range seeds {
			res := sim.New(s, flat(50), sim.Options{Seed: seed, Jitter: 0.8, Whole: seed%8 == 7}).Run()
			at := fmt.Sprintf("%+v seed %d", c.p, seed)
			require.Empty(t, res.Failed, at)
			require.Nil(t, res.Stall, at)
			require.Zero(t, res.Leaked, at)
			require.Len(t, res.Steps, 2, at)
		}
	}
}
