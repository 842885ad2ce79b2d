package sim_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/sim"
)

// evaluates has a run evaluate two batches after every other step.
func evaluates(l *sim.Layout) {
	p := l.Ranks[0].Program
	forward := &plan.Program{StageRank: p.StageRank, Micro: p.Micro}
	for _, row := range p.Rows {
		forward.Rows = append(forward.Rows, slices.DeleteFunc(slices.Clone(row), func(e plan.Entry) bool {
			return e.Kind != plan.F
		}))
	}
	for _, r := range l.Ranks {
		r.Eval = forward
	}
	l.Run.EvalEvery, l.Run.EvalSteps = 2, 2
}

// TestTwice: messages of all kinds come a second time, soon or much later, beside others that are late, and
// ranks and coordinators end and come back: all steps are committed once, with the samples, updates and
// states of a run without faults.
func TestTwice(t *testing.T) {
	t.Parallel()
	seeds := uint64(600)
	if *long {
		seeds = 10000
	} else {
		t.Log("600 seeds instead of 10,000: add -long")
	}
	kinds := []sim.FaultKind{sim.DupMsg, sim.DupMsg, sim.Echo, sim.Echo, sim.LateMsg, sim.Straggler,
		sim.Restart,
		sim.Succession}
	again := map[actors.Kind]int{}
	for seed := range seeds {
		l := redundant(t, seed)
		if l.Run.MoveEvery == 0 && seed%4 != 1 && seed%5 < 2 {
			evaluates(l)
		}
		p := slowDisk(modelled(), 1+int64(seed%4)*50000, 1+int64(seed%5)*40000)
		write := p.Job
		p.Job = func(rank int, j *actors.Job, s *core.Segment) int64 {
			switch j.Kind {
			case actors.KeepJob, actors.StateJob: // up to longer than a step, and longer on some ranks
				return 1 + int64(seed/6%3)*100000*int64(1+rank)
			}
			return write(rank, j, s)
		}
		o := sim.Options{Seed: seed, Jitter: 0.5, Late: 1 + int64(seed%3)*20000}
		length := int64(sim.New(l, p, o).Run().Time)
		faults := sim.Draw(seed, 6, len(l.Ranks), length, kinds...)
		if seed%3 == 0 { // a rank ends at a moment that counts, and all that some other says comes twice
			o = aimed(l, p, o, 1+int(seed/3%2))
			faults = append(sim.Draw(seed, 3, len(l.Ranks), 1, sim.Echo), sim.Draw(seed, 2, len(l.Ranks),
				length, kinds[:5]...)...)
		}
		o.Faults = append(o.Faults, faults...)
		for i := range o.Faults {
			f := &o.Faults[i]
			f.Nth *= 1 + int(seed%4)
			if seed%3 == 0 && f.Kind == sim.Echo {
				f.For = length
			}
			if seed%2 == 0 && (f.Kind == sim.DupMsg || f.Kind == sim.Echo) {
				f.Delay = f.Delay%60000 + 1
			}
		}
		mon := sim.NewMonitor(l)
		run := mon.Attach(o)
		run.Again = func(e sim.Event) { again[e.M.Kind]++ }
		r := sim.New(l, p, run).Run()
		require.Empty(t, mon.End(r, 6), "seed %d with %v", seed, o.Faults)
	}
	for k := actors.Open; k <= actors.Holding; k++ {
		t.Logf("%s: %d came twice", k.Name(), again[k])
		switch k {
		case actors.Failed, actors.Report,
			actors.Broken: // an end, what the observer hears, the driver's own
		default:
			require.Positive(t, again[k], k.Name())
		}
	}
}
