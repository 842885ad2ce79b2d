package layout

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/autoencoders"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/stages/texts"
	"github.com/lfactor/lfactor/topology"
)

// ImageDims are the dimensions of a microbatch with as many patches of images, or for 0 as many as its
// tokens can stand for.
func ImageDims(v *family.Vision, patches, rows int) map[string]int {
	if patches == 0 {
		patches = rows * v.Tower.Join
	}
	return map[string]int{block.Patches: patches, block.Frames: max(1, patches/v.Unit())}
}

// MeshOf is the mesh of a checked plan: data parallelism is two axes where state is shared out over groups
// of it, and the experts' mesh is folded over the ranks of data and tensor parallelism.
func MeshOf(p *configs.Plan) topology.Mesh {
	cp := max(1, p.CP)
	zero, groups := p.DP, p.ZeroRanks > 0 && p.ZeroRanks < p.DP
	m := topology.Grid(p.PP, p.DP, p.TP)
	if groups {
		zero = p.ZeroRanks
	}
	if groups || cp > 1 {
		own := []topology.Dim{{Name: topology.PP, Size: p.PP}}
		if groups {
			own = append(own, topology.Dim{Name: topology.DPReplicate, Size: p.DP / zero})
		}
		own = append(own, topology.Dim{Name: topology.DP, Size: zero})
		u := p.Exchanging()
		if cp > u {
			own = append(own, topology.Dim{Name: topology.CP, Size: cp / u})
		}
		if u > 1 {
			own = append(own, topology.Dim{Name: topology.Ulysses, Size: u})
		}
		m = topology.New(append(own, topology.Dim{Name: topology.TP, Size: p.TP})...)
	}
	if p.EP*p.ETP == 1 {
		return m
	}
	dims := []topology.Dim{{Name: topology.EDP, Size: zero * cp * p.TP / (p.EP * p.ETP)},
		{Name: topology.EP, Size: p.EP}, {Name: topology.ETP, Size: p.ETP}}
	if groups {
		dims = append([]topology.Dim{{Name: topology.EDPReplicate, Size: p.DP / zero}}, dims...)
	}
	m, err := m.Fold(dims...)
	if err != nil {
		panic(fmt.Sprintf("layout: a checked plan: %v", err))
	}
	return m
}

// routing adds what a run file says of experts to the model.
func routing(c *configs.Config, m *family.Model) {
	p, r := c.Run.Plan, c.Run.Train.Router
	m.Spec.Experts.Limit.Copies = p.RedundantExperts
	if !m.Spec.Mixes() {
		return
	}
	e := &m.Spec.Experts
	e.Step, e.Limit = r.BiasRate, grad.Limit{Factor: r.Capacity, ByWeight: r.Drop == "weight",
		Copies: p.RedundantExperts}
	if r.Jitter > 0 {
		e.Jitter, e.JitterAll = r.Jitter, false
	}
	share := 1 / float64(c.Microbatches()*p.DP) // of a microbatch in a step
	if p.ChunkSize > 0 {                        // each chunk has losses of its own
		share *= float64(p.ChunkSize) / float64(fit.Rows(c))
	}
	b := block.Balance{Scale: cmp.Or(r.Coef, family.Mixture.Of(m.Config).BalanceCoef, 0.001) * share, Z: r.Z * share}
	switch {
	case r.Loss == "pooled", r.Loss == "model" && family.Mixture.Of(m.Config).RouterLogits:
		b.Kind = block.PooledBalance
	case r.Loss == "layer":
		b.Kind = block.LayerBalance
	case r.Loss == "sequence":
		b.Kind = block.SequenceBalance
	case r.Loss == "batch":
		b.Kind = block.BatchBalance
	}
	m.Balance(b)
}

// FromConfig is what a configuration means: a model with a plan. The configuration is one that configs.Load
// has checked, with the rules of stages/fit.
func FromConfig(c *configs.Config) (*Design, error) {
	r := c.Run
	m, err := fit.Build(c)
	if err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	m.Spec.MTPWeight = r.Train.MTPWeight
	if m.Spec.MTPWeight == 0 {
		m.DropMTP()
	}
	if m.Packed, err = fit.Packed(c, m); err != nil {
		return nil, err
	}
	m.Watch, m.History, m.Peaks, m.Travel = fit.Watch(c), fit.History(c), fit.Peaks(c), fit.Travel(c)
	m.LowGather = r.Train.LowGather
	routing(c, m)
	indexing(c, m)
	j := &Design{Model: m, Lora: fit.Lora(c), Frozen: fit.Frozen(c), Mesh: MeshOf(&r.Plan), Zero: r.Plan.Zero,
		FixedPoint:  r.Train.AnyPlan(),
		SeqParallel: r.Plan.SequenceParallel, Overlap: r.Plan.Overlap, Pairs: r.Plan.OverlapMicro,
		Bucket: int64(r.Plan.BucketBytes), Schedule: r.Plan.Schedule, Loops: r.Plan.VirtualStages,
		Micro: c.Microbatches(), Ring: r.Plan.CPComm == "ring" || r.Plan.CPComm == "hybrid", Zigzag: r.Plan.Zigzag() &&
			m.Dealable(), Rows: fit.Rows(c), SeqLen: r.Data.SeqLen, Recompute: fit.Recomputes[r.Plan.Recompute],
		RecomputeLayers: r.Plan.RecomputeLayers, DType: fit.Precisions[r.Train.Precision],
		RoutingBound: r.Train.RoutingBound, SumWhole: 16 << 10, MoveEvery: r.Train.BalanceEvery,
		Nodes: r.Train.BalanceHosts, Memory: int64(r.Plan.Memory), Seed: uint64(r.Train.Seed), Optim: updates(c)}
	if r.Plan.Offload {
		j.Offload = OffloadFrom
	}
	j.Chosen = ChosenOf(&r.Plan)
	if r.Plan.OffloadOptimizer {
		j.OffloadState = r.Plan.OffloadShare
	}
	if v := m.Vision; v != nil {
		j.Dims = ImageDims(v, r.Plan.Encoder.Patches, j.Rows)
		if e := r.Plan.Encoder; e.Over != "none" {
			j.Parts = TowerParts(m, &PartPlan{TP: e.TP, Over: e.Over, Ranks: e.Ranks, Ahead: e.Ahead, Fill: e.Fill})
		}
		j.Component = fit.Components(&r)
		j.LRScale = func(param string) float64 {
			switch m.Component(param) {
			case family.Encoder:
				return r.Optimizer.EncoderLR
			case family.Projector:
				return r.Optimizer.ProjectorLR
			}
			return 1
		}
	}
	j.ahead(c)
	j.grouped(c)
	j.scaled(fit.Widths(c, m))
	if n := r.Plan.ChunkSize; n > 0 {
		j.Chunks, j.KeepChunks = j.Rows/n, r.Plan.KeepChunks
	}
	if n := r.Plan.Layers; len(n) > 0 {
		j.Cuts = cuts(c, n, m.Foundation(), len(m.Blocks))
	}
	return j, nil
}

// ahead is what a run has of encoders before a denoiser: their places in the plan, and what they compute in,
// so that what they give are the bits of encoders beside the data.
func (j *Design) ahead(c *configs.Config) {
	m := j.Model
	if !m.Ahead() {
		return
	}
	if e := c.Run.Plan.Encoder; e.Over != "none" {
		j.Parts = []*PartPlan{{TP: e.TP, Over: e.Over, Ranks: e.Ranks, Ahead: e.Ahead, Fill: e.Fill, Widths: m.Widths}}
	}
	if n := autoencoders.EncodesOf(m, j.Rows); n > 0 {
		j.Dims = map[string]int{family.NoiseLevels: n}
	}
	text := j.DType
	if text == tensor.F16 && !c.Run.Diffusion.TrainText {
		text = tensor.F32 // in which states of T5 do not fit
	}
	if m.Denoiser.Seen == nil && text == j.DType {
		return
	}
	own := map[string]fit.ComponentPlan{autoencoders.Component: {DType: tensor.F32, Recompute: j.Recompute},
		texts.Component: {DType: text, Recompute: j.Recompute}}
	j.Component = func(name string) fit.ComponentPlan {
		if p, ok := own[name]; ok {
			return p
		}
		return fit.ComponentPlan{DType: j.DType, Recompute: j.Recompute}
	}
}

// updates is what the section optimizer says of updates.
func updates(c *configs.Config) optim.Config {
	o := &c.Run.Optimizer
	return optim.Config{Name: o.Kind, Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Decay: o.WeightDecay,
		Momentum: o.Momentum, Clip: o.ClipGrad, Average: optim.Averaging{Decay: o.EMA, After: int64(o.EMAAfter),
			Power: o.EMAPower}, Rate: Rate(c), Moments: o.Moments, Block: o.MomentsBlock, Adafactor: optim.Adafactor{
			Power: o.Adafactor.Decay, Above: o.Adafactor.Clip, Floor: o.Adafactor.Floor, Fixed: o.Adafactor.Fixed},
		Muon: optim.Muon{Momentum: o.MuonBeta, Plain: o.MuonPlain, Steps: o.MuonSteps, Scale: o.MuonScale}}
}

// grouped puts the factors of optimizer.groups on rates and weight decay.
func (j *Design) grouped(c *configs.Config) {
	if len(c.Run.Optimizer.Groups) == 0 {
		return
	}
	of, parts := fit.Grouped(c), j.LRScale
	j.LRScale = func(param string) float64 {
		lr := of(param).LR
		if parts != nil {
			lr *= parts(param)
		}
		return lr
	}
	j.DecayScale = func(param string) float64 { return of(param).Decay }
	j.OptimOf = func(param string) string { return of(param).Kind }
	if clips := fit.Clipped(c); clips != nil {
		j.ClipOf = clips
	}
}

// scaled puts the rules of optimizer.mup_base_width on rates, weight decay and first values.
func (j *Design) scaled(of func(param string) fit.Scales) {
	if of == nil {
		return
	}
	fit.Begin(j.Model, of)
	lr, decay := j.LRScale, j.DecayScale
	j.LRScale = func(param string) float64 {
		if lr != nil {
			return lr(param) * of(param).LR
		}
		return of(param).LR
	}
	j.DecayScale = func(param string) float64 {
		if decay != nil {
			return decay(param) * of(param).Decay
		}
		return of(param).Decay
	}
}

// cuts turns layers a stage into borders between blocks: what comes before the decoder, unless it has a mesh of its
// own, and the embedding go with the first stage, norm and head, and an expert of actions behind them, with the last.
// First is the decoder's first block, of so many blocks.
func cuts(c *configs.Config, layers []int, first, blocks int) []int {
	out, sum := []int{0}, first+1
	if c.Run.Plan.Encoder.Over != "none" {
		out[0] = first
	}
	for i, n := range layers {
		if sum += n; i == len(layers)-1 {
			sum = blocks
		}
		out = append(out, sum)
	}
	return out
}

// Coordination is what the coordinator needs of a configuration.
func Coordination(c *configs.Config) core.RunLayout {
	r := c.Run
	lr, sets := Rate(c), configs.Sets(r.Data.Valid)
	l := core.RunLayout{First: 1, Last: int64(r.Train.Steps), SaveEvery: int64(r.Checkpoint.Interval),
		SaveAtEnd: r.Checkpoint.Dir != "", EvalEvery: int64(r.Train.EvalInterval),
		EvalSteps: int64(r.Train.EvalSteps), EvalSets: int64(len(sets)),
		EvalBy: int64(slices.Index(sets, r.Train.EvalSet) + 1), LR: lr.At, LossScale: core.LossScale{Scale: 1},
		Spikes: core.Spikes{Norm: r.Train.SpikeNorm, Loss: r.Train.SpikeLoss, After: int64(r.Train.SpikeAfter),
			Back: int64(r.Train.SpikeBack), Most: r.Train.SpikeMost}}
	if r.Train.AnyPlan() {
		l.LossScale.FixedPoint, l.LossScale.Reach = true, core.ReachFirst
	}
	if r.Train.Half() {
		l.LossScale = core.LossScale{Dynamic: r.Train.LossScale == 0, Scale: r.Train.InitialScale,
			Min:    r.Train.MinScale,
			Window: r.Train.ScaleWindow, Hysteresis: r.Train.Hysteresis, Left: r.Train.Hysteresis}
		if r.Train.LossScale > 0 {
			l.LossScale.Scale = r.Train.LossScale
		}
	}
	return l
}

// Rate is the learning rate of a configuration.
func Rate(c *configs.Config) optim.LR {
	s, o := c.Run.Schedule, c.Run.Optimizer
	l := optim.LR{Style: s.Kind, Max: o.LR, Min: o.MinLR, WarmupInit: s.WarmupInit, Warmup: int64(s.WarmupSteps),
		Decay: int64(s.DecaySteps), WSDDecay: int64(s.WSDDecaySteps), WSDStyle: s.WSDDecay}
	if l.Decay == 0 {
		l.Decay = int64(c.Run.Train.Steps)
	}
	if s.WarmupShare > 0 {
		l.Warmup = int64(s.WarmupShare * float64(l.Decay))
	}
	return l
}

// Fits compares every rank's predicted peak with its budget before anything is allocated. remedy says what to
// change where a plan does not fit.
func (l *Layout) Fits(remedy func() string) error {
	for rank := range l.Ranks {
		m := l.Memory(rank)
		if b := l.Design.Memory; b > 0 && m.Total() <= b && m.WorstTotal() > b {
			return exit.With(fmt.Errorf("%s needs %s of a budget of %s with experts evenly used, but %s "+
				"if its experts get %.3g times as many tokens, which routing may do; %s",
				l.Design.Mesh.Name(rank), tensor.Bytes(m.Total()), tensor.Bytes(b),
				tensor.Bytes(m.WorstTotal()), l.WorstShare(), l.boundFor(rank)), exit.Fit)
		} else if b > 0 && m.Total() > b {
			return exit.With(fmt.Errorf("%s needs %s of a budget of %s: %s", l.Design.Mesh.Name(rank),
				tensor.Bytes(m.Total()), tensor.Bytes(b), remedy()), exit.Fit)
		}
	}
	return nil
}

// boundFor is a bound with which a rank's worst case fits.
func (l *Layout) boundFor(rank int) string {
	m, b := l.Memory(rank), l.Design.Memory
	most := 1 + (l.WorstShare()-1)*float64(b-m.Total())/float64(max(1, m.WorstTotal()-m.Total()))
	return fmt.Sprintf("set train.routing_bound to %.3g or less, beyond which steps are given up, or "+
		"plan.recompute=full", math.Floor(most*90)/100)
}
