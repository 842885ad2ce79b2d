package host

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels/routing"
)

// routedRun trains a small mixture whose routers' weights begin at random, or all equal, and gives its
// losses and the loads of its experts.
func routedRun(t *testing.T, p expertPlan, o *Routing, seed uint64, steps int64) (losses []float64,
	loads [][]core.Load, err error) {
	j := steered(p)
	l, err := layout.New(j)
	require.NoError(t, err)
	fill := favours(j, 0, 0)
	if seed > 0 {
		fill = seeded(j, seed)
	}
	err = Run(l, RunOptions{Coord: core.RunLayout{First: 1, Last: steps,
		LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return 0.01 }},
		Backend: refBackend, Batches: memoryBatches(j.Micro, j.Rows), Fill: fill, Routing: o,
		Observe: func(m actors.Message) {
			switch m.Text {
			case core.TopicStep:
				losses = append(losses, core.SummaryOf(m.Values).Loss)
			case core.TopicExperts:
				loads = append(loads, core.Loads(m.Values))
			}
		}})
	return losses, loads, err
}

// TestRoutingReplayed: a run that replays its own choices has its own bits, also with its experts elsewhere;
// one that begins from other weights sends every token where the recorded run did. What was not recorded, or
// by another run, is refused by name.
func TestRoutingReplayed(t *testing.T) {
	t.Parallel()
	dir, h := t.TempDir(), routing.Header{Version: routing.TraceVersion, Model: "toy", Plan: "dp=2",
		Experts: 8, Each: 3, Rows: 64}
	p := expertPlan{2, 2, 1, 2, 1, 1, 0, "1f1b", 1, some, ""}
	want, loads, err := routedRun(t, p, &Routing{Every: 1, Record: dir, Header: h}, 0, 3)
	require.NoError(t, err)
	require.Len(t, loads, 3)
	plain, _, err := routedRun(t, p, nil, 0, 3)
	require.NoError(t, err)
	require.Equal(t, plain, want, "recording changes a run")
	elsewhere := p
	elsewhere.ep = 1
	for _, q := range []expertPlan{p, elsewhere} {
		got, again, err := routedRun(t, q, &Routing{Every: 1, Replay: dir, Header: h}, 0, 3)
		require.NoError(t, err)
		require.Equal(t, loads, again)
		if q == p {
			require.Equal(t, want, got)
		} else {
			require.InEpsilonSlice(t, want, got, 1e-6)
		}
	}
	rows := func(all [][]core.Load) (out [][]float64) {
		for _, step := range all {
			for _, l := range step {
				out = append(out, l.Rows)
			}
		}
		return out
	}
	_, other, err := routedRun(t, p, &Routing{Every: 1, Header: h}, 5, 3)
	require.NoError(t, err)
	require.NotEqual(t, rows(loads), rows(other))
	_, other, err = routedRun(t, p, &Routing{Every: 1, Replay: dir, Header: h}, 5, 3)
	require.NoError(t, err)
	require.Equal(t, rows(loads), rows(other))
	_, _, err = routedRun(t, p, &Routing{Replay: dir, Header: h}, 0, 4)
	require.ErrorContains(t, err, "has nothing of step 4, microbatch")
	foreign := h
	foreign.Model = "another"
	_, _, err = routedRun(t, p, &Routing{Replay: dir, Header: foreign}, 0, 3)
	require.ErrorContains(t, err, "is of the model toy, not of another; record a run of this model and plan")
	require.NoError(t, os.Truncate(layout.RoutingFile(dir, 1), 500))
	_, _, err = routedRun(t, p, &Routing{Replay: dir, Header: h}, 0, 3)
	require.ErrorContains(t, err, "it was cut off")
	_, _, err = routedRun(t, p, &Routing{Replay: t.TempDir(), Header: h}, 0, 3)
	require.ErrorContains(t, err, "record a run of the same plan first")
}

// TestExpertLoads: every token is counted once for each of its experts under every plan, with the same
// counts; drops are what a capacity leaves; and entropy is at most that of even shares.
func TestExpertLoads(t *testing.T) {
	t.Parallel()
	var want []core.Load
	for i, p := range []expertPlan{{1, 1, 1, 1, 1, 0, 0, "1f1b", 1, none, ""}, {2, 2, 1, 2, 1, 1, 0, "1f1b",
		1, full, ""}, {1, 2, 2, 2, 2, 0, 0, "1f1b", 1, some, "sp"}} {
		_, loads, err := routedRun(t, p, &Routing{Every: 2}, 0, 3)
		require.NoError(t, err)
		require.Len(t, loads, 1, "only step 2 is counted")
		for k, l := range loads[0] {
			require.Equal(t, k+1, l.Block)
			sum := 0.0
			for _, n := range l.Rows {
				sum += n
			}
			require.EqualValues(t, 8*64, l.Tokens)
			require.Equal(t, 3*l.Tokens, sum)
			require.Zero(t, l.Dropped)
			require.Greater(t, l.Entropy, 0.0)
			require.LessOrEqual(t, l.Entropy, l.Tokens*math.Log(8)*(1+1e-12))
		}
		if i == 0 {
			want = loads[0]
		}
		for k := range want {
			require.Equal(t, want[k].Rows, loads[0][k].Rows, "%+v", p)
		}
	}
}
