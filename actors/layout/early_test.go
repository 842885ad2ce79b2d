package layout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/topology"
)

// TestEarly: every bucket is issued once, by the last backward of its stage, when the last of its gradients
// is final; what is in none is left to the optimizer step, and all parameters are in one exchange.
func TestEarly(t *testing.T) {
	l := small(t, "adamw", topology.Grid(1, 2, 1), 0)
	require.Nil(t, l.RankLayout(0, 0).Early, "no size is given")
	j := *l.Design
	j.Bucket = 4 << 10
	l, err := New(&j)
	require.NoError(t, err)
	part := &l.Ranks[0]
	e, exchanges, seen := l.Early(part), l.Exchanges(part, SumDP), map[int]int{}
	params, sent := 0, 0
	for i, x := range exchanges {
		params += len(x.Params)
		require.Equal(t, x.Bucket > 0, l.RankLayout(0, 0).Update[SumDP].Comms[i].Early)
		if x.Bucket > 0 {
			sent++
		}
		require.True(t, i == 0 || x.Bucket > 0, "what is in no bucket comes first")
	}
	require.Len(t, part.Params, params)
	last := plan.Action{Kind: plan.B, Micro: 1}
	segs := l.Main(0).Segments(PhaseOf[plan.B])
	final := map[string]bool{}
	for s := range segs {
		for _, p := range segs[s].Final {
			final[l.Main(0).Params[p].Name] = true
		}
		for _, i := range e.Of(last, 0, int32(s)) {
			seen[int(i)]++
			var bytes int
			for _, p := range exchanges[i].Params {
				require.True(t, final[part.Params[p].Name])
				bytes += 4 * part.Params[p].Local[0] * max(1, append(part.Params[p].Local, 1)[1])
			}
			require.GreaterOrEqual(t, bytes, 4<<10)
		}
		for _, a := range []plan.Action{{Kind: plan.B}, {Kind: plan.F, Micro: 1}} {
			require.Empty(t, e.Of(a, 0, int32(s)), "%v", a)
		}
	}
	require.Len(t, final, len(part.Params))
	require.Len(t, seen, sent)
	require.Greater(t, sent, 2)
	for i, n := range seen {
		require.Equal(t, 1, n, "exchange %d", i)
	}
}
