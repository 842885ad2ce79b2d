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
	"github.com/lfactor/lfactor/topology"
)

// shared is a run whose ranks share processes, keep copies after every step and save nothing: what no copy has begins
// anew. ZeRO is that no rank has the state of another.
func shared(t *testing.T, r *rand.Rand) (l *sim.Layout, by [][]int) {
	mesh := topology.Grid(2, 2+r.IntN(2), 1)
	if r.IntN(2) == 0 {
		mesh = topology.Grid(2+r.IntN(2), 2, 1)
	}
	d := described(t, mesh, 4, 1, 1, 8)
	zero := r.IntN(3) > 0
	if zero {
		d.Update[len(d.Update)-1].Comms = []core.Comm{{Group: sim.GroupDP, Bytes: 1 << 20}}
	}
	l = d.Layout()
	n := len(l.Ranks)
	by = make([][]int, min(n, 2+r.IntN(5)))
	for i := range n {
		p := i * len(by) / n
		by[p] = append(by[p], i)
	}
	l.Run.Alone, l.Run.Keep, l.Run.Buddies = !zero, 1, core.Spread(by, nil)
	if !zero {
		for i := range n {
			l.Run.Same = append(l.Run.Same, nil)
			for at := range mesh.Len(topology.DP) {
				if other := mesh.Move(i, topology.DP, at); other != i {
					l.Run.Same[i] = append(l.Run.Same[i], other)
				}
			}
		}
	}
	return l, by
}

// covered reports whether the processes that are left have a copy of every state when all of lost end at once.
func covered(l *sim.Layout, by [][]int, lost []int) bool {
	gone := make([]bool, len(l.Ranks))
	for _, p := range lost {
		for _, i := range by[p] {
			gone[i] = true
		}
	}
	left := func(i int) bool { return !gone[i] }
	for i := range gone {
		twins := []int{i}
		if l.Run.Same != nil {
			twins = append(twins, l.Run.Same[i]...)
		}
		if !slices.ContainsFunc(twins, func(x int) bool {
			return left(x) || slices.ContainsFunc(l.Run.Buddies[x], left)
		}) {
			return false
		}
	}
	return true
}

// TestLossesCovered: process 0, which leads, and another end, at once or with any time between, or several end at
// once of which those that are left have all states: at most one step is taken again, though nothing is durable.
func TestLossesCovered(t *testing.T) {
	t.Parallel()
	seeds := uint64(600)
	if *long {
		seeds = 10000
	} else {
		t.Log("600 seeds instead of 10,000: add -long")
	}
	pairs, sets, open := 0, 0, 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 0xc0))
		l, by := shared(t, r)
		if seed%4 < 2 { // on two hosts
			hosted(l, by, 2)
		}
		o := sim.Options{Seed: seed, Jitter: 0.5, Late: []int64{1, 3000, 20000}[seed%3]}
		p := modelled()
		job := p.Job
		p.Job = func(rank int, j *actors.Job, s *core.Segment) int64 {
			if j.Kind == actors.KeepJob {
				return 1 + int64(seed/3%3)*150000
			}
			return job(rank, j, s)
		}
		length := int64(sim.New(l, p, o).Run().Time)
		at, apart := r.Int64N(length), []int64{0, 1, 30000, 400000, 900000}[r.IntN(5)]
		lost := []int{0, 1 + r.IntN(len(by)-1)}
		if seed%2 == 1 {
			lost, apart = r.Perm(len(by))[:1+r.IntN(len(by))], 0
		}
		if len(by) > 2 && slices.Contains(lost, 0) && len(lost) == 2 {
			pairs++
			require.True(t, covered(l, by, lost), "seed %d: %v of %v", seed, lost, by)
		}
		if !covered(l, by, lost) {
			open++
			continue
		}
		sets++
		if r.IntN(2) == 0 {
			slices.Reverse(lost)
		}
		if len(lost) > 2 && r.IntN(2) == 0 { // one ends before, and is given what another holds, or a copy
			early := max(1, at-r.Int64N(400000))
			for _, i := range by[lost[0]] {
				f := sim.Fault{Kind: sim.Restart, Rank: i, At: early, For: 1 + r.Int64N(20000)}
				if i == 0 {
					f.Kind = sim.Succession
				}
				o.Faults = append(o.Faults, f)
			}
			lost = lost[1:]
		}
		for k, x := range lost {
			when := 1 + at + int64(k)*r.Int64N(apart+1)
			for _, i := range by[x] {
				f := sim.Fault{Kind: sim.Restart, Rank: i, At: when, For: 1 + r.Int64N(200000)}
				if i == 0 {
					f.Kind = sim.Succession
				}
				o.Faults = append(o.Faults, f)
			}
		}
		lossesCovered(t, l, p, o, fmt.Sprintf("seed %d: %v of %v", seed, lost, by))
	}
	t.Logf("%d losses, of them %d of process 0 with one other; %d that nobody has all states of were left out", sets, pairs, open)
	require.Greater(t, pairs, int(seeds)/4)
}

// lossesCovered runs what has copies of everything in spite of its faults.
func lossesCovered(t *testing.T, l *sim.Layout, p sim.Prices, o sim.Options, what string) {
	t.Helper()
	what += fmt.Sprintf(", buddies %v, same %v, with %v", l.Run.Buddies, l.Run.Same, o.Faults)
	steps, again, copied := int64(0), int64(0), int64(0)
	mon := sim.NewMonitor(l)
	run := mon.Attach(o)
	report := run.Report
	run.Report = func(m actors.Message) {
		switch m.Text {
		case core.TopicStep:
			steps = max(steps, m.Step)
		case core.TopicCopied:
			copied = m.Step
		case core.TopicBack:
			again = max(again, steps-m.Step)
			require.GreaterOrEqual(t, m.Step, copied, what)
		}
		report(m)
	}
	require.Empty(t, mon.End(sim.New(l, p, run).Run(), 8), what)
	if o.Seed/3%3 == 0 { // copying takes no longer than a step
		require.LessOrEqual(t, again, int64(1), what)
	}
}
