package fidelity

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/towers"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// encoderLayout is one way to place a vision encoder beside a decoder's pipeline.
type encoderLayout struct {
	name string
	plan func(tp int) *layout.PartPlan
	// every tensor-parallel rank encodes the whole, as frameworks do that cannot send features: simulated only
	alone bool
}

// EncoderLayouts go from what every framework does to what message routing allows.
var EncoderLayouts = []encoderLayout{
	{"colocated, every tp rank encodes the same", func(tp int) *layout.PartPlan {
		return &layout.PartPlan{TP: tp, Over: layout.OverFirst}
	}, true},
	{"colocated, encoder tp = decoder tp", func(tp int) *layout.PartPlan {
		return &layout.PartPlan{TP: tp, Over: layout.OverFirst}
	}, false},
	{"hetero-DP over the first stage's tp group", func(int) *layout.PartPlan {
		return &layout.PartPlan{TP: 1, Over: layout.OverFirst}
	}, false},
	{"full hetero-DP over tp × pp", func(int) *layout.PartPlan {
		return &layout.PartPlan{TP: 1, Over: layout.OverAll}
	}, false},
	{"full hetero-DP, decoupled: in the bubbles", func(int) *layout.PartPlan {
		return &layout.PartPlan{TP: 1, Over: layout.OverAll, Fill: true}
	}, false},
}

// EncoderResult is both tables; times in seconds.
type EncoderResult struct {
	Simulated []encoderStep  `json:"simulated"`
	Paced     []encoderPaces `json:"paced,omitempty"`
}

type encoderStep struct {
	Layout string  `json:"layout"`
	Step   float64 `json:"step"`
	Rate   float64 `json:"tokens_per_second_a_device"`
	Bubble float64 `json:"bubble"`
	Peak   int64   `json:"peak"`
}

type encoderPaces struct {
	Layout    string  `json:"layout"`
	Step      float64 `json:"step"`
	Simulated float64 `json:"simulated"`
}

// EncoderRows are tokens, and patches of images, of a microbatch of the first table.
const EncoderRows = 32 << 10

// EncoderAtScale simulates the layouts with a published model at tp 4, pp 2, dp 4.
func EncoderAtScale(cluster, model, dir string, micro int, see See) (out []encoderStep, err error) {
	m, err := rehearsal.Machine(cluster)
	if err != nil {
		return nil, err
	}
	c, err := configs.Published(model)
	if err != nil {
		return nil, err
	}
	mesh := topology.Grid(2, 4, 4)
	if n := mesh.Size(); n > m.Devices*m.Hosts {
		return nil, exit.Usagef("cluster %s has %d devices, the comparison takes %d", cluster, m.Devices*m.Hosts, n)
	}
	for i, e := range EncoderLayouts {
		see.tell("simulating layouts at scale: "+e.name, i, len(EncoderLayouts))
		fam, err := family.Build(c, EncoderRows)
		if err != nil {
			return nil, err
		}
		j := &layout.Design{Model: fam, Mesh: mesh, Parts: layout.TowerParts(fam, e.plan(mesh.Len(topology.TP))),
			Zero: 1, SeqParallel: true, Schedule: "1f1b", Micro: micro, Rows: EncoderRows,
			Dims: map[string]int{block.Patches: EncoderRows, block.Frames: 8}, Recompute: grad.RecomputeFull,
			DType: tensor.BF16, Optim: optim.Config{Name: "adamw"}}
		rehearsal.PriceOn(j, m)
		l, err := layout.New(j)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		run := core.RunLayout{First: 1, Last: 2, LossScale: core.LossScale{Scale: 1},
			LR: func(int64) float64 { return 0 }}
		price := rehearsal.Prices(m)
		// collectives as in lfactor sim: what the machine's algorithms take, one event a member
		price.Sends = nil
		if e.alone {
			price.Job = redundant(price.Job, mesh.Len(topology.TP))
		}
		lines := rehearsal.Timeline{Layout: l, Last: run.Last}
		res := sim.New(rehearsal.Layout(l, run), price, sim.Options{Span: lines.See, Whole: true}).Run()
		if res.Failed != "" || res.Stall != nil {
			return nil, fmt.Errorf("%s: the simulated run ended badly: %s", e.name, rehearsal.Why(res))
		}
		if dir != "" {
			if err := lines.Files(dir, fmt.Sprintf("encoder-%d", i+1)); err != nil {
				return nil, err
			}
		}
		s := encoderStep{Layout: e.name, Step: res.Steps[len(res.Steps)-1].Time / 1e9,
			Bubble: longestBubble(res), Peak: slices.Max(res.Peak)}
		s.Rate = float64(EncoderRows*micro*mesh.Replicas()) / s.Step / 32
		out = append(out, s)
	}
	return out, nil
}

// redundant lets the encoder's jobs take what they take without tensor parallelism.
func redundant(job func(int, *actors.Job, *core.Segment) int64, tp int) func(int, *actors.Job, *core.Segment) int64 {
	return func(rank int, j *actors.Job, s *core.Segment) int64 {
		if j.Kind == actors.RunSegment && j.Action.Stage == 0 {
			whole := *s
			whole.Flops, whole.Bytes = s.Flops*int64(tp), s.Bytes*int64(tp)
			s = &whole
		}
		return job(rank, j, s)
	}
}

// longestBubble is the idle share of the longest rank's span, as the tables of Zero Bubble count it.
func longestBubble(res *sim.Result) float64 {
	var busy, span int64 = 0, 1
	for _, a := range res.Ranks {
		busy, span = max(busy, a.Busy), max(span, a.Span)
	}
	return 1 - float64(busy)/float64(span)
}

// pacedVision is a small composed model whose tower takes about as long as its decoder's stages.
func pacedVision() (*family.Model, error) {
	c, err := configs.Published("qwen-vl/3-2b")
	if err != nil {
		return nil, err
	}
	c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.Intermediate, c.Vocab = 32, 6, 4, 4, 8, 64, 64
	c.RopeScaling.Sections = []int{2, 1, 1}
	v := &c.Vision
	v.Depth, v.Hidden, v.Inter, v.Heads, v.Patch, v.Temporal = 4, 32, 64, 2, 4, 1
	towers.Table.Set(&c, towers.TableKeys{Rows: 16})
	towers.Deepstack.Set(&c, towers.DeepstackKeys{Layers: []int{1}})
	return family.Build(c, 32)
}

const pacedRows, pacedPatches = 32, 64

// See hears how far a comparison is: what is compared, how much of it, and of how much. Nil is nobody.
type See func(what string, done, all int)

func (s See) tell(what string, done, all int) {
	if s != nil {
		s(what, done, all)
	}
}

// EncoderPaced runs the layouts on 8 ranks of paced devices and in the simulator.
func EncoderPaced(see See) (out []encoderPaces, err error) {
	m, err := pacedVision()
	if err != nil {
		return nil, err
	}
	mesh := topology.Grid(4, 1, 2)
	for i, e := range EncoderLayouts {
		if e.alone {
			continue
		}
		see.tell("running layouts on paced devices: "+e.name, i, len(EncoderLayouts))
		l, err := layout.New(&layout.Design{Model: m, Mesh: mesh,
			Parts: layout.TowerParts(m, e.plan(mesh.Len(topology.TP))), Schedule: "1f1b", Micro: 8,
			Rows: pacedRows, Dims: map[string]int{block.Patches: pacedPatches, block.Frames: 1},
			Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		var x compared
		if x.step, err = pacedRun(l); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		if err := simulated(l, pacedTime, &x); err != nil {
			return nil, err
		}
		out = append(out, encoderPaces{e.name, x.step, x.stepSim})
	}
	return out, nil
}

// pacedRun is the quickest step of a real run on paced devices.
func pacedRun(l *layout.Layout) (best float64, err error) {
	run := core.RunLayout{First: 1, Last: 4, LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 {
		return 1e-3
	}}
	backend, closeAll, err := host.OpenBackends(kernels.CPU, host.Ranks(len(l.Ranks)), kernels.Options{Threads: 1})
	if err != nil {
		return 0, err
	}
	defer closeAll()
	best = time.Hour.Seconds()
	err = host.Run(l, host.RunOptions{Coord: run, Backend: backend,
		Batches: imageBatches(l.Design.Model.Vision, l.Design.Micro),
		Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind == "param" {
				l.Design.Model.Init(7, p, g, dst)
			}
			return kind == "param", nil
		}, WrapDevice: func(rank int, d host.Device) host.Device {
			return paced{d, segmentOf(l.RankLayout(rank, 0))}
		}, Observe: func(m actors.Message) {
			if m.Text == core.TopicStep && m.Step > 1 {
				best = min(best, core.SummaryOf(m.Values).Time/1e9)
			}
		}})
	return best, err
}

// imageBatches are microbatches with one image each.
func imageBatches(v *family.Vision, micro int) host.BatchFunc {
	return func(step int64, _ int) (out []family.Microbatch, err error) {
		for i := range micro {
			r := rand.New(rand.NewPCG(uint64(step), uint64(i)))
			mb := family.Microbatch{Cu: []int32{0, pacedRows}}
			for k := range int32(pacedRows) {
				mb.IDs, mb.Targets, mb.Positions = append(mb.IDs, int32(r.IntN(64))),
					append(mb.Targets, int32(r.IntN(64))), append(mb.Positions, k)
				mb.Weights = append(mb.Weights, 1/float32(micro*pacedRows))
			}
			for k := range pacedPatches / v.Tower.Join {
				mb.IDs[k+1], mb.Targets[k+1] = -1, -100
			}
			mb.Images.Grids = []family.Grid{{T: 1, H: 8, W: pacedPatches / 8,
				Spans: [][2]int32{{1, int32(1 + pacedPatches/v.Tower.Join)}}}}
			pixels := make([]float32, pacedPatches*v.Tower.PatchDim)
			for k := range pixels {
				pixels[k] = float32(r.NormFloat64())
			}
			mb.Images.Values = pixels
			out = append(out, mb)
		}
		return
	}
}
