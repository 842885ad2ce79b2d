package sim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// TestPairsAlternate: a rank runs the segments of a forward and of the backward beside it in the order of
// core.Alternate, in which the exchanges of each travel behind the other: where one takes as long as a
// segment, nothing but the first forward's and the last backward's is left to wait for.
func TestPairsAlternate(t *testing.T) {
	const long, micro, layers = 1000, 8, 4
	run := func(pairs bool) (order []string, r *sim.Result) {
		d := described(t, topology.Grid(1, 1, 2), micro, 1, layers, 1)
		var err error
		d.Program, err = schedule.Build("1f1b", schedule.Shape{Ranks: 1, Micro: micro, Pairs: pairs})
		require.NoError(t, err)
		l := d.Layout()
		lower := l.Ranks[0].Lower
		passes := map[plan.Kind][]core.Segment{}
		for _, k := range []plan.Kind{plan.F, plan.B} { // a segment more that awaits nothing
			segs := append([]core.Segment{{Flops: 10}}, lower(plan.Action{Kind: k}, false, 0)...)
			for i := range segs[1:] {
				for j := range segs[1+i].Await {
					segs[1+i].Await = []core.Issued{{Segment: segs[1+i].Await[j].Segment + 1}}
				}
			}
			passes[k] = segs
		}
		for _, x := range l.Ranks {
			x.Lower = func(a plan.Action, _ bool, _ int32) []core.Segment { return passes[a.Kind] }
		}
		p := modelled()
		p.Job = func(_ int, j *actors.Job, _ *core.Segment) int64 {
			if j.Kind == actors.RunSegment {
				return long
			}
			return 1
		}
		p.Link = func(int, int) sim.Link { return sim.Link{Latency: long, Out: -1, In: -1} }
		r = sim.New(l, p, sim.Options{Span: func(s sim.Span) {
			if s.Rank == 0 && s.Job.Kind == actors.RunSegment {
				order = append(order, fmt.Sprint(s.Job.Action, " ", s.Job.Segment))
			}
		}}).Run()
		require.Nil(t, r.Stall)
		var want []string
		for _, e := range d.Program.Rows[0] {
			pair := [2]plan.Action{e.Action, e.With}
			segs := [2][]core.Segment{passes[e.Action.Kind], passes[e.With.Kind]}
			for i, s := range core.Alternate(segs) {
				want = append(want, fmt.Sprint(pair[i], " ", s))
			}
		}
		require.Equal(t, want, order)
		return
	}
	_, plain := run(false)
	order, paired := run(true)
	require.Equal(t, "0B0 0", order[2*layers+2+2], "behind the forward's first exchange")
	// a pass has two exchanges a layer
	require.EqualValues(t, 2*2*layers*micro*long, plain.Ranks[0].Comm)
	require.EqualValues(t, 2*2*layers*long, paired.Ranks[0].Comm)
}
