package core_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
)

// TestSequences runs the scripts of testdata: each is a protocol of this package, told as the sequence of
// its messages. A line is a message when it is delivered; an indented one is a job that its receiver has
// begun. `go test ./actors/core -rewrite` writes them anew.
func TestSequences(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 10)
	for _, path := range files {
		var w *world
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "run" {
				w = newWorld(t, d)
			}
			require.NotNil(t, w, "a script begins with run")
			w.log.Reset()
			w.command(t, d)
			return w.log.String()
		})
		w.end()
		require.Zero(t, w.held, "payloads that nobody has given back at the end of %s", path)
	}
}

// Places of the actors.
const (
	coordinator actors.Ref = iota
	observer
	firstRank
)

// options are those of the command run.
type options struct {
	pp, dp, micro, credits       int
	steps, save, eval, keep      int  // a save, an evaluation, copies in memory after so many steps
	scale, overflows, hysteresis int  // the loss scale; the step whose gradients on the last rank are not finite
	voids                        int  // the last rank's router fails in so many steps from the second
	over                         bool // for too many rows, instead of logits
	experts                      bool
	recover, buddy, same         bool
	spike, redo                  int  // the step whose first samples have large gradients; steps that are taken again
	places                       bool // the data has places that are written down
	twice                        bool // every message comes twice, the second time behind all that is under way
	atEnd, gather                bool // a save at the end; updated rows are exchanged, as with ZeRO
	schedule                     string
}

func optionsOf(t *testing.T, d *datadriven.TestData) options {
	o := options{pp: 1, dp: 1, micro: 1, credits: 2, steps: 1, scale: 1, hysteresis: 1, schedule: "1f1b"}
	for name, at := range map[string]*int{"pp": &o.pp, "dp": &o.dp, "micro": &o.micro,
		"credits": &o.credits, "steps": &o.steps, "save": &o.save,
		"eval": &o.eval, "keep": &o.keep, "scale": &o.scale, "overflows": &o.overflows,
		"hysteresis": &o.hysteresis,
		"voids":      &o.voids, "spike": &o.spike, "redo": &o.redo} {
		d.MaybeScanArgs(t, name, at)
	}
	for name, at := range map[string]*bool{"recover": &o.recover, "buddy": &o.buddy,
		"same": &o.same, "at-end": &o.atEnd, "gather": &o.gather,
		"experts": &o.experts, "over": &o.over, "places": &o.places, "twice": &o.twice} {
		*at = d.HasArg(name)
	}
	d.MaybeScanArgs(t, "schedule", &o.schedule)
	return o
}

func newWorld(t *testing.T, d *datadriven.TestData) *world {
	w := &world{options: optionsOf(t, d), actors: map[actors.Ref]actors.Behaviour{},
		lives: map[actors.Ref]int{}, cut: map[[2]actors.Ref]string{}, faults: map[string]string{}}
	w.names = map[actors.Ref]string{coordinator: "coordinator", observer: "observer"}
	n := w.pp * w.dp
	w.run = &core.RunLayout{Observer: observer, First: 1, Last: int64(w.steps),
		SaveEvery: int64(w.save), SaveAtEnd: w.atEnd, EvalSteps: min(1, int64(w.eval)),
		EvalEvery: int64(w.eval),
		LR:        func(step int64) float64 { return float64(step) / 10 },
		Recover:   w.recover, Restarts: 2, Keep: int64(w.keep), Alone: !w.gather,
		LossScale: core.LossScale{Scale: float64(w.scale), Dynamic: w.scale > 1, Min: 1, Window: 2,
			Hysteresis: w.hysteresis, Left: w.hysteresis}}
	if w.places {
		w.run.Place = func(step int64) string { return fmt.Sprintf("the place after step %d", step) }
	}
	if w.spike > 0 {
		w.run.Spikes = core.Spikes{Norm: 3, After: 1, Back: int64(w.redo), Most: 2}
		w.run.Aside = func(step, first, behind int64) string {
			w.asides++
			return fmt.Sprintf("the place after step %d, and for step %d the place after step %d", step,
				first, behind)
		}
	}
	w.lay(t)
	for i, l := range w.ranks {
		ref := firstRank + actors.Ref(i)
		w.names[ref], w.actors[ref] = fmt.Sprint("rank ", i), w.once(core.NewRank(l))
		w.run.Ranks, w.run.Norms = append(w.run.Ranks, ref), append(w.run.Norms, []int32{int32(i)})
		if w.buddy {
			w.run.Buddies = append(w.run.Buddies, []int{(i + 1) % n})
		}
		if w.same {
			w.run.Same = append(w.run.Same, []int{(i + w.pp) % n})
		}
	}
	for dp := range w.dp {
		l := &core.LoaderLayout{Coordinator: coordinator, Ahead: 1, Last: int64(w.steps)}
		for pp := range w.pp {
			l.Ranks = append(l.Ranks, firstRank+actors.Ref(dp*w.pp+pp))
		}
		ref := firstRank + actors.Ref(n+dp)
		w.names[ref], w.actors[ref] = fmt.Sprint("loader ", dp), w.once(core.NewLoader(l))
	}
	w.actors[coordinator] = w.once(core.NewCoordinator(w.run))
	for ref := range firstRank + actors.Ref(n) {
		if ref != observer {
			w.actors[ref].Receive(self{w, ref}, &actors.Message{Kind: actors.Started})
		}
	}
	return w
}

// lay makes the layouts of the ranks: rank dp·pp+p has stage p of replica dp.
func (w *world) lay(t *testing.T) {
	prog, err := schedule.Build(w.schedule, schedule.Shape{Ranks: w.pp, Micro: w.micro})
	require.NoError(t, err)
	eval, err := schedule.Build("gpipe", schedule.Shape{Ranks: w.pp, Micro: w.micro})
	require.NoError(t, err)
	for r, row := range eval.Rows {
		eval.Rows[r] = nil
		for _, e := range row {
			if e.Kind == plan.F {
				eval.Rows[r] = append(eval.Rows[r], e)
			}
		}
	}
	var ports []core.Port
	for s := range w.pp - 1 {
		ports = append(ports, core.Port{ID: int32(s), From: s, To: s + 1, Grad: true, Bytes: 1})
	}
	update := []core.Segment{{Ready: true}, {}}
	if w.dp > 1 {
		update = append([]core.Segment{{Comms: []core.Comm{{Bytes: 1}}}}, update...)
	}
	if w.gather {
		update[len(update)-1].Comms = []core.Comm{{Bytes: 1}}
	}
	for i := range w.pp * w.dp {
		dp, p := i/w.pp, i%w.pp
		var group core.Group
		for k := range w.dp {
			group.Members = append(group.Members, firstRank+actors.Ref(k*w.pp+p))
		}
		group.Pos = dp
		w.ranks = append(w.ranks, &core.RankLayout{Rank: i, Program: prog, Eval: eval, Row: p,
			Update: core.Chain(update), Groups: []core.Group{group}, Ports: ports,
			Lower:  func(plan.Action, bool, int32) []core.Segment { return []core.Segment{{}} },
			Peer:   func(stage int) actors.Ref { return firstRank + actors.Ref(dp*w.pp+stage) },
			Loader: firstRank + actors.Ref(w.pp*w.dp+dp), Coordinator: coordinator, Credits: w.credits})
	}
}

// end halts all who are still there, as the driver does.
func (w *world) end() {
	w.mend()
	for _, e := range w.queue {
		w.release(&e.m)
	}
	for ref := firstRank; int(ref) < len(w.names); ref++ {
		if b := w.actors[ref]; b != nil {
			b.Receive(self{w, ref}, &actors.Message{Kind: actors.Halt, Epoch: actors.AnyEpoch})
		}
	}
}

// command carries out a line of a script.
func (w *world) command(t *testing.T, d *datadriven.TestData) {
	rank := func() actors.Ref {
		var n int
		d.ScanArgs(t, "rank", &n)
		return firstRank + actors.Ref(n)
	}
	switch d.Cmd {
	case "run", "go":
		w.goOn(t, d)
	case "kill":
		w.kill(rank())
	case "gone":
		w.post(coordinator, actors.Message{Kind: actors.Down, From: rank(), Step: int64(w.lives[rank()]),
			Text: "it was killed", Member: 1})
	case "back":
		w.back(rank())
	case "stop":
		m := actors.Message{Kind: actors.Halt, From: observer}
		if d.HasArg("now") {
			m.Text = core.HaltNow
		}
		w.post(coordinator, m)
	case "break":
		w.post(coordinator, actors.Message{Kind: actors.Broken, From: rank(), Epoch: actors.AnyEpoch,
			Text: "the cable is cut"})
	case "time":
		w.queue, w.timers = append(w.queue, w.timers...), nil
	case "cut":
		to := len(w.ranks) // the first loader
		d.MaybeScanArgs(t, "to", &to)
		w.cut[[2]actors.Ref{rank(), firstRank + actors.Ref(to)}] = strings.TrimSpace(d.Input)
	case "mend":
		w.mend()
	case "succeed":
		w.succeed()
	case "hold":
		w.slow = strings.TrimSpace(d.Input)
	case "release":
		w.queue, w.late, w.slow = append(w.queue, w.late...), nil, ""
	case "fail":
		w.faults[strings.TrimSpace(d.Input)] = "no space left on device"
	case "waits":
		w.waits()
	default:
		t.Fatalf("%s: no such command: %s", d.Pos, d.Cmd)
	}
}

// goOn delivers messages until there are none, or up to the one whose line the input is.
func (w *world) goOn(t *testing.T, d *datadriven.TestData) {
	until := strings.TrimSpace(d.Input)
	for !d.HasArg("paused") {
		line, more := w.step()
		switch {
		case !more && until != "":
			t.Fatalf("%s: it never came to %q", d.Pos, until)
		case !more || until != "" && strings.Contains(line, until):
			return
		}
	}
}
