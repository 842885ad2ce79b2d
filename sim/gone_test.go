package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/sim"
)

// TestGone: a rank is lost at any moment and no other takes its place, which the coordinator hears soon or
// late; another is lost meanwhile and comes back, is gone as well, or ends with the coordinator. The run ends;
// what is then durable is the state that those who are left were sent to last, and every rank's part of it is
// what that rank had. Where a copy or another rank has what is lost, it is newer than the checkpoint before.
func TestGone(t *testing.T) {
	t.Parallel()
	seeds := uint64(600)
	if *long {
		seeds = 10000
	} else {
		t.Log("600 seeds instead of 10,000: add -long")
	}
	handed, ends := map[int32]int{}, 0
	for seed := range seeds {
		l := redundant(t, seed)
		p := slowDisk(modelled(), 1+int64(seed%4)*50000, 1+int64(seed%5)*40000)
		o := sim.Options{Seed: seed, Jitter: 0.5, Late: []int64{1, 20000, 40000, 150000}[seed/3%4]}
		o = aimed(l, p, o, 1+int(seed/6%3))
		for i := range o.Faults {
			switch {
			case i == 0 || seed/5%3 == 0:
				o.Faults[i].Kind = sim.Gone
			case seed/5%3 == 1:
				o.Faults[i].Kind = sim.Succession
			}
		}
		if seed%7 == 0 { // connections break while somebody takes over
			l.Run.Grace, o.Notice = 30000, 20000
			o.Faults = append(o.Faults, sim.Draw(seed, 2, len(l.Ranks), 4000000, sim.CutLink, sim.LostMsg)...)
		}
		mon := sim.NewMonitor(l)
		run := mon.Attach(o)
		report, source, saved, over := run.Report, int32(-1), int64(-1), false
		run.Report = func(m actors.Message) {
			switch m.Text {
			case core.TopicBack:
				source = core.ReturnOf(m.Values).Source
			case core.TopicDurable:
				saved = m.Step
			case core.TopicEnd:
				over = true
				if saved == m.Step && source >= 0 {
					handed[source]++
				}
			}
			report(m)
		}
		r := sim.New(l, p, run).Run()
		require.Empty(t, mon.End(r, 6), "seed %d with %v", seed, o.Faults)
		require.True(t, over, "seed %d with %v", seed, o.Faults)
		ends++
	}
	t.Logf("%d runs ended; handed on from copies %d, from what ranks hold %d", ends, handed[core.FromCopy],
		handed[core.FromMember])
	require.Greater(t, handed[core.FromCopy], int(seeds)/20)
	require.Greater(t, handed[core.FromMember], int(seeds)/20)
}
