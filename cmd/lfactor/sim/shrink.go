package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/setup"
	"github.com/lfactor/lfactor/cmd/lfactor/virtual"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/sim"
)

// small is a run that may be smaller than the one it came from.
type small struct {
	pp, dp, tp int
	batch      int // sequences of a step
	steps      int64
	jitter     float64
	faults     []sim.Fault
}

// settings are what the run changes in its file.
func (x *small) settings(s *simRun) []string {
	out := []string{fmt.Sprintf("plan.pp=%d", x.pp), fmt.Sprintf("plan.dp=%d", x.dp), fmt.Sprintf("plan.tp=%d", x.tp), "plan.procs=1", fmt.Sprintf("train.global_batch=%d", x.batch)}
	if x.tp == 1 {
		out = append(out, "plan.sequence_parallel=false")
	}
	return append(append([]string{}, s.rest...), out...)
}

// try runs x with a seed; a shape that is not possible gives nil.
func (x *small) try(s *simRun, seed uint64, o sim.Options) *sim.Result {
	y := *s
	y.rest, y.steps, y.jitter = x.settings(s), x.steps, x.jitter
	if y.plan() != nil {
		return nil
	}
	o.Seed, o.Faults = seed, nil
	for _, f := range x.faults {
		f.Rank, f.Peer = f.Rank%(x.pp*x.dp*x.tp), f.Peer%(x.pp*x.dp*x.tp)
		o.Faults = append(o.Faults, f)
	}
	return y.run(o)
}

// fate is in which way a run failed, "" if it did not.
func fate(r *sim.Result) string {
	switch {
	case r == nil:
		return ""
	case r.Stall != nil:
		return "waits for ever"
	case strings.Contains(r.Failed, "internal error"):
		return "internal error"
	case r.Failed != "":
		return "fails"
	}
	return ""
}

// shrink looks for the smallest run that fails as the seed's does: one change at a time is kept if the failure stays and the events
// do not become more.
func (s *simRun) shrink(seed uint64, faults []sim.Fault) error {
	cfg, err := setup.Load(s.file, s.mine, s.rest)
	if err != nil {
		return err
	}
	p := cfg.Run.Plan
	best := small{p.PP, p.DP, p.TP, cfg.Run.Train.GlobalBatch, s.steps, s.jitter, faults}
	first := best.try(s, seed, sim.Options{})
	how := fate(first)
	if how == "" {
		fmt.Printf("seed %d ends well: nothing to shrink\n", seed)
		return nil
	}
	events := first.Events
	for _, x := range best.least(cfg) {
		if r := x.try(s, seed, sim.Options{}); fate(r) == how && r.Events < events {
			best, events = x, r.Events
		}
	}
	for again := true; again && cli.Interrupted.Load() == 0; {
		again = false
		for _, x := range best.smaller(cfg) {
			if r := x.try(s, seed, sim.Options{}); fate(r) == how && r.Events <= events {
				again = r.Events < events || len(x.faults) < len(best.faults)
				best, events = x, r.Events
				break
			}
		}
	}
	fmt.Printf("seed %d %s after %d events; the smallest run that does so takes %d:\n  lfactor sim %s %s --steps %d\n", seed, how, first.Events, events, s.file,
		strings.Join(best.settings(s), " "), best.steps)
	for _, f := range best.faults {
		fmt.Println("  fault:", f)
	}
	return best.list(s, seed, events)
}

// least lists the smallest runs there are, with each of the faults alone and at its earliest.
func (x *small) least(cfg *configs.Config) (out []small) {
	for _, mesh := range [][3]int{{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}} {
		for _, f := range x.faults {
			for rank := range mesh[0] * mesh[1] * mesh[2] {
				for nth := range 5 {
					f.Rank, f.Peer, f.Nth, f.At, f.For = rank, 1-rank, nth+1, 0, 0
					if f.Kind == sim.Restart {
						f.For = 1
					}
					for _, micro := range []int{1, mesh[0]} {
						out = append(out, small{mesh[0], mesh[1], mesh[2], micro * mesh[1] * cfg.Run.Train.MicroBatch, 1, 0, []sim.Fault{f}})
					}
				}
			}
		}
	}
	return
}

// smaller lists runs that are one change smaller.
func (x *small) smaller(cfg *configs.Config) (out []small) {
	add := func(change func(y *small)) {
		y := *x
		y.faults = slices.Clone(x.faults)
		if change(&y); !y.same(x) {
			out = append(out, y)
		}
	}
	for i := range x.faults {
		add(func(y *small) { y.faults = slices.Delete(y.faults, i, i+1) })
	}
	unit := cfg.Run.Train.MicroBatch
	for _, to := range []func(int) int{func(int) int { return 1 }, func(n int) int { return max(1, n/2) }} {
		add(func(y *small) { y.steps = int64(to(int(x.steps))) })
		add(func(y *small) { y.dp, y.batch = to(x.dp), x.batch/x.dp*to(x.dp) })
		add(func(y *small) { y.tp = to(x.tp) })
		add(func(y *small) { y.pp = to(x.pp) })
		for _, floor := range []int{1, x.pp, 2 * x.pp} {
			add(func(y *small) { y.batch = unit * x.dp * min(x.batch/(unit*x.dp), max(floor, to(x.batch/(unit*x.dp)))) })
		}
	}
	add(func(y *small) { y.jitter = 0 })
	for i := range x.faults {
		for _, at := range []int64{0, x.faults[i].At / 2, x.faults[i].At * 7 / 8} {
			add(func(y *small) { y.faults[i].At = at })
		}
		add(func(y *small) { y.faults[i].Nth = 1 + x.faults[i].Nth/2 })
		add(func(y *small) { y.faults[i].Nth = max(1, x.faults[i].Nth-1) })
		add(func(y *small) { y.faults[i].For = 0 })
		add(func(y *small) { y.faults[i].Rank, y.faults[i].Peer = 0, 1 })
		add(func(y *small) { y.faults[i].Rank, y.faults[i].Peer = 1, 0 })
	}
	return
}

func (x *small) same(y *small) bool {
	return x.pp == y.pp && x.dp == y.dp && x.tp == y.tp && x.batch == y.batch && x.steps == y.steps && x.jitter == y.jitter && slices.Equal(x.faults, y.faults)
}

// listed is up to how many events are written out.
const listed = 100

// list runs x once more and writes its events, and ends with its failure.
func (x *small) list(s *simRun, seed uint64, events uint64) error {
	o := sim.Options{}
	if events <= listed {
		n := 0
		o.See = func(e sim.Event) {
			n++
			fmt.Printf("%4d  %12d ns  %s\n", n, e.At, describe(e))
		}
	}
	r := x.try(s, seed, o)
	return cli.Coded(fmt.Errorf("the simulated run %s: %s", fate(r), virtual.Why(r)), cli.ExitFailed)
}

var kindNames = map[actors.Kind]string{actors.Started: "started", actors.Down: "down", actors.Done: "done", actors.Tick: "tick", actors.Open: "open", actors.Batch: "data",
	actors.Part: "part", actors.Activation: "activation", actors.Cotangent: "cotangent", actors.Credit: "credit", actors.Closed: "closed", actors.Load: "load",
	actors.Save: "save", actors.Queued: "queued", actors.Durable: "durable", actors.Halt: "halt", actors.Failed: "failed", actors.Report: "report", actors.Join: "join",
	actors.Rewind: "rewind", actors.Rewound: "rewound"}

// describe is an event on one line.
func describe(e sim.Event) string {
	text := fmt.Sprintf("%d → %d  %s", e.M.From, e.To, kindNames[e.M.Kind])
	switch e.M.Kind {
	case actors.Done, actors.Part:
		text += fmt.Sprintf(" %v segment %d", e.M.Action, e.M.Segment)
	case actors.Activation, actors.Cotangent, actors.Batch:
		text += fmt.Sprintf(" %v", e.M.Action)
	case actors.Report:
		text += " " + e.M.Text
	case actors.Open, actors.Closed, actors.Load, actors.Rewind:
		text += fmt.Sprintf(" step %d epoch %d", e.M.Step, e.M.Epoch)
	}
	return text
}
