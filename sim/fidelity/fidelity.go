package fidelity

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/calibrate"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
	"github.com/lfactor/lfactor/topology/machine"
)

// fidelityPlan is a plan on which simulated and real step times are compared.
type fidelityPlan struct {
	schedule string
	loops    int
	mesh     topology.Mesh
	micro    int // microbatches a step, 0 for 8
	chunks   int // of each microbatch's sequence, 0 for 1
}

// String names the plan.
func (p fidelityPlan) String() string {
	s := fmt.Sprintf("%s pp%d dp%d tp%d", p.schedule, p.mesh.Len(topology.PP), p.mesh.Replicas(),
		p.mesh.Len(topology.TP))
	if p.micro > 0 {
		s += fmt.Sprintf(" %d microbatches", p.micro)
	}
	if p.chunks > 0 {
		s += fmt.Sprintf(" of %d chunks", p.chunks)
	}
	return s
}

// EverySchedule is the paced set with other plans: each schedule that runs, on 4 stages, with few and with
// many microbatches, and in chunks where it has chunks.
func EverySchedule() *Set {
	set := PacedSet
	set.name, set.Plans = "4 ranks, jobs last their modelled time", nil
	for _, name := range schedule.Names() {
		s, err := schedule.Get(name)
		if err != nil || !s.Runs {
			continue
		}
		loops := cmp.Or(s.Loops, 2)
		for _, micro := range []int{4, 16, 64} {
			if _, err := schedule.Build(name, schedule.Shape{Ranks: 4, Micro: micro, Loops: loops}); err == nil {
				set.Plans = append(set.Plans, fidelityPlan{name, loops, topology.Grid(4, 1, 1), micro, 0})
			}
		}
		for _, micro := range []int{2, 8} {
			shape := schedule.Shape{Ranks: 4, Micro: micro, Loops: loops, Split: slices.Repeat([]int{4}, micro)}
			if _, err := schedule.Build(name, shape); err == nil {
				set.Plans = append(set.Plans, fidelityPlan{name, loops, topology.Grid(4, 1, 1), micro, 4})
			}
		}
	}
	return &set
}

// Set is a way to run plans for real, with the plans.
type Set struct {
	name  string
	calib fidelityPlan // on which the set is calibrated, once
	Plans []fidelityPlan
	job   func(p fidelityPlan) *layout.Design
	wrap  func(l *layout.Layout, rank int, d host.Device) host.Device
	// fit makes the prices of jobs from the segments of the calibration run. What that run took besides is a
	// share of every job's time where jobs compute, because cores and memory are shared, and the same for
	// every job where they wait.
	fit   func(all []calibrate.Timed) func(j *actors.Job, s *core.Segment) int64
	share bool
}

// PacedSet runs on devices whose jobs last their modelled time, so that bubbles are real on few cores.
var PacedSet = Set{name: "8 ranks, jobs last their modelled time",
	calib: fidelityPlan{"1f1b", 1, topology.Grid(4, 2, 1), 0, 0},
	Plans: []fidelityPlan{{"1f1b", 1, topology.Grid(8, 1, 1), 0, 0}, {"gpipe", 1, topology.Grid(8, 1, 1), 0, 0},
		{"zb-1p", 1, topology.Grid(8, 1, 1), 0, 0}, {"interleaved", 2, topology.Grid(4, 2, 1), 0, 0},
		{"zb-v", 2, topology.Grid(4, 2, 1), 0, 0}, {"1f1b", 1, topology.Grid(4, 1, 2), 0, 0}},
	job: func(p fidelityPlan) *layout.Design { return fidelityJob(p, fidelityModel(32, 64), 16) },
	wrap: func(l *layout.Layout, rank int, d host.Device) host.Device {
		return paced{d, segmentOf(l.RankLayout(rank, 0))}
	},
	fit: func([]calibrate.Timed) func(*actors.Job, *core.Segment) int64 { return pacedTime }}

// PinnedSet runs for real, each rank on a core of its own.
var PinnedSet = Set{name: "2 ranks, each pinned to a core", calib: fidelityPlan{"1f1b", 1, topology.Grid(2, 1, 1),
	0, 0}, Plans: []fidelityPlan{{"gpipe", 1, topology.Grid(2, 1, 1), 0, 0}, {"zb-1p", 1, topology.Grid(2, 1, 1), 0, 0},
	{"interleaved", 2, topology.Grid(2, 1, 1), 0, 0}, {"zb-v", 2, topology.Grid(2, 1, 1), 0, 0},
	{"1f1b", 1, topology.Grid(1, 2, 1), 0, 0}, {"1f1b", 1, topology.Grid(1, 1, 2), 0, 0}},
	job: func(p fidelityPlan) *layout.Design { return fidelityJob(p, fidelityModel(256, 1024), 128) },
	wrap: func(_ *layout.Layout, rank int, d host.Device) host.Device {
		return &pinned{Device: d, core: rank}
	}, share: true, fit: func(all []calibrate.Timed) func(*actors.Job, *core.Segment) int64 {
		m := &cost.Machine{Efficiency: 1, Stream: 1}
		calibrate.FitRates(m, calibrate.Quietest(all))
		return func(j *actors.Job, s *core.Segment) int64 {
			if j.Kind != actors.RunSegment && j.Kind != actors.UpdatePhase {
				return 1e5
			}
			return cost.Nanoseconds(m.Segment(s.Flops, s.Bytes, s.Calls))
		}
	}}

// fidelityJob is the design of a run that is both measured and simulated; 0 microbatches means 8.
func fidelityJob(p fidelityPlan, m *family.Model, rows int) *layout.Design {
	return &layout.Design{Model: m, Mesh: p.mesh, Schedule: p.schedule, Loops: p.loops, Micro: cmp.Or(p.micro, 8),
		Chunks: p.chunks, Rows: rows, Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}}
}

// Row is a plan as it ran and as it was simulated.
type Row struct {
	Set     string  `json:"set"`
	Plan    string  `json:"plan"`
	Step    float64 `json:"step_s"`
	StepSim float64 `json:"simulated_step_s"`
	Peak    float64 `json:"peak_bytes"`
	PeakSim float64 `json:"simulated_peak_bytes"`
}

// Compare calibrates a set and runs its first n plans both ways; what says how it was calibrated.
func (set *Set) Compare(n int) (what string, rows []Row, err error) {
	plans := slices.Concat([]fidelityPlan{set.calib}, set.Plans[:n])
	var layouts []*layout.Layout
	for _, p := range plans {
		l, err := layout.New(set.job(p))
		if err != nil {
			return "", nil, err
		}
		layouts = append(layouts, l)
	}
	best, all, err := set.rounds(layouts)
	if err != nil {
		return "", nil, err
	}
	price, work, err := set.calibrate(layouts[0], &best[0], all)
	if err != nil {
		return "", nil, err
	}
	what = fmt.Sprintf("%s; calibrated on %v: each job takes %s its work", set.name, set.calib, work)
	for i, p := range plans[1:] {
		x := &best[i+1]
		if err = simulated(layouts[i+1], price, x); err != nil {
			return "", nil, err
		}
		rows = append(rows, Row{Set: set.name, Plan: p.String(), Step: x.step, StepSim: x.stepSim, Peak: x.peak,
			PeakSim: x.peakSim})
	}
	return what, rows, nil
}

// calibrate finds the prices of jobs from the segments of the calibration plan: with them it takes in the
// simulator what it took for real.
func (set *Set) calibrate(l *layout.Layout, x *compared, all []calibrate.Timed) (
	price func(*actors.Job, *core.Segment) int64, what string, err error) {
	plain := set.fit(all)
	with := func(share float64, late int64) func(*actors.Job, *core.Segment) int64 {
		return func(j *actors.Job, s *core.Segment) int64 { return int64(share*float64(plain(j, s))) + late }
	}
	// The time of a run is close to linear in either constant; a second step takes care of the rest.
	share, late := 1.0, 0.0
	for range 2 {
		var now, more compared
		const probe, part = 1e5, 0.01
		if err = simulated(l, with(share, int64(late)), &now); err != nil {
			return nil, "", err
		}
		if set.share {
			err = simulated(l, with(share+part, int64(late)), &more)
		} else {
			err = simulated(l, with(share, int64(late+probe)), &more)
		}
		if err != nil {
			return nil, "", err
		}
		left := (x.step - now.stepSim) / (more.stepSim - now.stepSim)
		if set.share {
			share += part * left
		} else {
			late = max(0, late+probe*left)
		}
	}
	if set.share {
		return with(share, 0), fmt.Sprintf("%.2f times", share), nil
	}
	return with(1, int64(late)), unit.Seconds(late/1e9) + " besides", nil
}

// fidelityModel is a decoder of eight layers, so that it can be cut into many pipeline stages.
func fidelityModel(hidden, vocab int) *family.Model {
	return family.Decoder("llama", family.Spec{Layers: 8, Hidden: hidden, Inter: 2 * hidden, Heads: 4, KV: 4,
		HeadDim: hidden / 4, Vocab: vocab, Eps: 1e-6, Rope: block.Rope{Dim: hidden / 4, Theta: 10000}, InitStd: 0.02})
}

// pacedTime is what a job of a paced device lasts: some milliseconds and its arithmetic at a rate at which a stage
// takes some more. It is far above what the real job takes, so that many ranks share few cores without noticing.
func pacedTime(j *actors.Job, s *core.Segment) int64 {
	if j.Kind != actors.RunSegment && j.Kind != actors.UpdatePhase {
		return 1e5
	}
	return 6e6 + 24*s.Flops
}

// paced is a device whose jobs last their modelled time.
type paced struct {
	host.Device
	lower func(*actors.Job) *core.Segment
}

// Run implements host.Device.
func (p paced) Run(j actors.Job) (host.Result, error) {
	wait := time.NewTimer(time.Duration(pacedTime(&j, p.lower(&j))))
	defer wait.Stop()
	r, err := p.Device.Run(j)
	<-wait.C
	return r, err
}

// compared holds seconds per step and bytes at the peak, as measured and as simulated.
type compared struct{ step, stepSim, peak, peakSim float64 }

// rounds runs plans for real, several times in turns where ranks compute, and keeps the quickest step of
// each: a machine that others share is slow for seconds or minutes, which are not to fall on one plan.
// Segments are those of the first.
func (set *Set) rounds(plans []*layout.Layout) (best []compared, all []calibrate.Timed, err error) {
	runs := 1
	if set.share {
		runs = 4
	}
	best = make([]compared, len(plans))
	for i := range runs {
		for k, l := range plans {
			x, some, err := set.real(l)
			if err != nil {
				return nil, nil, err
			}
			if k == 0 {
				all = append(all, some...)
			}
			if b := &best[k]; i == 0 || x.step < b.step {
				b.step = x.step
			}
			best[k].peak = max(best[k].peak, x.peak)
		}
	}
	return
}

// real runs a plan for real; of the steps after the first the quickest counts, because other programs only
// ever make one slower.
func (set *Set) real(l *layout.Layout) (out compared, all []calibrate.Timed, err error) {
	steps := int64(4)
	if set.share {
		steps = 16 // a quiet one is among them
	}
	run := core.RunLayout{First: 1, Last: steps, LossScale: core.LossScale{Scale: 1},
		LR: func(int64) float64 { return 1e-3 }}
	var mu sync.Mutex
	var times []float64
	var find []func(*actors.Job) *core.Segment
	for _, rl := range rehearsal.Layout(l, run).Ranks {
		find = append(find, segmentOf(rl))
	}
	backend, closeAll, err := host.OpenBackends(kernels.CPU, host.Ranks(len(l.Ranks)), kernels.Options{Threads: 1})
	if err != nil {
		return out, nil, err
	}
	defer closeAll()
	err = host.Run(l, host.RunOptions{Coord: run, Backend: backend,
		Batches: calibrate.RandomBatches(l.Design.Micro, l.Design.Rows, l.Design.Model.Spec.Vocab),
		Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind == "param" {
				l.Design.Model.Init(7, p, g, dst)
			}
			return kind == "param", nil
		}, WrapDevice: func(rank int, d host.Device) host.Device { return set.wrap(l, rank, d) }, Trace: func(
			e host.TraceEvent) {
			r := int(e.Ref - layout.RankRef(0))
			if e.Job.Kind != actors.RunSegment && e.Job.Kind != actors.UpdatePhase || e.Job.Step == 1 ||
				r < 0 || r >= len(find) {
				return
			}
			s := find[r](&e.Job)
			if s.Calls == 0 {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, calibrate.Timed{Flops: float64(s.Flops), Bytes: float64(s.Bytes),
				Calls: float64(s.Calls), Seconds: (e.End - e.Start).Seconds()})
		}, Observe: func(m actors.Message) {
			if m.Text == core.TopicStep {
				times = append(times, core.SummaryOf(m.Values).Time/1e9)
				out.peak = max(out.peak, core.SummaryOf(m.Values).Peak)
			}
		}})
	if err != nil {
		return out, nil, err
	}
	out.step = slices.Min(times[1:])
	return out, all, nil
}

// simulated runs a plan in the simulator.
func simulated(l *layout.Layout, price func(*actors.Job, *core.Segment) int64, out *compared) error {
	run := core.RunLayout{First: 1, Last: 2, LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 {
		return 1e-3
	}}
	p := sim.Prices{Job: func(rank int, j *actors.Job, s *core.Segment) int64 {
		if rank < 0 {
			return 1e5
		}
		return price(j, s)
	}, Link: func(int, int) sim.Link { return sim.Link{Latency: 30e3, Out: -1, In: -1} }}
	res := sim.New(rehearsal.Layout(l, run), p, sim.Options{}).Run()
	if res.Failed != "" || res.Stall != nil {
		return fmt.Errorf("the simulated run ended badly: %s", rehearsal.Why(res))
	}
	out.stepSim = res.Steps[len(res.Steps)-1].Time / 1e9
	for _, b := range res.Peak {
		out.peakSim = max(out.peakSim, float64(b))
	}
	return nil
}

// pinned is a device whose thread of computation stays on one core.
type pinned struct {
	host.Device
	core int
	once sync.Once
}

// Run implements host.Device. Jobs of the compute engine come from one goroutine, which keeps its thread.
func (p *pinned) Run(j actors.Job) (host.Result, error) {
	if j.Engine == actors.Compute {
		p.once.Do(func() {
			runtime.LockOSThread()
			machine.PinThread(p.core)
		})
	}
	return p.Device.Run(j)
}

// segmentOf finds a job's segment as the simulator does.
func segmentOf(l *core.RankLayout) func(*actors.Job) *core.Segment {
	return func(j *actors.Job) *core.Segment {
		var segs []core.Segment
		switch j.Kind {
		case actors.RunSegment:
			segs = l.Lower(j.Action, j.Step < 0, j.Class)
		case actors.UpdatePhase:
			segs = l.Update
		}
		if int(j.Segment) >= len(segs) {
			return &core.Segment{}
		}
		return &segs[j.Segment]
	}
}
