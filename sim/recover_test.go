package sim_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// redundant is a run whose ranks keep copies with buddies, hold the same state as others, or neither.
func redundant(t *testing.T, seed uint64) *sim.Layout {
	mesh := topology.Grid(2, 1, 2)
	if seed%3 == 0 {
		mesh = topology.Grid(2, 2, 1)
	}
	d := described(t, mesh, 4, 1, 1, 6)
	if seed%4 == 1 { // forwards and backwards in turns
		var err error
		d.Program, err = schedule.Build("1f1b", schedule.Shape{Ranks: 2, Micro: 4, Pairs: true})
		require.NoError(t, err)
	}
	gather := seed%6 == 3
	if gather { // updated rows, as with ZeRO
		d.Update[len(d.Update)-1].Comms = []core.Comm{{Group: sim.GroupDP, Bytes: 1 << 20}}
	}
	if seed/6%3 == 1 { // experts move behind some updates
		d.Moving = append(slices.Clone(d.Update), core.Segment{})
		for i := len(d.Update) - 1; i <= len(d.Update); i++ {
			d.Moving[i].Comms = []core.Comm{{Group: sim.GroupDP, Bytes: 1 << 20}}
		}
	}
	if seed%7%3 == 1 { // sums over replicas begin before the optimizer step
		d.Update[0].Comms[0].Early = true
	}
	l := d.Layout()
	if d.Update[0].Comms[0].Early {
		issueEarly(l)
	}
	if d.Moving != nil {
		l.Run.MoveEvery = 1 + int64(seed/5%3)
		l.Run.Move = func(step int64, _ []core.Load, _ []core.Placed) []core.Placed {
			return []core.Placed{{Block: 1, Expert: []int{int(step)}}}
		}
	}
	l.Run.Alone = !gather
	l.Run.SaveEvery, l.Run.SaveAtEnd = int64(seed%4), seed%5 != 0
	l.Run.OptimSteps = int64(seed % 2 * 7)
	if seed%4 != 3 {
		overflows(l, seed)
	}
	n := len(l.Ranks)
	for i := range n {
		if seed%6 == 0 { // the other replica of its stage
			l.Run.Same = append(l.Run.Same, []int{mesh.Move(i, topology.DP, 1-mesh.At(i, topology.DP))})
		}
	}
	if seed/6%7 != 0 {
		l.Run.Keep = []int64{core.KeepAuto, 1, 2, 3}[seed/7%4]
		for i := range n {
			l.Run.Buddies = append(l.Run.Buddies, []int{(i + n/2) % n})
			if seed%5 == 2 { // a second one
				l.Run.Buddies[i] = append(l.Run.Buddies[i], (i+1)%n)
			}
		}
	}
	return l
}

// issueEarly lets the last backward of every rank issue the first communication of the optimizer step, before
// its own last segment.
func issueEarly(l *sim.Layout) {
	for _, r := range l.Ranks {
		row := r.Program.Rows[r.Row]
		last := row[len(row)-1].Action
		at := int32(len(r.Lower(last, false, 0)) - 2)
		r.Early = &core.Early{Of: func(a plan.Action, _, segment int32) []int32 {
			if a == last && segment == at {
				return []int32{0}
			}
			return nil
		}}
	}
}

// overflows has the gradients of some steps overflow when their loss scale is above 1, so that the scale
// goes up and down.
func overflows(l *sim.Layout, seed uint64) {
	for i := range l.Ranks {
		l.Run.Norms = append(l.Run.Norms, []int32{int32(i)})
	}
	hysteresis := 1 + int(seed/4%2)
	l.Run.LossScale = core.LossScale{Dynamic: true, Scale: 4, Min: 0.25, Window: 1 + int(seed/3%2),
		Hysteresis: hysteresis, Left: hysteresis}
	l.Overflow = func(step int64, scale float64) bool {
		return scale > 1 && (uint64(step)*2654435761+seed)%5 < 2
	}
}

// moments are when the messages of a run are delivered that commits, copies and recoveries are made of.
func moments(l *sim.Layout, p sim.Prices, o sim.Options) (at []actors.Time, to []int, joins []actors.Time) {
	o.See = func(e sim.Event) {
		switch k := e.M.Kind; k {
		case actors.Ready, actors.Commit, actors.Keep, actors.Kept, actors.Buddy, actors.Join, actors.Rewind,
			actors.Rewound, actors.Give, actors.State, actors.Done:
			i := slices.Index(l.RankRefs, e.To)
			if k == actors.Join {
				joins = append(joins, e.At)
			}
			if i < 0 {
				i = slices.Index(l.RankRefs, e.M.From)
			}
			if k != actors.Done || e.M.Action.Kind == plan.Step || e.M.Action.Kind == plan.None && i >= 0 {
				at, to = append(at, e.At), append(to, i)
			}
		}
	}
	sim.New(l, p, o).Run()
	return
}

// aimed makes faults that each hit a rank at such a moment, mostly the one that the message is for; the
// second comes during or after the recovery from the first.
func aimed(l *sim.Layout, p sim.Prices, o sim.Options, n int) sim.Options {
	rng := rand.New(rand.NewPCG(o.Seed, 0xa13))
	from := actors.Time(0)
	for range n {
		at, to, joins := moments(l, p, o)
		for len(at) > 1 && at[0] < from {
			at, to = at[1:], to[1:]
		}
		most := len(at)
		if len(o.Faults) > 0 { // soon after the first
			most = min(most, 60)
		}
		k := rng.IntN(most)
		if len(joins) > 0 && rng.IntN(4) == 0 { // what it says when it is back comes after its next end
			k = max(0, slices.Index(at, joins[0]))
		}
		rank := to[k]
		if rank < 0 || rng.IntN(3) == 0 {
			rank = rng.IntN(len(l.Ranks))
		}
		// all that hold one state
		if same := l.Run.Same; same != nil && len(o.Faults) > 0 && rng.IntN(2) == 0 {
			f := &o.Faults[0]
			f.For = 50000
			o.Faults = append(o.Faults, sim.Fault{Kind: sim.Restart, Rank: same[f.Rank][0], At: f.At + 1 +
				rng.Int64N(40000), For: 20000})
			return o
		}
		o.Faults = append(o.Faults, sim.Fault{Kind: sim.Restart, Rank: rank,
			At: max(1, int64(at[k])+rng.Int64N(3)-1), For: 1 + rng.Int64N(50000>>(6*rng.IntN(3)))})
		from = at[k]
	}
	return o
}

// fromEverySource runs 600 seeds, 10,000 with -long, under the faults that each one draws: what the monitor
// promises holds in all, and what is lost comes back from checkpoints, from copies and from other ranks, each
// in at least one of 20.
func fromEverySource(t *testing.T, faults func(l *sim.Layout, p *sim.Prices, o sim.Options) sim.Options) {
	seeds := uint64(600)
	if *long {
		seeds = 10000
	} else {
		t.Log("600 seeds instead of 10,000: add -long")
	}
	sources := map[int]int{}
	for seed := range seeds {
		l := redundant(t, seed)
		p := slowDisk(modelled(), 1+int64(seed%4)*50000, 1+int64(seed%5)*40000)
		o := sim.Options{Seed: seed, Jitter: 0.5, Late: []int64{1, 20000, 40000, 150000}[seed/3%4]}
		o = faults(l, &p, o)
		mon := sim.NewMonitor(l)
		run := mon.Attach(o)
		report := run.Report
		run.Report = func(m actors.Message) {
			if m.Text == core.TopicBack {
				sources[int(core.ReturnOf(m.Values).Source)]++
			}
			report(m)
		}
		require.Empty(t, mon.End(sim.New(l, p, run).Run(), 6), "seed %d with %v", seed, o.Faults)
	}
	t.Logf("from disk %d, from copies %d, from what ranks hold %d", sources[0], sources[1], sources[2])
	for _, source := range []int32{core.FromDisk, core.FromCopy, core.FromMember} {
		require.Greater(t, sources[int(source)], int(seeds)/20)
	}
}

// TestRecoverySources: ranks die at any moment, one or several, also while others come back, and the state
// of those that come back is another rank's, or a copy's that its buddy kept, or the checkpoint's: what the
// monitor promises holds in all, and nobody reads a checkpoint where there is something newer in memory.
func TestRecoverySources(t *testing.T) {
	t.Parallel()
	fromEverySource(t, func(l *sim.Layout, p *sim.Prices, o sim.Options) sim.Options {
		seed := o.Seed
		write := p.Job
		p.Job = func(rank int, j *actors.Job, s *core.Segment) int64 {
			switch j.Kind {
			case actors.KeepJob, actors.StateJob:
				return 1 + int64(seed%3)*400000 // up to longer than a step
			case actors.LoadBatch: // so that a rank is lost while its data is read
				return 1 + int64(seed/8%3)*300000
			}
			return write(rank, j, s)
		}
		plain := sim.NewMonitor(l)
		r := sim.New(l, *p, plain.Attach(o)).Run()
		require.Empty(t, plain.End(r, 6), "seed %d", seed)
		if seed/42%3 == 0 {
			o.Faults = sim.Draw(seed, 1+int(seed%3), len(l.Ranks), int64(r.Time), sim.Restart)
		} else {
			o = aimed(l, *p, o, 1+int(seed/6%2))
		}
		return o
	})
}

// TestPartitions: links between ranks are cut one way or both for a while, messages are lost, late or slow,
// and ranks die on top. The transport notices what it loses, and every epoch has connections of its own: all
// steps are committed once, by everybody.
func TestPartitions(t *testing.T) {
	t.Parallel()
	seeds := uint64(400)
	if *long {
		seeds = 10000
	} else {
		t.Log("400 seeds instead of 10,000: add -long")
	}
	kinds := []sim.FaultKind{sim.CutLink, sim.CutLink, sim.LostMsg, sim.LateMsg, sim.SlowLink, sim.Straggler,
		sim.Restart}
	again := 0
	for seed := range seeds {
		l := redundant(t, seed)
		l.Run.Grace = 30000
		p := slowDisk(modelled(), 1+int64(seed%4)*50000, 1+int64(seed%5)*40000)
		o := sim.Options{Seed: seed, Jitter: 0.5, Late: 1 + int64(seed%3)*20000, Notice: 20000}
		length := int64(sim.New(l, p, o).Run().Time)
		o.Faults = sim.Draw(seed, 1+int(seed%4), len(l.Ranks), length, kinds...)
		mon := sim.NewMonitor(l)
		run := mon.Attach(o)
		report := run.Report
		run.Report = func(m actors.Message) {
			if m.Text == core.TopicBroken {
				again++
			}
			report(m)
		}
		r := sim.New(l, p, run).Run()
		require.Empty(t, mon.End(r, 6), "seed %d with %v", seed, o.Faults)
	}
	t.Logf("connections were made anew %d times", again)
	require.Greater(t, again, int(seeds)/4)
}

// TestOwedUpdate: a rank that hears of an epoch before it hears of the commit that was decided in the one
// before, which another connection brings, carries out the update first and once.
func TestOwedUpdate(t *testing.T) {
	t.Parallel()
	owed := 0
	for seed := range uint64(500) {
		l := redundant(t, 6*seed)
		o := sim.Options{Seed: seed, Jitter: 0.5, Late: 150000}
		var at []actors.Time
		look := o
		look.See = func(e sim.Event) {
			if e.M.Kind == actors.Commit && (len(at) == 0 || at[len(at)-1] < e.At-100000) {
				at = append(at, e.At)
			}
		}
		p := modelled()
		job := p.Job
		p.Job = func(rank int, j *actors.Job, s *core.Segment) int64 {
			if j.Kind == actors.UpdatePhase { // so that an epoch may begin in its middle
				return 50000
			}
			return job(rank, j, s)
		}
		sim.New(l, p, look).Run()
		o.Faults = []sim.Fault{{Kind: sim.Restart, Rank: int(seed) % len(l.Ranks),
			At: int64(at[int(seed/4)%len(at)]) + 1, For: 10}}
		mon := sim.NewMonitor(l)
		run := mon.Attach(o)
		back := map[actors.Ref]bool{}
		see, span := run.See, run.Span
		run.See = func(e sim.Event) {
			if e.M.Kind == actors.Rewind || e.M.Kind == actors.Open {
				back[e.To] = e.M.Kind == actors.Rewind
			}
			see(e)
		}
		run.Span = func(s sim.Span) {
			if s.Job.Kind == actors.UpdatePhase && back[s.Ref] {
				owed++
			}
			span(s)
		}
		require.Empty(t, mon.End(sim.New(l, p, run).Run(), 6), "seed %d with %v", seed, o.Faults)
	}
	t.Logf("%d updates were owed", owed)
	require.Greater(t, owed, 20)
}

// TestSuccession: the coordinator ends with a rank at any moment, also while a rank recovers and while its
// successor takes over. The next one goes on from what the ranks hold, and what the monitor promises holds.
func TestSuccession(t *testing.T) {
	t.Parallel()
	fromEverySource(t, func(l *sim.Layout, p *sim.Prices, o sim.Options) sim.Options {
		seed := o.Seed
		o = aimed(l, *p, o, 1+int(seed/6%3))
		for i := range o.Faults {
			if i == 0 || seed/5%2 == 0 {
				o.Faults[i].Kind = sim.Succession
			}
		}
		if seed%7 == 0 { // what is lost on a cut link is told to whoever leads
			l.Run.Grace, o.Notice = 30000, 20000
			o.Faults = append(o.Faults, sim.Draw(seed, 2, len(l.Ranks), 4000000, sim.CutLink, sim.LostMsg)...)
		}
		return o
	})
}
