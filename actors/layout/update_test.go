package layout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// small is a layout of a model with two layers.
func small(t *testing.T, optimizer string, mesh topology.Mesh, zero int) *Layout {
	t.Helper()
	c, err := configs.Published("llama/3.2-1b")
	require.NoError(t, err)
	c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.Intermediate, c.Vocab = 16, 2, 4, 2, 4, 32, 50
	m, err := family.Build(c, 8)
	require.NoError(t, err)
	l, err := New(&Design{Model: m, Mesh: mesh, Zero: zero, Schedule: "1f1b", Micro: 2, Rows: 8,
		Optim: optim.Config{Name: optimizer}})
	require.NoError(t, err)
	return l
}

// TestUpdateCosts counts by hand what the optimizer step of one rank moves and sends: the optimizer's own
// state tensors decide, not a fixed number of moments.
func TestUpdateCosts(t *testing.T) {
	for name, states := range map[string]int64{"adamw": 2, "sgd": 1} {
		for zero := range 2 {
			l := small(t, name, topology.Grid(1, 2, 1), zero)
			segs := l.RankLayout(0, 0).Update
			require.Len(t, segs, Gather+zero, "updated rows are taken in where others have them")
			var n, own int64
			for _, p := range l.Ranks[0].Params {
				n += int64(tensor.Len(p.Local))
				own += int64(tensor.Len(p.Local)) / 2
			}
			if zero == 0 {
				own = n
			}
			require.Equal(t, own*(8+8+8*states), segs[Apply].Bytes,
				"%s zero=%d: gradient, weight and state are read and written", name, zero)
			require.Equal(t, len(l.Ranks[0].Params), segs[Apply].Calls)
			sent := 4 * n / 2 // to one other rank: a reduce-scatter, and without ZeRO a gather of the sums
			if zero == 0 {
				sent *= 2
			}
			require.Equal(t, sent, segs[SumDP].Comms[0].Bytes)
			require.True(t, segs[SumNorm].Ready)
			var state int64
			for _, p := range l.Ranks[0].Params {
				state += states * classOf(tensor.F32, append([]int{p.Own.To - p.Own.From}, p.Local[1:]...))
			}
			require.Equal(t, state, l.Memory(0).State, name)
		}
	}
	l := small(t, "adamw", topology.Grid(1, 4, 1), 0)
	segs, n := l.RankLayout(0, 0).Update, int64(0)
	for _, p := range l.Ranks[0].Params {
		n += int64(tensor.Len(p.Local))
	}
	for _, s := range []int{SumDP,
		SumWhole} { // to three others: a part of the rows each, and the own part's sum
		require.Equal(t, 4*n*3/4, segs[s].Comms[0].Bytes)
	}
	_, err := New(&Design{Optim: optim.Config{Name: "adam8"}})
	require.ErrorContains(t, err, "adam8")
}
