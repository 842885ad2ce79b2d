package bench

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/process"
	"github.com/lfactor/lfactor/actors/rehearsal"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/planner"
	"github.com/lfactor/lfactor/topology/search"
)

func planBench() *cobra.Command {
	c := &cobra.Command{Use: "plan", Short: "Plans a second: by closed forms, and by simulation", Args: cobra.NoArgs,
		Long: "Looks for the best plan of Qwen2.5-72B on 64 hosts of 8 H100: 8,000 plans by closed forms, the best 64 by simulation of their programs.\nTracing the model's blocks is timed apart."}
	runs := c.Flags().Int("runs", 5, "runs; the median counts")
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		if *runs < 1 {
			return exit.Usagef("--runs %d: want at least 1", *runs)
		}
		var all []planRate
		for range *runs {
			x, err := plansOf()
			if err != nil {
				return err
			}
			all = append(all, x)
		}
		x := all[0]
		median := func(of func(planRate) float64) float64 {
			var v []float64
			for _, a := range all {
				v = append(v, of(a))
			}
			slices.Sort(v)
			return v[len(v)/2]
		}
		x.Trace, x.Closed = median(func(a planRate) float64 { return a.Trace }), median(func(a planRate) float64 { return a.Closed })
		x.Simulate = median(func(a planRate) float64 { return a.Simulate })
		if form != "text" {
			return cli.PrintJSON(x)
		}
		fmt.Printf("%d plans by closed forms in %s (%.0f a second), %d simulated in %s, blocks traced in %s; medians of %d\n", x.Plans, unit.Seconds(x.Closed), float64(x.Plans)/x.Closed,
			x.Simulated, unit.Seconds(x.Simulate), unit.Seconds(x.Trace), *runs)
		return nil
	}
	return c
}

// planRate is the planner's speed.
type planRate struct {
	Plans     int     `json:"plans"`
	Simulated int     `json:"simulated"`
	Trace     float64 `json:"trace_s"`
	Closed    float64 `json:"closed_form_s"`
	Simulate  float64 `json:"simulate_s"`
}

// plansOf times one search.
func plansOf() (out planRate, err error) {
	const text = "model: {name: qwen/2.5-72b, init: random}\ndata: {paths: [none], tokenizer: none, seq_len: 4096}\ntrain: {steps: 1, global_batch: 512, precision: bf16}\n"
	p, err := planner.New(planner.Request{Run: configs.Request{File: "bench.yaml", Text: []byte(text)}, Cluster: "h100", Hosts: "64"})
	if err != nil {
		return out, err
	}
	began := time.Now()
	all, err := p.Space.Enumerate()
	listed := time.Since(began)
	if err != nil {
		return out, err
	}
	all = all[:min(8000, len(all))]
	began = time.Now()
	for i := range all {
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
	out.Plans, out.Closed, began = len(all), (listed + time.Since(began)).Seconds(), time.Now()
	for i := range all[:min(planner.Reranked, len(all))] {
		if err := p.Simulate(&all[i]); err != nil {
			return out, err
		}
		out.Simulated++
	}
	out.Simulate = time.Since(began).Seconds()
	return out, nil
}

func simBench() *cobra.Command {
	c := &cobra.Command{Use: "sim", Short: "Simulated events a second on one core, at 1,024 and 16,384 ranks", Args: cobra.NoArgs,
		Long: "One training step of a described model with every rank an actor: tensor parallelism 8, interleaved pipelines of two stages a rank, 16\nmicrobatches. An event is a message, timer or job end that a behaviour of actors/core handles; memory tracking and trace hash are on."}
	runs := c.Flags().Int("runs", 5, "runs of each size; the median counts")
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		if *runs < 1 {
			return exit.Usagef("--runs %d: want at least 1", *runs)
		}
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		var all []eventRate
		for _, mesh := range []topology.Mesh{topology.Grid(8, 16, 8), topology.Grid(16, 128, 8)} {
			x, err := eventsOf(mesh, *runs)
			if err != nil {
				return err
			}
			all = append(all, x)
		}
		if form != "text" {
			return cli.PrintJSON(all)
		}
		t := cli.TextTable("ranks", "mesh", "events a step", "median of a step", "events/s", "of processor time", "best", "process")
		for _, x := range all {
			t.AppendRow(table.Row{x.Ranks, x.Mesh, x.Events, unit.Seconds(x.Seconds), fmt.Sprintf("%.2f M", x.Rate/1e6), fmt.Sprintf("%.2f M", x.CPURate/1e6), fmt.Sprintf("%.2f M", x.Best/1e6),
				fmt.Sprintf("%.2f GiB", float64(x.PeakRSS)/(1<<30))})
		}
		t.Render()
		return nil
	}
	return c
}

// eventRate is the simulator's speed on one size.
type eventRate struct {
	Ranks   int     `json:"ranks"`
	Mesh    string  `json:"mesh"`
	Events  uint64  `json:"events"`
	Seconds float64 `json:"step_wall_s"`    // median, preparing the run included
	Rate    float64 `json:"events_per_s"`   // of the median
	CPURate float64 `json:"events_per_cpu"` // a second of processor time, of the median
	Best    float64 `json:"best_events_per_s"`
	PeakRSS int64   `json:"peak_rss"`
}

// eventsOf times steps of a described model on a mesh.
func eventsOf(mesh topology.Mesh, runs int) (eventRate, error) {
	out := eventRate{Ranks: mesh.Size(), Mesh: fmt.Sprintf("tp%d pp%d dp%d", mesh.Len(topology.TP), mesh.Len(topology.PP), mesh.Replicas())}
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
	var wall, cpu []float64
	for i := range runs + 1 {
		runtime.GC()
		began, spent := time.Now(), process.ProcessorTime()
		r := sim.New(l, describedPrices(), sim.Options{Seed: 1, Whole: true}).Run()
		if r.Failed != "" || r.Stall != nil || len(r.Steps) != 1 {
			return out, fmt.Errorf("the simulated run ended badly: %s", rehearsal.Why(r))
		}
		if out.Events = r.Events; i > 0 { // the first run warms up
			wall, cpu = append(wall, time.Since(began).Seconds()), append(cpu, (process.ProcessorTime()-spent).Seconds())
		}
	}
	slices.Sort(wall)
	slices.Sort(cpu)
	n := float64(out.Events)
	out.Seconds, out.Rate, out.Best, out.PeakRSS = wall[runs/2], n/wall[runs/2], n/wall[0], process.PeakRSS()
	if c := cpu[runs/2]; c > 0 {
		out.CPURate = n / c
	}
	return out, nil
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
		},
		Update: []core.Segment{{Comms: []core.Comm{{Group: sim.GroupDP, Bytes: 1 << 24}}}, {Ready: true}, {Flops: 100}}}, nil
}

func describedPrices() sim.Prices {
	return sim.Prices{Job: func(_ int, _ *actors.Job, s *core.Segment) int64 { return s.Flops + 10 },
		Link: func(from, to int) sim.Link {
			return sim.Link{Latency: 3000, PerByte: 0.01, Out: int32(2 * max(0, from)), In: int32(2*max(0, to) + 1)}
		},
		Collective: func(ranks []int, bytes int64) int64 { return 2000 + int64(len(ranks))*100 + bytes/100 }}
}
