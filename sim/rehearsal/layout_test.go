package rehearsal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
)

// TestOpAndSends: a step whose collectives are single events takes as long as one in which every message of
// their algorithm travels, within 1 % up to 64 ranks on one host and on eight; a slow link holds both up,
// and a cut one stops both.
func TestOpAndSends(t *testing.T) {
	text, err := configs.ClusterFile("h100")
	require.NoError(t, err)
	m, err := cost.Read("h100", text)
	require.NoError(t, err)
	prog, err := schedule.Build("1f1b", schedule.Shape{Ranks: 1, Micro: 2})
	require.NoError(t, err)
	run := func(n int, bytes int64, sends bool, faults ...sim.Fault) *sim.Result {
		segs := []core.Segment{{Flops: 1e9,
			Comms: []core.Comm{{Group: sim.GroupTP, Bytes: bytes * 2 * int64(n-1) / int64(n)}}}}
		d := &sim.Description{Mesh: topology.Grid(1, 1, n), Program: prog, Steps: 1,
			Update: []core.Segment{{Ready: true}}, Passes: func(plan.Action) []core.Segment { return segs }}
		p := Prices(m)
		if !sends {
			p.Sends = nil
		}
		return sim.New(d.Layout(), p, sim.Options{Whole: true, Faults: faults}).Run()
	}
	for _, n := range []int{2, 4, 6, 8, 16, 24, 32, 64} {
		for _, bytes := range []int64{1 << 20, 1 << 25, 1 << 28} {
			op, sends := run(n, bytes, false), run(n, bytes, true)
			require.Len(t, op.Steps, 1)
			require.Len(t, sends.Steps, 1, "%v %s", sends.Stall, sends.Failed)
			require.Zero(t, sends.Leaked)
			require.InEpsilon(t, op.Steps[0].Time, sends.Steps[0].Time, 0.01, "%d ranks, %d bytes", n, bytes)
			if n > 2 {
				require.Greater(t, sends.Events, op.Events+uint64(n))
			}
		}
	}
	for _, sends := range []bool{false, true} {
		plain := run(8, 1<<28, sends)
		slow := run(8, 1<<28, sends, sim.Fault{Kind: sim.SlowLink, Rank: 3, Peer: 4, Factor: 2})
		require.InEpsilon(t, 2, slow.Steps[0].Time/plain.Steps[0].Time, 0.15,
			"sends %v: rounds overlap a little", sends)
		cut := run(8, 1<<28, sends, sim.Fault{Kind: sim.CutLink, Rank: 3, Peer: 4})
		require.NotNil(t, cut.Stall)
		require.ErrorContains(t, cut.Stall, "that a cut link has lost")
	}
}

// TestPeaksOfLaterSteps: a rank's peak is the same in one step and in three, and no more than the plan says:
// the optimizer step gives back the accumulators of gradients, which the first backward after it makes anew.
func TestPeaksOfLaterSteps(t *testing.T) {
	for _, schedule := range []string{"gpipe", "zb-2p"} {
		r := rehearsed(t, schedule, 2, 2)
		r.Steps = 1
		first := r.Run(sim.Options{})
		r.Steps = 3
		later := r.Run(sim.Options{})
		require.Len(t, later.Steps, 3)
		require.Equal(t, first.Peak, later.Peak, schedule)
		for rank, peak := range later.Peak {
			require.LessOrEqual(t, peak, r.Layout.Memory(rank).Total(), "%s, rank %d", schedule, rank)
		}
	}
}

// TestPartsOfTheirOwn: members that each send every other a part of its own take as long in one event as
// message by message, and over hosts longer than a sum of as many bytes, of which each host passes on one.
func TestPartsOfTheirOwn(t *testing.T) {
	text, err := configs.ClusterFile("h100")
	require.NoError(t, err)
	m, err := cost.Read("h100", text)
	require.NoError(t, err)
	prog, err := schedule.Build("1f1b", schedule.Shape{Ranks: 1, Micro: 2})
	require.NoError(t, err)
	run := func(n int, apart, sends bool) float64 {
		segs := []core.Segment{{Flops: 1e9, Comms: []core.Comm{{Group: sim.GroupTP, Bytes: 1 << 28, Apart: apart}}}}
		d := &sim.Description{Mesh: topology.Grid(1, 1, n), Program: prog, Steps: 1,
			Update: []core.Segment{{Ready: true}}, Passes: func(plan.Action) []core.Segment { return segs }}
		p := Prices(m)
		if !sends {
			p.Sends = nil
		}
		res := sim.New(d.Layout(), p, sim.Options{Whole: true}).Run()
		require.Len(t, res.Steps, 1, "%v %s", res.Stall, res.Failed)
		return float64(res.Steps[0].Time)
	}
	require.InEpsilon(t, run(8, true, true), run(8, true, false), 0.03, "on one host")
	require.InEpsilon(t, run(32, true, true), run(32, true, false), 0.3,
		"on four, where rounds have parts inside a host wait for those between hosts")
	require.Greater(t, run(32, true, false), 2*run(32, false, false))
}
