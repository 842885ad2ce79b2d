package layout

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology"
)

// TestRanksGrow: what all ranks know takes memory as a line does with their number: members of a group have one list of it.
func TestRanksGrow(t *testing.T) {
	bytes := func(dp int) float64 {
		l := small(t, "adamw", topology.Grid(1, dp, 1), 0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for r := range l.World() {
			g := l.RankLayout(r, 0).Groups
			for _, x := range g {
				require.Equal(t, RankRef(r), x.Members[x.Pos])
			}
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	require.Less(t, bytes(1024), 4.6*bytes(256))
}

// TestPortsAt: the ports of a stage are those that begin or end there.
func TestPortsAt(t *testing.T) {
	l := small(t, "adamw", topology.Grid(2, 1, 1), 0)
	require.NotEmpty(t, l.Ports)
	for s := range l.Stages {
		var want []int
		for i, p := range l.Ports {
			if p.From == s || p.To == s {
				want = append(want, i)
			}
		}
		require.Equal(t, want, l.portsAt[s])
	}
}
