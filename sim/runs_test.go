package sim_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// TestSimulated runs whole runs of many shapes in the simulator: with saves, evaluations, copies in memory
// and a loss scale, undisturbed and under faults. The monitor holds each to what the protocols promise, and
// testdata/simulated has what was reported and a hash of every message with its values, so that a change of
// behaviour that breaks no promise is seen, too. `go test ./sim -rewrite` writes it anew.
func TestSimulated(t *testing.T) {
	t.Parallel()
	datadriven.RunTest(t, "testdata/simulated/runs", func(t *testing.T, d *datadriven.TestData) string {
		require.Equal(t, "simulate", d.Cmd)
		var from, to uint64
		d.ScanArgs(t, "seeds", &from, &to)
		var out strings.Builder
		for seed := from; seed < to; seed++ {
			fmt.Fprintf(&out, "seed %d: %s\n", seed, newTrial(t, d, seed).run(t))
		}
		return out.String()
	})
}

// trial is one simulated run.
type trial struct {
	layout  *sim.Layout
	prices  sim.Prices
	options sim.Options
	faults  []sim.FaultKind
	steps   int64
	log     strings.Builder
}

// newTrial lays out the run of a line of the script.
func newTrial(t *testing.T, d *datadriven.TestData, seed uint64) *trial {
	n := map[string]int{"pp": 1, "dp": 1, "tp": 1, "micro": 1, "loops": 1, "steps": 3, "save": 0, "eval": 0,
		"keep": 0, "scale": 0, "credits": 2, "late": 0, "grace": 0, "first": 1, "restarts": 0}
	for name := range n { //lfvet:order each key by itself
		v := n[name]
		d.MaybeScanArgs(t, name, &v)
		n[name] = v
	}
	name := "1f1b"
	d.MaybeScanArgs(t, "schedule", &name)
	w := &trial{steps: int64(n["steps"]), prices: prices(seed)}
	mesh := topology.Grid(n["pp"], n["dp"], n["tp"])
	shape := schedule.Shape{Ranks: n["pp"], Micro: n["micro"], Loops: n["loops"]}
	prog, err := schedule.Build(name, shape)
	require.NoError(t, err)
	desc := &sim.Description{Mesh: mesh, Program: prog, PortBytes: 1 << 10, Steps: w.steps, Passes: passes(),
		Update: []core.Segment{{Comms: []core.Comm{{Group: sim.GroupDP, Bytes: 1 << 12}}}, {Ready: true},
			{Flops: 100}}}
	if d.HasArg("gather") {
		desc.Update[2].Comms = []core.Comm{{Group: sim.GroupDP, Bytes: 1 << 12}}
	}
	w.layout = desc.Layout()
	run := &w.layout.Run
	run.First, run.OptimSteps = int64(n["first"]), int64(n["first"]-1)
	run.Restarts = n["restarts"]
	run.SaveEvery, run.SaveAtEnd, run.Alone = int64(n["save"]), d.HasArg("at-end"), !d.HasArg("gather")
	run.EvalEvery, run.EvalSteps, run.Grace = int64(n["eval"]), min(2, int64(n["eval"])),
		actors.Duration(n["grace"])
	forward := &plan.Program{StageRank: prog.StageRank, Micro: prog.Micro}
	for _, row := range prog.Rows {
		forward.Rows = append(forward.Rows, slices.DeleteFunc(slices.Clone(row), func(e plan.Entry) bool {
			return e.Kind != plan.F
		}))
	}
	for i, l := range w.layout.Ranks {
		l.Credits, l.Eval, l.Shaped = n["credits"], forward, d.HasArg("classes")
		if d.HasArg("same") {
			run.Same = append(run.Same, []int{mesh.Move(i, topology.DP, 1-mesh.At(i, topology.DP))})
		}
		if n["keep"] != 0 {
			run.Buddies = append(run.Buddies, []int{(i + len(w.layout.Ranks)/2) % len(w.layout.Ranks)})
		}
		if i == 1 && d.HasArg("lonely") {
			run.Buddies[1] = nil
		}
		run.Norms = append(run.Norms, []int32{int32(i)})
	}
	if run.Keep = int64(n["keep"]); n["keep"] < 0 {
		run.Keep = core.KeepAuto
	}
	if n["scale"] > 0 {
		run.LossScale = core.LossScale{Dynamic: true, Scale: float64(n["scale"]), Min: 0.25, Window: 2,
			Hysteresis: 2, Left: 2}
		w.layout.Overflow = func(step int64, scale float64) bool {
			return scale > 1 && (uint64(step)*2654435761+seed)%5 < 2
		}
	}
	if d.HasArg("classes") { // microbatches have one of three shapes
		w.layout.Class = func(step int64, rank actors.Ref, micro int) int32 {
			return int32((uint64(step) + seed + uint64(micro)) % 3)
		}
	}
	w.options = sim.Options{Seed: seed, Jitter: 0.5, Late: int64(n["late"]), Notice: int64(n["grace"])}
	w.faults = faultsOf(d)
	return w
}

// faultsOf are the kinds of faults that a line asks for.
func faultsOf(d *datadriven.TestData) (out []sim.FaultKind) {
	for _, a := range d.CmdArgs {
		if a.Key == "faults" {
			for _, v := range a.Vals {
				out = append(out, kinds[v])
			}
		}
	}
	return out
}

var kinds = map[string]sim.FaultKind{"restart": sim.Restart, "cut": sim.CutLink, "lost": sim.LostMsg,
	"late": sim.LateMsg,
	"slow": sim.SlowLink, "straggler": sim.Straggler, "crash": sim.Crash, "wild": sim.Wild,
	"succession": sim.Succession}

// passes are a forward of three segments and a backward of two, between which tensor-parallel parts travel.
func passes() func(a plan.Action) []core.Segment {
	tp := []core.Comm{{Group: sim.GroupTP, Bytes: 1 << 10}}
	f := []core.Segment{{Flops: 700, Comms: tp}, {Flops: 900, Comms: tp}, {Flops: 400}}
	b := []core.Segment{{Flops: 1500, Comms: tp}, {Flops: 1600}}
	return func(a plan.Action) []core.Segment {
		if a.Kind == plan.F {
			return f
		}
		return b
	}
}

// prices make a save, a copy and the reading of data take as long as a part of a step, or several steps.
func prices(seed uint64) sim.Prices {
	s := int64(seed)
	return sim.Prices{Job: func(_ int, j *actors.Job, g *core.Segment) int64 {
		switch j.Kind {
		case actors.SnapshotJob:
			return 3000 + s%3*20000
		case actors.WriteJob:
			return 1 + s%4*50000
		case actors.BeginJob, actors.CommitJob:
			return 1 + s%5*40000
		case actors.RestoreJob:
			return 2000
		case actors.KeepJob, actors.StateJob:
			return 1 + s%3*40000
		case actors.LoadBatch:
			return 1 + s/2%3*30000
		}
		return g.Flops + 10
	}, Link: func(from, to int) sim.Link {
		return sim.Link{Latency: 3000, PerByte: 0.01, Out: int32(2 * max(0, from)),
			In: int32(2*max(0, to) + 1)}
	}}
}

// run simulates the run without faults, and with faults drawn for its length, and says how both went.
func (w *trial) run(t *testing.T) string {
	text, r := w.once(t)
	if len(w.faults) == 0 {
		return text
	}
	rng := rand.New(rand.NewPCG(w.options.Seed, 7))
	faults := 1 + rng.IntN(3)
	if w.layout.Run.Restarts > 0 { // so many that some run ends
		faults *= 4
	}
	w.options.Faults = sim.Draw(w.options.Seed, faults, len(w.layout.Ranks), int64(r.Time), w.faults...)
	text, _ = w.once(t)
	return text
}

// once simulates the run.
func (w *trial) once(t *testing.T) (string, *sim.Result) {
	w.log.Reset()
	ends := slices.Contains(w.faults, sim.Crash) || slices.Contains(w.faults, sim.LostMsg) &&
		w.options.Notice == 0
	ends = (ends || w.layout.Run.Restarts > 0) && len(w.options.Faults) > 0
	sum := fnv.New64a()
	o := w.options
	var mon *sim.Monitor
	if !ends { // what is lost for good ends the run, which the monitor counts as a breach
		mon = sim.NewMonitor(w.layout)
		o = mon.Attach(o)
	}
	see, report := o.See, o.Report
	o.See = func(e sim.Event) {
		m := e.M
		fmt.Fprintln(sum, e.At, e.To, m.From, m.Kind, m.Action, m.Step, m.Segment, m.Comm, m.Member,
			m.Port, m.Job,
			m.Epoch, m.Values, m.Text, m.Err)
		if see != nil {
			see(e)
		}
	}
	o.Report = func(m actors.Message) {
		fmt.Fprintln(sum, m.Text, m.Step, m.Values)
		switch {
		case m.Text == core.TopicStep || m.Text == core.TopicQueued:
		case m.Err != nil:
			fmt.Fprintf(&w.log, "%s %d %v (%v), ", m.Text, m.Step, m.Values, m.Err)
		default:
			fmt.Fprintf(&w.log, "%s %d %v, ", m.Text, m.Step, m.Values)
		}
		if report != nil {
			report(m)
		}
	}
	r := sim.New(w.layout, w.prices, o).Run()
	if mon != nil {
		require.Empty(t, mon.End(r, w.steps-w.layout.Run.First+1), "seed %d with %v", w.options.Seed,
			o.Faults)
	}
	if r.Stall != nil {
		fmt.Fprintf(&w.log, "%s, ", r.Stall)
	}
	return fmt.Sprintf("%s%d steps in %d ns, messages %016x", w.log.String(), len(r.Steps), r.Time,
		sum.Sum64()), r
}
