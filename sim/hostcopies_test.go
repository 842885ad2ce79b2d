package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/sim"
)

// hosted puts the processes of a run on hosts, neighbours on one, and spreads copies by that.
func hosted(l *sim.Layout, by [][]int, hosts int) (at []string) {
	l.Run.Spread = func(byRank []string) [][]int {
		on := make([]string, len(by))
		for p, ranks := range by {
			on[p] = byRank[ranks[0]]
		}
		return core.Spread(by, on)
	}
	l.Run.Hosts = make([]string, len(l.Ranks))
	for p, ranks := range by {
		at = append(at, fmt.Sprint("h", p*hosts/len(by)))
		for _, i := range ranks {
			l.Run.Hosts[i] = at[p]
		}
	}
	l.Run.Buddies = l.Run.Spread(l.Run.Hosts)
	return at
}

// on are the processes of hosts.
func on(at []string, hosts ...string) (out []int) {
	for p, h := range at {
		if slices.Contains(hosts, h) {
			out = append(out, p)
		}
	}
	return out
}

// TestHostsLost: the leader's host is lost, or another, or both at once, with all processes there, which come back on
// other hosts; behind the next copies the same happens again to hosts as they are then. Where a process is left, at most
// one step is taken again each time, though nothing is durable.
func TestHostsLost(t *testing.T) {
	t.Parallel()
	seeds := uint64(600)
	if *long {
		seeds = 10000
	} else {
		t.Log("600 seeds instead of 10,000: add -long")
	}
	pairs, again := 0, 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 0x405))
		l, by := shared(t, r)
		at := hosted(l, by, 2+r.IntN(min(3, len(by)-1)))
		o := sim.Options{Seed: seed, Jitter: 0.5, Late: []int64{1, 3000, 20000}[seed%3]}
		p := modelled()
		job := p.Job
		p.Job = func(rank int, j *actors.Job, s *core.Segment) int64 {
			if j.Kind == actors.KeepJob {
				return 1
			}
			return job(rank, j, s)
		}
		from := int64(0)
		for round := range 2 {
			when := wholeAgain(l, p, o, from, r.Int64N(2))
			if when == 0 {
				break // the run is over before
			}
			names := slices.Compact(slices.Sorted(slices.Values(at)))
			lost := [][]string{{at[0]}, {at[0], names[r.IntN(len(names))]}, {names[r.IntN(len(names))]}}[seed%3]
			procs := on(at, lost...)
			if len(procs) == len(by) {
				break
			}
			if len(lost) == 2 && lost[0] != lost[1] {
				pairs++
			}
			again += round
			left := slices.DeleteFunc(slices.Clone(names), func(h string) bool { return slices.Contains(lost, h) })
			for _, x := range procs {
				if at[x] = fmt.Sprint("s", x/2); seed/3%2 == 0 {
					at[x] = left[r.IntN(len(left))]
				}
				from = max(from, strike(&o, by[x], at[x], when+r.Int64N(2), 1+r.Int64N(200000)))
			}
		}
		lossesCovered(t, l, p, o, fmt.Sprintf("seed %d: %v", seed, by))
	}
	t.Logf("%d losses of the leader's host with another, %d behind others", pairs, again)
	require.Greater(t, pairs, int(seeds)/8)
	require.Greater(t, again, int(seeds)/4)
}

// strike ends all ranks of a process at once; they are back on a host after a while, all at once, which it returns.
func strike(o *sim.Options, ranks []int, host string, when, after int64) int64 {
	for _, i := range ranks {
		f := sim.Fault{Kind: sim.Restart, Rank: i, At: when, For: after, Host: host}
		if i == 0 {
			f.Kind = sim.Succession
		}
		o.Faults = append(o.Faults, f)
	}
	return when + after
}

// wholeAgain is a moment at which copies are whole that were begun behind another, so many steps later; 0 for none.
func wholeAgain(l *sim.Layout, p sim.Prices, o sim.Options, from, later int64) (at int64) {
	begun, whole, steps := false, false, int64(0)
	o.See = func(e sim.Event) {
		switch {
		case int64(e.At) <= from || at > 0:
		case e.M.Kind == actors.Keep:
			begun = true
		case e.M.Kind == actors.Report && e.M.Text == core.TopicCopied && begun:
			whole = true
		case e.M.Kind == actors.Report && e.M.Text == core.TopicStep && whole:
			if steps++; steps > later {
				at = int64(e.At) + 1
			}
		}
	}
	sim.New(l, p, o).Run()
	return at
}
