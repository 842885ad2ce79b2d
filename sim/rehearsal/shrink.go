package rehearsal

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
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
func (x *small) settings() []string {
	out := []string{fmt.Sprintf("plan.pp=%d", x.pp), fmt.Sprintf("plan.dp=%d", x.dp),
		fmt.Sprintf("plan.tp=%d", x.tp), "plan.procs=1", fmt.Sprintf("train.global_batch=%d", x.batch)}
	if x.tp == 1 {
		out = append(out, "plan.sequence_parallel=false")
	}
	return out
}

// shrinker reads the run file under other settings and simulates what comes of it.
type shrinker struct {
	read func(settings ...string) (*configs.Config, error)
	o    Options
	seed uint64
}

// try runs x; a shape that is not possible gives nil.
func (s *shrinker) try(x *small, o sim.Options) *sim.Result {
	cfg, err := s.read(x.settings()...)
	if err != nil {
		return nil
	}
	own := s.o
	own.Steps, own.Jitter = x.steps, x.jitter
	r, err := New(cfg, own)
	if err != nil {
		return nil
	}
	o.Seed, o.Faults = s.seed, nil
	for _, f := range x.faults {
		f.Rank, f.Peer = f.Rank%(x.pp*x.dp*x.tp), f.Peer%(x.pp*x.dp*x.tp)
		o.Faults = append(o.Faults, f)
	}
	return r.Run(o)
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

// Shrunk is the smallest run that was found to fail as another does.
type Shrunk struct {
	How      string // in which way it fails; "" if the run ends well
	First    uint64 // events of the run that it comes from
	Events   uint64
	Settings []string // over those of the run file
	Steps    int64
	Faults   []sim.Fault

	s    shrinker
	best small
}

// Shrink looks for the smallest run that fails as a seed's does: one change at a time is kept if the failure
// stays and the events do not become more. Read gives the run file's configuration under more settings.
func Shrink(ctx context.Context, read func(settings ...string) (*configs.Config, error), o Options,
	seed uint64, faults []sim.Fault) (*Shrunk, error) {
	cfg, err := read()
	if err != nil {
		return nil, err
	}
	p, s := cfg.Run.Plan, shrinker{read, o, seed}
	best := small{pp: p.PP, dp: p.DP, tp: p.TP, batch: cfg.Run.Train.GlobalBatch, steps: o.Steps, jitter: o.Jitter,
		faults: faults}
	first := s.try(&best, sim.Options{})
	how := fate(first)
	if how == "" {
		return &Shrunk{}, nil
	}
	events := first.Events
	for _, x := range best.least(cfg) {
		if r := s.try(&x, sim.Options{}); fate(r) == how && r.Events < events {
			best, events = x, r.Events
		}
	}
	for again := true; again && ctx.Err() == nil; {
		again = false
		for _, x := range best.smaller(cfg) {
			if r := s.try(&x, sim.Options{}); fate(r) == how && r.Events <= events {
				again = r.Events < events || len(x.faults) < len(best.faults)
				best, events = x, r.Events
				break
			}
		}
	}
	return &Shrunk{How: how, First: first.Events, Events: events, Settings: best.settings(),
		Steps: best.steps, Faults: best.faults, s: s, best: best}, nil
}

// Replay runs it once more; see takes its events, each with its number and in words.
func (x *Shrunk) Replay(see func(n int, at int64, what string)) error {
	n := 0
	r := x.s.try(&x.best, sim.Options{See: func(e sim.Event) {
		n++
		see(n, int64(e.At), describe(e))
	}})
	return exit.With(fmt.Errorf("the simulated run %s: %s", fate(r), Why(r)), exit.Failed)
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
						out = append(out, small{pp: mesh[0], dp: mesh[1], tp: mesh[2],
							batch: micro * mesh[1] * cfg.Run.Train.MicroBatch, steps: 1, jitter: 0,
							faults: []sim.Fault{f}})
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
			add(func(y *small) {
				y.batch = unit * x.dp * min(x.batch/(unit*x.dp), max(floor, to(x.batch/(unit*x.dp))))
			})
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

// same tells whether two reduced cases are equal, by which shrinking sees that a step has changed nothing.
func (x *small) same(y *small) bool {
	return x.pp == y.pp && x.dp == y.dp && x.tp == y.tp && x.batch == y.batch && x.steps == y.steps &&
		x.jitter == y.jitter && slices.Equal(x.faults, y.faults)
}

var kindNames = map[actors.Kind]string{actors.Started: "started", actors.Down: "down", actors.Done: "done",
	actors.Tick: "tick", actors.Open: "open", actors.Batch: "data", actors.Part: "part",
	actors.Activation: "activation", actors.Cotangent: "cotangent", actors.Credit: "credit", actors.Closed: "closed",
	actors.Load: "load", actors.Save: "save", actors.Queued: "queued", actors.Durable: "durable", actors.Halt: "halt",
	actors.Failed: "failed", actors.Report: "report", actors.Join: "join", actors.Rewind: "rewind",
	actors.Rewound: "rewound"}

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
