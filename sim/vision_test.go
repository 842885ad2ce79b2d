package sim_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

var long = flag.Bool("long", false, "run the fault tier in full")

// visionLayout lays a composed model out over four ranks.
func visionLayout(t *testing.T, mesh topology.Mesh, e *layout.PartPlan) *layout.Layout {
	c, err := configs.ReadModel("../stages/family/testdata/qwen3-vl")
	require.NoError(t, err)
	m, err := family.Build(c, 24)
	require.NoError(t, err)
	l, err := layout.New(&layout.Design{Model: m, Mesh: mesh, Parts: layout.TowerParts(m, e),
		Schedule: "1f1b",
		Micro:    8 / mesh.Replicas(), Rows: 32, Dims: map[string]int{block.Patches: 48, block.Frames: 2},
		Optim: optim.Config{Name: "adamw"}})
	require.NoError(t, err)
	require.Equal(t, 4, l.World())
	return l
}

// TestVisionPatterns runs all 16 patterns of microbatches with and without images over four ranks with
// many seeds of delays: no deadlock, no message lost, and no more messages on an edge than its credits; one
// seed a pattern is watched for all promises.
func TestVisionPatterns(t *testing.T) {
	t.Parallel()
	seeds := uint64(60)
	if *long {
		seeds = 1000
	} else {
		t.Logf("%d of 1000 seeds; -long runs all", seeds)
	}
	run := core.RunLayout{First: 1, Last: 2, LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 {
		return 0
	}}
	for _, c := range []struct {
		mesh topology.Mesh
		e    *layout.PartPlan
	}{
		{topology.Grid(2, 1, 2), &layout.PartPlan{TP: 1, Over: layout.OverAll, Fill: true}},
		{topology.Grid(2, 2, 1), &layout.PartPlan{TP: 1, Over: layout.OverFirst, Fill: true}},
		{topology.Grid(3, 1, 1), &layout.PartPlan{TP: 1, Over: layout.OverOwn, Ranks: 1, Fill: true}},
		{topology.Grid(4, 1, 1), nil},
	} {
		l := visionLayout(t, c.mesh, c.e)
		for bits := range 16 {
			s := simLayout(l, run)
			s.Class = func(step int64, _ actors.Ref, micro int) int32 {
				if bits>>(micro%4)&1 == 0 {
					return 0
				}
				return l.Class
			}
			watch := sim.NewMonitor(s)
			res := sim.New(s, flat(50), watch.Attach(sim.Options{Seed: uint64(bits), Jitter: 0.8})).Run()
			require.Empty(t, watch.End(res, 2), "%+v encoder %+v pattern %04b", c.mesh, c.e, bits)
			for seed := range seeds {
				flying := map[string]int{}
				res := sim.New(s, flat(50), sim.Options{Seed: seed, Jitter: 0.8,
					See: func(e sim.Event) { crossing(t, flying, e) }}).Run()
				at := fmt.Sprintf("%+v encoder %+v pattern %04b seed %d", c.mesh, c.e, bits, seed)
				require.Empty(t, res.Failed, at)
				require.Nil(t, res.Stall, at)
				require.Zero(t, res.Leaked, at)
				require.Len(t, res.Steps, 2, at)
			}
		}
	}
}

// crossing counts what has come along an edge and has not been given credit for: never more than its
// credits, which are two.
func crossing(t *testing.T, flying map[string]int, e sim.Event) {
	switch m := e.M; m.Kind {
	case actors.Activation, actors.Cotangent:
		k := fmt.Sprint(m.From, e.To, m.Port, m.Kind)
		if flying[k]++; flying[k] > 2 {
			t.Fatalf("%d messages on the edge %s of %v", flying[k], k, m.Action)
		}
	case actors.Credit:
		kind := actors.Activation
		if m.Comm%2 == 1 {
			kind = actors.Cotangent
		}
		flying[fmt.Sprint(e.To, m.From, m.Comm/2, kind)]--
	}
}
