package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
)

// TestSlowIsNotHung: of a cycle of waits that lasts, connections are made anew and a process is ended, but not while
// messages come, be it at 20 kB a second: a network that loses much carries no more.
func TestSlowIsNotHung(t *testing.T) {
	acts := func(each int64) (out []core.Remedy) {
		s, now, d := new(core.Stall), actors.Time(0), host.Diagnosis{Kind: "cycle", Ref: 7, What: "part 0"}
		s.Begin(now)
		s.Seen(now, true)
		for ; now < actors.Time(600*actors.Second); now += actors.Time(core.StallEvery) {
			if s.Look(now) != core.StallAsk {
				continue
			}
			d.Took += each
			root := core.StallRoot{Proc: 1, Which: which(d), Age: actors.Duration(now), Cured: true, Cycle: true}
			if r := s.Found(now, root); r == core.StallEnd || r == core.StallAnew {
				out = append(out, r)
			}
		}
		return out
	}
	require.Equal(t, []core.Remedy{core.StallAnew, core.StallEnd}, acts(0))
	require.Equal(t, []core.Remedy{core.StallAnew, core.StallEnd}, acts(100), "beats are none")
	require.Empty(t, acts(10e3))
}
