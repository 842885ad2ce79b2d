package sim_test

import (
	"fmt"
	"testing"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// described is a run of many devices: forward and backward have layers of tensor-parallel collectives.
func described(tb testing.TB, mesh topology.Mesh, micro, loops, layers int, steps int64) *sim.Description {
	name := "interleaved"
	if loops == 1 {
		name = "1f1b"
	}
	p, err := schedule.Build(name, schedule.Shape{Ranks: mesh.Len(topology.PP), Micro: micro, Loops: loops})
	if err != nil {
		tb.Fatal(err)
	}
	pass := func(flops int64) (out []core.Segment) {
		for range 2 * layers {
			out = append(out, core.Segment{Flops: flops,
				Comms: []core.Comm{{Group: sim.GroupTP, Bytes: 1 << 20}}})
		}
		return append(out, core.Segment{Flops: flops})
	}
	f, b := pass(1000), pass(2000)
	return &sim.Description{Mesh: mesh, Program: p, PortBytes: 1 << 20, Steps: steps,
		Passes: func(a plan.Action) []core.Segment {
			if a.Kind == plan.F {
				return f
			}
			return b
		},
		Update: []core.Segment{{Comms: []core.Comm{{Group: sim.GroupDP, Bytes: 1 << 24}}}, {Ready: true},
			{Flops: 100}}}
}

func modelled() sim.Prices {
	return sim.Prices{Job: func(_ int, _ *actors.Job, s *core.Segment) int64 { return s.Flops + 10 },
		Link: func(from, to int) sim.Link {
			return sim.Link{Latency: 3000, PerByte: 0.01, Out: int32(2 * max(0, from)),
				In: int32(2*max(0, to) + 1)}
		},
		Collective: func(ranks []int, bytes int64, _ bool) int64 {
			return 2000 + int64(len(ranks))*100 + bytes/100
		}}
}

// BenchmarkEvents is the simulator's speed with memory tracking and trace hash: events a second on one core.
func BenchmarkEvents(b *testing.B) {
	for _, mesh := range []topology.Mesh{topology.Grid(8, 16, 8), topology.Grid(16, 128, 8)} {
		b.Run(fmt.Sprintf("%d ranks", mesh.Size()), func(b *testing.B) {
			l := described(b, mesh, 16, 2, 1, 1).Layout()
			l.Memory.Foot = func(_ int, j *actors.Job) (int64, int64) {
				if j.Action.Kind == plan.F {
					return 1 << 20, 1 << 19
				}
				return 1 << 20, 0
			}
			var events uint64
			for b.Loop() {
				r := sim.New(l, modelled(), sim.Options{Seed: 1, Whole: true, Each: inTurn}).Run()
				if r.Failed != "" || r.Stall != nil || len(r.Steps) != 1 {
					b.Fatal(r.Failed, r.Stall)
				}
				events += r.Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}
