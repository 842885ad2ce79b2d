package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// fidelityPlans are the plans on which simulated and real step times are compared.
var fidelityPlans = []struct {
	schedule string
	loops    int
	mesh     topology.Mesh
}{
	{"1f1b", 1, topology.Mesh{PP: 8, DP: 1, TP: 1}}, {"gpipe", 1, topology.Mesh{PP: 8, DP: 1, TP: 1}}, {"zb-1p", 1, topology.Mesh{PP: 8, DP: 1, TP: 1}},
	{"interleaved", 2, topology.Mesh{PP: 4, DP: 2, TP: 1}}, {"zb-v", 2, topology.Mesh{PP: 4, DP: 2, TP: 1}}, {"1f1b", 1, topology.Mesh{PP: 4, DP: 1, TP: 2}},
}

func fidelityCommand() *cobra.Command {
	c := &cobra.Command{Use: "fidelity", Short: "Compare the simulator with the real host on devices whose jobs last their modelled time", Args: cobra.NoArgs}
	n := c.Flags().Int("plans", len(fidelityPlans), "how many of the plans to run")
	c.RunE = func(*cobra.Command, []string) error {
		t := table.NewWriter()
		t.SetOutputMirror(os.Stdout)
		t.SetStyle(table.StyleLight)
		t.AppendHeader(table.Row{"plan", "step, real", "simulated", "error", "peak, real", "simulated", "error"})
		late := lateness()
		for _, p := range fidelityPlans[:max(0, min(*n, len(fidelityPlans)))] {
			j := &host.Job{Model: fidelityModel(), Mesh: p.mesh, Schedule: p.schedule, Loops: p.loops, Micro: 8, Rows: 16,
				Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}}
			x, err := fidelity(j, late)
			if err != nil {
				return err
			}
			t.AppendRow(table.Row{fmt.Sprintf("%s pp%d dp%d tp%d", p.schedule, p.mesh.PP, p.mesh.DP, p.mesh.TP), seconds(x.step), seconds(x.stepSim), fmt.Sprintf("%+.1f%%", 100*(x.stepSim/x.step-1)),
				tensor.Bytes(int64(x.peak)), tensor.Bytes(int64(x.peakSim)), fmt.Sprintf("%+.1f%%", 100*(x.peakSim/x.peak-1))})
		}
		t.Render()
		return nil
	}
	return c
}

func fidelityModel() *family.Model {
	return family.Decoder("llama", family.Spec{Layers: 8, Hidden: 32, Inter: 64, Heads: 4, KV: 4, HeadDim: 8, Vocab: 64, Eps: 1e-6, Rope: block.Rope{Dim: 8, Theta: 10000}, InitStd: 0.02})
}

// pacedTime is what a job of a paced device lasts: some milliseconds and its arithmetic at a rate at which a stage takes some more.
// It is far above what the real job takes, so that many ranks share few cores without noticing.
func pacedTime(j *actors.Job, s *core.Segment) int64 {
	if j.Kind != actors.RunSegment && j.Kind != actors.UpdatePhase {
		return 1e5
	}
	return 6e6 + 24*s.Flops
}

// lateness is by how much this machine's timers are late on average: the one constant that is calibrated.
func lateness() int64 {
	const n, wait = 20, 6 * time.Millisecond
	began := time.Now()
	for range n {
		<-time.NewTimer(wait).C
	}
	return int64(time.Since(began)-n*wait) / n
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

type compared struct{ step, stepSim, peak, peakSim float64 }

// fidelity runs one job on paced devices and in the simulator; of the real steps the median counts. late is added to
// every simulated job.
func fidelity(j *host.Job, late int64) (compared, error) {
	l, err := host.Plan(j)
	if err != nil {
		return compared{}, err
	}
	const steps = 3
	run := core.RunLayout{First: 1, Last: steps, LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return 1e-3 }}
	var times []float64
	var out compared
	backend := cpu.New(1)
	defer backend.Close()
	err = host.Run(l, host.RunOptions{Coord: run, Backend: func(int) kernels.Backend { return backend }, Batches: randomBatches(j.Micro, j.Rows, 64),
		Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind == "param" {
				j.Model.Init(7, p, g, dst)
			}
			return kind == "param", nil
		},
		WrapDevice: func(rank int, d host.Device) host.Device { return paced{d, segmentOf(l.RankLayout(rank, 0))} },
		Observe: func(m actors.Message) {
			if m.Text == core.TopicStep {
				times = append(times, m.Values[core.StepTime]/1e9)
				out.peak = max(out.peak, m.Values[core.StepPeak])
			}
		}})
	if err != nil {
		return out, err
	}
	slices.Sort(times)
	out.step = times[len(times)/2]
	p := sim.Prices{Job: func(rank int, j *actors.Job, s *core.Segment) int64 {
		if rank < 0 {
			return 1e5
		}
		return pacedTime(j, s) + late
	}, Link: func(int, int) sim.Link { return sim.Link{Latency: 30e3, Out: -1, In: -1} }}
	res := sim.New(simLayout(l, run), p, sim.Options{}).Run()
	if res.Failed != "" || res.Stall != nil {
		return out, fmt.Errorf("the simulated run ended badly: %s", why(res))
	}
	out.stepSim = res.Steps[len(res.Steps)-1].Time / 1e9
	for _, b := range res.Peak {
		out.peakSim = max(out.peakSim, float64(b))
	}
	return out, nil
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
