package fidelity

import (
	"fmt"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/calibrate"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
)

// Overlapped is a plan without and with overlapped microbatches, as it ran on paced devices and links, and as
// it was simulated.
type Overlapped struct {
	Plan string      `json:"plan"`
	Real [2]Exchange `json:"real"`
	Sim  [2]Exchange `json:"simulated"`
}

// Exchange is a step in seconds, and the mean over its ranks of what they waited for exchanges inside passes.
type Exchange struct {
	Step    float64 `json:"step_s"`
	Exposed float64 `json:"exposed_comm_s"`
}

// Gain is how much shorter a step without overlap would have to be, as a share of the step with it.
func Gain(x [2]Exchange) float64 { return x[0].Step/x[1].Step - 1 }

// Hidden is the share of the wait for exchanges that overlap takes away.
func Hidden(x [2]Exchange) float64 { return 1 - x[1].Exposed/x[0].Exposed }

// overlapPlans share eight experts a layer out over eight ranks.
var overlapPlans = []struct {
	name          string
	pp, ep, loops int
}{{"1f1b", 1, 8, 1}, {"1f1b", 2, 4, 1}, {"interleaved", 2, 4, 2}}

// OverlapPaced runs plans of a small mixture on 8 ranks of paced devices, whose messages take as long as on
// links of a given bandwidth in bytes a second, and in the simulator.
func OverlapPaced(bandwidth float64) (out []Overlapped, err error) {
	for n, p := range overlapPlans {
		x := Overlapped{Plan: fmt.Sprintf("%s, pp=%d dp=%d ep=%d", p.name, p.pp, 8/p.pp, p.ep)}
		if err := x.measure(bandwidth, true, overlapJob(n, false), overlapJob(n, true)); err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// overlapJob is one of the plans.
func overlapJob(n int, pairs bool) *layout.Design {
	p := overlapPlans[n]
	spec := family.Spec{Layers: 4, Hidden: 32, Inter: 64, Heads: 4, KV: 4, HeadDim: 8, Vocab: 64, Eps: 1e-6,
		Rope: block.Rope{Dim: 8, Theta: 10000}, InitStd: 0.02,
		MLPs:    []string{"experts", "experts", "experts", "experts"},
		Experts: block.Experts{Inter: 64, Experts: 8, Each: 2, Router: routing.Router{Normalize: true}}}
	return &layout.Design{Model: family.Decoder("qwen3_moe", spec), Schedule: p.name,
		Mesh: layout.MeshOf(&configs.Plan{PP: p.pp, DP: 8 / p.pp, TP: 1, EP: p.ep, ETP: 1}), Loops: p.loops, Micro: 8,
		Rows: pacedRows, Pairs: pairs, Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}}
}

// measure runs both jobs in the simulator, and for real if that is wanted.
func (x *Overlapped) measure(bandwidth float64, real bool, jobs ...*layout.Design) error {
	for i, j := range jobs {
		l, err := layout.New(j)
		if err != nil {
			return err
		}
		links := &pacedLinks{l: l, perByte: 1e9 / bandwidth, late: map[letter]bool{}}
		if real {
			if x.Real[i], err = links.run(); err != nil {
				return fmt.Errorf("%s: %w", x.Plan, err)
			}
		}
		if x.Sim[i], err = links.simulate(); err != nil {
			return fmt.Errorf("%s: %w", x.Plan, err)
		}
	}
	return nil
}

// pacedLinks delay messages between ranks by as long as their planned size takes.
type pacedLinks struct {
	l       *layout.Layout
	perByte float64 // nanoseconds
	mu      sync.Mutex
	sys     *host.System
	late    map[letter]bool // messages that have taken their time
	last    map[actors.Ref]time.Duration
	exposed map[actors.Ref]time.Duration
}

// letter tells the messages of a run apart.
type letter struct {
	from, to actors.Ref
	kind     actors.Kind
	step     int64
	action   string
	seg      int32
	comm     int32
	port     int32
}

// linkLatency is what the shortest message takes, in nanoseconds.
const linkLatency = 30e3

// takes is how long a message is under way, 0 for what carries no tensors.
func (p *pacedLinks) takes(m *actors.Message) time.Duration {
	bytes := int64(0)
	switch m.Kind {
	case actors.Part:
		rl := p.l.RankLayout(int(m.From-layout.RankRef(0)), 0)
		j := actors.Job{Kind: actors.RunSegment, Action: m.Action, Segment: m.Segment, Step: m.Step}
		if !m.Action.Kind.Micro() {
			j.Kind = actors.UpdatePhase
		}
		c := &segmentOf(rl)(&j).Comms[m.Comm]
		if bytes = c.Bytes; c.Shift == 0 {
			bytes /= int64(len(rl.Groups[c.Group].Members))
		}
	case actors.Activation, actors.Cotangent:
		bytes = p.l.Ports[m.Port].Bytes
	default:
		return 0
	}
	return time.Duration(linkLatency + p.perByte*float64(bytes))
}

// filter holds a message back and sends it when its time has passed.
func (p *pacedLinks) filter(to actors.Ref, m actors.Message) bool {
	d := p.takes(&m)
	if d == 0 {
		return true
	}
	k := letter{from: m.From, to: to, kind: m.Kind, step: m.Step, action: m.Action.String(), seg: m.Segment,
		comm: m.Comm, port: m.Port}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.late[k] {
		delete(p.late, k)
		return true
	}
	m.Payload.Retain() // who drops the message gives one reference back
	time.AfterFunc(d, func() {
		p.mu.Lock()
		p.late[k] = true
		sys := p.sys
		p.mu.Unlock()
		sys.Send(to, m)
	})
	return false
}

// trace adds up what ranks wait before later segments of passes in the last step, as the simulator does.
func (p *pacedLinks) trace(last int64) func(host.TraceEvent) {
	return func(e host.TraceEvent) {
		if e.Job.Kind != actors.RunSegment || e.Job.Step != last {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if e.Job.Segment > 0 {
			p.exposed[e.Ref] += e.Start - p.last[e.Ref]
		}
		p.last[e.Ref] = e.End
	}
}

// run trains two steps, of which the second counts.
func (p *pacedLinks) run() (x Exchange, err error) {
	const last = 2
	p.last, p.exposed = map[actors.Ref]time.Duration{}, map[actors.Ref]time.Duration{}
	backend, closeAll, err := host.OpenBackends(kernels.CPU, host.Ranks(len(p.l.Ranks)), kernels.Options{Threads: 1})
	if err != nil {
		return x, err
	}
	defer closeAll()
	err = host.Run(p.l, host.RunOptions{Coord: twoSteps(), Backend: backend,
		Batches: calibrate.RandomBatches(p.l.Design.Micro, p.l.Design.Rows, p.l.Design.Model.Spec.Vocab),
		Fill: func(kind string, q *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind == "param" {
				p.l.Design.Model.Init(7, q, g, dst)
			}
			return kind == "param", nil
		}, WrapDevice: func(rank int, d host.Device) host.Device {
			return paced{d, segmentOf(p.l.RankLayout(rank, 0))}
		}, Filter: p.filter, Trace: p.trace(last), OnSystem: func(s *host.System) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.sys = s
		}, Observe: func(m actors.Message) {
			if m.Text == core.TopicStep && m.Step == last {
				x.Step = core.SummaryOf(m.Values).Time / 1e9
			}
		}})
	for _, d := range p.exposed {
		x.Exposed += d.Seconds() / float64(len(p.l.Ranks))
	}
	return x, err
}

// twoSteps is a run of two steps, the least that shows what one step leaves for the next to wait for.
func twoSteps() core.RunLayout {
	return core.RunLayout{First: 1, Last: 2, LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 {
		return 1e-3
	}}
}

// simulate runs the plan in the simulator, with the same durations.
func (p *pacedLinks) simulate() (x Exchange, err error) {
	prices := sim.Prices{Job: func(rank int, j *actors.Job, s *core.Segment) int64 {
		if rank < 0 {
			return 1e5
		}
		return pacedTime(j, s)
	}, Link: func(from, to int) sim.Link {
		if from < 0 || to < 0 {
			return sim.Link{Latency: linkLatency, Out: -1, In: -1}
		}
		return sim.Link{Latency: linkLatency, PerByte: p.perByte, Out: -1, In: -1}
	}}
	res := sim.New(rehearsal.Layout(p.l, twoSteps()), prices, sim.Options{}).Run()
	if res.Failed != "" || res.Stall != nil {
		return x, fmt.Errorf("the simulated run ended badly: %s", rehearsal.Why(res))
	}
	for _, a := range res.Ranks {
		x.Exposed += float64(a.Comm) / 1e9 / float64(len(res.Ranks))
	}
	x.Step = res.Steps[len(res.Steps)-1].Time / 1e9
	return x, nil
}
