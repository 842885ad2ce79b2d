package sim_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

func tinyLayout(t *testing.T, name string, loops int, mesh topology.Mesh, zero int,
	overlap bool) *layout.Layout {
	m := family.Decoder("llama", family.Spec{Layers: 4, Hidden: 16, Inter: 24, Heads: 4, KV: 2, HeadDim: 4,
		Vocab: 32, Eps: 1e-6,
		Rope: block.Rope{Dim: 4, Theta: 10000}, InitStd: 0.2, Tie: true})
	l, err := layout.New(&layout.Design{Model: m, Mesh: mesh, Zero: zero, Schedule: name, Loops: loops,
		Micro: 8 / mesh.Replicas(), Rows: 8, Overlap: overlap,
		Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}})
	require.NoError(t, err)
	return l
}

// simLayout hands the host's own layouts of ranks and loaders to the simulator.
func simLayout(l *layout.Layout, run core.RunLayout) *sim.Layout {
	out := &sim.Layout{Coordinator: layout.CoordinatorRef, Observer: layout.ObserverRef, Run: run,
		BatchBytes: 100, Names: l.Name}
	for r := range l.World() {
		out.Ranks, out.RankRefs = append(out.Ranks, l.RankLayout(r, 0)),
			append(out.RankRefs, layout.RankRef(r))
	}
	for dp := range l.Design.Mesh.Replicas() {
		ll := &core.LoaderLayout{Coordinator: layout.CoordinatorRef, Ahead: 1, Last: run.Last}
		for r, part := range l.Ranks {
			if part.Coord.DP == dp {
				ll.Ranks = append(ll.Ranks, layout.RankRef(r))
			}
		}
		out.Loaders, out.LoaderRefs = append(out.Loaders, ll), append(out.LoaderRefs, l.LoaderRef(0, dp))
	}
	return out
}

// record keeps what happened: messages by edge (sender, receiver and kind), jobs by actor.
type record struct {
	mu    sync.Mutex
	edges map[string][]string
	jobs  map[actors.Ref][]string
}

func newRecord() *record {
	return &record{edges: map[string][]string{}, jobs: map[actors.Ref][]string{}}
}

func (r *record) message(to actors.Ref, m *actors.Message) {
	if m.Kind == actors.Done || m.Kind == actors.Started || m.Kind == actors.Halt || m.Kind == actors.Report {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := fmt.Sprintf("%d→%d kind %d", m.From, to, m.Kind)
	r.edges[key] = append(r.edges[key], fmt.Sprintf("step %d %v segment %d comm %d member %d port %d",
		m.Step, m.Action, m.Segment, m.Comm, m.Member, m.Port))
}

func (r *record) job(ref actors.Ref, j *actors.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs[ref] = append(r.jobs[ref], fmt.Sprintf("kind %d step %d %v segment %d inputs %d", j.Kind, j.Step,
		j.Action, j.Segment, len(j.In)))
}

// TestSameAsHost runs one layout with the real host and with the simulator: every edge carries the same
// messages in the same order, and every actor runs the same jobs in the same order.
func TestSameAsHost(t *testing.T) {
	for _, c := range []struct {
		name  string
		loops int
		mesh  topology.Mesh
		zero  int
		late  bool // communications are awaited at their first use
	}{
		{"1f1b", 1, topology.Grid(2, 2, 2), 1, false},
		{"1f1b", 1, topology.Grid(2, 2, 2), 3, true},
		{"interleaved", 2, topology.Grid(2, 1, 2), 0, true},
		{"zb-v", 2, topology.Grid(2, 2, 1), 2, true},
		{"dualpipev", 2, topology.Grid(2, 1, 1), 0, false},
		{"zb-2p", 1, topology.Grid(4, 1, 1), 0, false},
	} {
		t.Run(fmt.Sprintf("%s zero%d overlap=%v", c.name, c.zero, c.late), func(t *testing.T) {
			l := tinyLayout(t, c.name, c.loops, c.mesh, c.zero, c.late)
			run := core.RunLayout{First: 1, Last: 3, EvalEvery: 2, EvalSteps: 1,
				LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return 0.01 }}
			real := newRecord()
			require.NoError(t, host.Run(l, host.RunOptions{Coord: run, Backend: func(int) kernels.Backend {
				return ref.New()
			}, Batches: batches(c.mesh.Replicas()),
				Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
					if kind == "param" {
						l.Design.Model.Init(7, p, g, dst)
					}
					return kind == "param", nil
				},
				Filter: func(to actors.Ref, m actors.Message) bool { real.message(to, &m); return true },
				Trace:  func(e host.TraceEvent) { real.job(e.Ref, &e.Job) }}))
			for seed := range uint64(3) {
				simulated := newRecord()
				res := sim.New(simLayout(l, run), flat(50), sim.Options{Seed: seed, Jitter: 0.3,
					See:  func(e sim.Event) { simulated.message(e.To, e.M) },
					Span: func(x sim.Span) { simulated.job(x.Ref, x.Job) }}).Run()
				require.Empty(t, res.Failed)
				require.Nil(t, res.Stall)
				require.Zero(t, res.Leaked)
				require.Len(t, res.Steps, 3)
				require.NotEmpty(t, real.jobs)
				require.Equal(t, real.edges, simulated.edges)
				require.Equal(t, real.jobs, simulated.jobs)
			}
		})
	}
}

// flat prices every job with ns and links with a tenth.
func flat(ns int64) sim.Prices {
	return sim.Prices{Job: func(int, *actors.Job, *core.Segment) int64 { return ns },
		Link: func(from, to int) sim.Link { // with a port, so that a large message is not overtaken
			return sim.Link{Latency: ns / 10, PerByte: 0.01, Out: int32(2 * max(0, from)),
				In: int32(2*max(0, to) + 1)}
		},
		Collective: func([]int, int64, bool) int64 { return ns / 5 }}
}

func batches(dp int) host.BatchFunc {
	return func(step int64, d int) (out []family.Microbatch, err error) {
		for i := range 8 / dp {
			r := rand.New(rand.NewPCG(uint64(step), uint64(d*8+i)))
			mb := family.Microbatch{Cu: []int32{0, 8}}
			for k := range 8 {
				mb.IDs, mb.Targets = append(mb.IDs, int32(r.IntN(32))), append(mb.Targets, int32(r.IntN(32)))
				mb.Positions, mb.Weights = append(mb.Positions, int32(k)), append(mb.Weights, 1.0/64)
			}
			out = append(out, mb)
		}
		return
	}
}
