package rates

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/planner"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/machine"
	"github.com/lfactor/lfactor/topology/search"
)

// PlanRate is the planner's speed.
type PlanRate struct {
	Listed    int     `json:"listed"` // plans of the space
	List      float64 `json:"list_s"`
	Plans     int     `json:"plans"`
	Simulated int     `json:"simulated"`
	Trace     float64 `json:"trace_s"`
	Closed    float64 `json:"closed_form_s"`
	Simulate  float64 `json:"simulate_s"`
}

// Plans times one search.
func Plans(see See) (out PlanRate, err error) {
	const text = "model: {name: qwen/2.5-72b, init: random}\ndata: {paths: [none], tokenizer: none, " +
		"seq_len: 4096}\ntrain: {steps: 1, global_batch: 512, precision: bf16}\n"
	p, err := planner.New(planner.Request{Run: configs.Request{File: "bench.yaml", Text: []byte(text)},
		Cluster: "h100", Hosts: "64"})
	if err != nil {
		return out, err
	}
	began := time.Now()
	all, err := p.Space.Enumerate()
	out.Listed, out.List = len(all), time.Since(began).Seconds()
	if err != nil {
		return out, err
	}
	all = all[:min(8000, len(all))]
	began = time.Now()
	for i := range all {
		see.tell("tracing stages of plans", i, len(all))
		if _, err := p.Space.StagesOf(&all[i]); err != nil {
			return out, err
		}
	}
	out.Trace, began = time.Since(began).Seconds(), time.Now()
	for i := range all {
		if err := p.Space.Estimate(&all[i]); err != nil {
			return out, err
		}
	}
	search.Rank(all)
	out.Plans, out.Closed, began = len(all), time.Since(began).Seconds(), time.Now()
	for i := range all[:min(planner.Reranked, len(all))] {
		see.tell("simulating the best plans", i, planner.Reranked)
		if err := p.Simulate(&all[i]); err != nil {
			return out, err
		}
		out.Simulated++
	}
	out.Simulate = time.Since(began).Seconds()
	return out, nil
}

// See hears how far a measurement is: what is measured, how much of it, and of how much. Nil is nobody.
type See func(what string, done, all int)

func (s See) tell(what string, done, all int) {
	if s != nil {
		s(what, done, all)
	}
}

// EventRate is the simulator's speed on one size.
type EventRate struct {
	Ranks   int     `json:"ranks"`
	Mesh    string  `json:"mesh"`
	Events  uint64  `json:"events"`
	Seconds float64 `json:"step_wall_s"`    // median, preparing the run included
	Rate    float64 `json:"events_per_s"`   // of the median
	CPURate float64 `json:"events_per_cpu"` // a second of processor time, of the median
	Best    float64 `json:"best_events_per_s"`
	Bare    float64 `json:"bare_heap_events_per_s"` // median of turns with the steps
	// median of rate by the bare heap's of the same turn
	Ratio float64 `json:"ratio_to_bare_heap"`
	Cores int     `json:"cores"`                  // that all parts of a run had below
	All   float64 `json:"events_per_s_all_cores"` // of the median, likewise
	// that a step stands for in which ranks that do the same run once
	Folded  float64 `json:"folded_events_per_s"`
	Ran     int     `json:"folded_ranks"`
	PeakRSS int64   `json:"peak_rss"`
}

// EventMesh is the mesh of so many ranks: tensor parallelism 8, pipelines of 8 ranks, of 16 beyond 1,024.
func EventMesh(ranks int) (topology.Mesh, error) {
	pp := 8
	if ranks > 1024 {
		pp = 16
	}
	if ranks < 8*pp || ranks%(8*pp) != 0 || ranks > 1<<17 {
		return topology.Mesh{}, fmt.Errorf("%d ranks: want a multiple of %d up to %d", ranks, 8*pp, 1<<17)
	}
	return topology.Grid(pp, ranks/(8*pp), 8), nil
}

// Events times steps of a described model on a mesh, by turns with a bare heap: on one processor, on all, and folded.
// The first turn, which is not counted, goes through all events in one queue too, and all must be the same.
func Events(mesh topology.Mesh, runs int, see See) (EventRate, error) {
	out := EventRate{Ranks: mesh.Size(), Mesh: fmt.Sprintf("tp%d pp%d dp%d", mesh.Len(topology.TP),
		mesh.Len(topology.PP), mesh.Replicas())}
	d, err := describedStep(mesh)
	if err != nil {
		return out, err
	}
	l := d.Layout()
	l.Memory.Foot = func(_ int, j *actors.Job) (int64, int64) {
		if j.Action.Kind == plan.F {
			return 1 << 20, 1 << 19
		}
		return 1 << 20, 0
	}
	out.Cores = runtime.NumCPU()
	var wall, cpu, all, bare, ratio, folded []float64
	for i := range runs + 1 {
		see.tell(fmt.Sprintf("simulating a step of %d ranks", out.Ranks), i, runs+1)
		r, took, spent, err := eventStep(l, 1, sim.Options{Each: rehearsal.Cores})
		if err != nil {
			return out, err
		}
		wide, shared, _, err := eventStep(l, out.Cores, sim.Options{Each: rehearsal.Cores})
		if err != nil {
			return out, err
		}
		if i == 0 {
			whole, _, _, err := eventStep(l, 1, sim.Options{})
			if err != nil {
				return out, err
			}
			if r.Hash != whole.Hash || r.Hash != wide.Hash {
				return out, fmt.Errorf("events differ: %016x in one queue, %016x in parts, %016x on %d cores",
					whole.Hash, r.Hash, wide.Hash, out.Cores)
			}
		}
		short, quick, _, err := eventStep(l, 1, sim.Options{Fold: true})
		if err != nil {
			return out, err
		}
		if short.Events != r.Events || short.Steps[0] != r.Steps[0] {
			return out, fmt.Errorf("a folded step is another: %v and %v, %d and %d events", short.Steps, r.Steps,
				short.Events, r.Events)
		}
		heap := Bare(out.Ranks, int(min(r.Events, 4e6)))
		out.Events, out.Ran = r.Events, short.Ran
		if i > 0 { // the first run warms up
			n := float64(out.Events)
			wall, cpu, bare = append(wall, took), append(cpu, spent), append(bare, heap)
			ratio, folded = append(ratio, n/took/heap), append(folded, n/quick)
			all = append(all, n/shared)
		}
	}
	n := float64(out.Events)
	out.Seconds = middle(wall)
	out.Rate, out.Best, out.PeakRSS = n/out.Seconds, n/slices.Min(wall), machine.PeakRSS()
	out.Bare, out.Ratio, out.Folded = middle(bare), middle(ratio), middle(folded)
	out.All = middle(all)
	if c := middle(cpu); c > 0 {
		out.CPURate = n / c
	}
	return out, nil
}

// middle is the median; of an even number the upper.
func middle(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// eventStep simulates one step on so many cores: what it showed, and seconds of wall and processor time.
func eventStep(l *sim.Layout, cores int, o sim.Options) (r *sim.Result, wall, cpu float64, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	runtime.GC()
	o.Seed, o.Whole = 1, true
	began, spent := time.Now(), machine.ProcessorTime()
	r = sim.New(l, describedPrices(), o).Run()
	wall, cpu = time.Since(began).Seconds(), (machine.ProcessorTime() - spent).Seconds()
	if r.Failed != "" || r.Stall != nil || len(r.Steps) != 1 {
		err = fmt.Errorf("the simulated run ended badly: %s", rehearsal.Why(r))
	}
	return
}

// describedStep is a step of interleaved pipelines whose passes have two all-reduces over tensor parallelism.
func describedStep(mesh topology.Mesh) (*sim.Description, error) {
	p, err := schedule.Build("interleaved", schedule.Shape{Ranks: mesh.Len(topology.PP), Micro: 16, Loops: 2})
	if err != nil {
		return nil, err
	}
	pass := func(flops int64) []core.Segment {
		comm := []core.Comm{{Group: sim.GroupTP, Bytes: 1 << 20}}
		return []core.Segment{{Flops: flops, Comms: comm}, {Flops: flops, Comms: comm}, {Flops: flops}}
	}
	f, b := pass(1000), pass(2000)
	return &sim.Description{Mesh: mesh, Program: p, PortBytes: 1 << 20, Steps: 1,
		Passes: func(a plan.Action) []core.Segment {
			if a.Kind == plan.F {
				return f
			}
			return b
		}, Update: []core.Segment{{Comms: []core.Comm{{Group: sim.GroupDP, Bytes: 1 << 24}}}, {Ready: true},
			{Flops: 100}}}, nil
}

// describedPrices are made-up prices with latency and shared links, so that the measured rate of
// simulation covers all the code of a real one.
func describedPrices() sim.Prices {
	return sim.Prices{Job: func(_ int, _ *actors.Job, s *core.Segment) int64 { return s.Flops + 10 },
		Link: func(from, to int) sim.Link {
			return sim.Link{Latency: 3000, PerByte: 0.01, Out: int32(2 * max(0, from)), In: int32(2*max(0, to) + 1)}
		}, Collective: func(ranks []int, bytes int64, _ bool) int64 {
			return 2000 + int64(len(ranks))*100 + bytes/100
		}}
}
