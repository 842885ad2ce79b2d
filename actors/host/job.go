package host

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// Job is a training job: model, plan and hyper-parameters as plain values.
type Job struct {
	Model           *family.Model
	Lora            *block.Lora
	Frozen          func(param string) bool
	Mesh            topology.Mesh // of the decoder, and of all without Encoder
	Encoder         *EncoderPlan  // the vision tower's own mesh, nil where it is a part of the first pipeline stages
	Zero            int
	SeqParallel     bool
	Schedule        string
	Program         *plan.Program // in place of the one that Schedule builds, nil for none
	Loops           int           // stages a pipeline rank, 0 is 1
	Cuts            []int
	Micro           int // microbatches a step and data-parallel rank
	Chunks          int // chunks of each microbatch's sequence, 0 is 1
	KeepChunks      int // newest chunks that keep their activations whatever Recompute says
	Rows            int // tokens of a microbatch
	Patches         int // of pictures in a large microbatch, for models with a vision tower: what memory is planned for
	Frames          int // of pictures, tiles and rows in time of videos, likewise
	Recompute       grad.Recompute
	RecomputeLayers []int // how many of the first layers of each stage, or of every stage, Recompute is for; nil is all
	Offload         int   // bytes from which on a saved activation lies in host memory between forward and backward; 0 is none
	DType           tensor.DType
	Component       func(name string) ComponentPlan // in place of DType and Recompute, nil for none
	Optim           optim.Config
	LRScale         func(param string) float64 // factor on the learning rate; nil is 1
	Credits         int
	Memory          int64 // bytes a rank, 0 for no limit
	Seed            uint64
}

// ComponentPlan is what a component of a composed model may have of its own.
type ComponentPlan struct {
	DType     tensor.DType // of activations and model parameters
	Recompute grad.Recompute
}

// Layout is everything that follows from a job before anything is allocated: programs, traces and what each rank owns.
type Layout struct {
	Job     *Job
	Stages  []family.Stage
	Program *plan.Program
	Eval    *plan.Program
	Ports   []core.Port
	Names   []string                 // of ports
	Traces  map[TraceKey]*grad.Trace // of microbatches without pictures, and of Class
	Class   int32                    // the class of shape that memory is planned for
	Index   map[string]int           // parameters of the whole model, in order of first use
	Order   []string
	Ranks   []RankPart
	SideOf  map[string]int // the side of a parameter's mesh

	pipe  []int // pipeline rank of each stage, of the encoder's 0
	split bool  // the program runs I and W apart
	held  []int // microbatches that a stage of the decoder has between forward and backward, at most
	mu    sync.Mutex
	more  map[TraceKey]*grad.Trace // of other classes, made when first asked for
	lower map[loweredKey][]core.Segment
}

// RankPart is one rank's share of a layout.
type RankPart struct {
	Rank   int
	Coord  topology.Coord // on the decoder's mesh; PP is -1 for a rank of the encoder's own
	Row    int            // in the program
	Sides  [numSides]Side
	Stages []int
	Params []ParamPlan // trainable
	All    []*grad.Param
	Ties   [][]int // ranks of each tie group, in stage order
}

// Plan lays a job out. It allocates no tensors, so it also serves `lfactor plan`.
func Plan(j *Job) (*Layout, error) {
	l := &Layout{Job: j, Traces: map[TraceKey]*grad.Trace{}, Index: map[string]int{}, SideOf: map[string]int{}, more: map[TraceKey]*grad.Trace{}, lower: map[loweredKey][]core.Segment{}}
	loops := max(1, j.Loops)
	if l.Job.Credits == 0 {
		l.Job.Credits = 2
	}
	if err := l.shapes(); err != nil {
		return nil, err
	}
	cuts, err := l.cuts(j.Mesh.PP * loops)
	if err != nil {
		return nil, err
	}
	l.Stages = j.Model.Cut(cuts)
	shape := schedule.Shape{Ranks: j.Mesh.PP, Micro: j.Micro, Loops: loops}
	if j.Chunks > 1 {
		for range j.Micro {
			shape.Split = append(shape.Split, j.Chunks)
		}
	}
	if l.Program, err = j.program(shape); err != nil {
		return nil, err
	}
	if s, _ := schedule.Get(j.Schedule); j.Program == nil && !s.Runs {
		return nil, fmt.Errorf("schedule %s feeds two copies of the model from both ends, which training cannot do; dualpipev is its form with one", j.Schedule)
	}
	if n := len(l.Stages) - l.encoderStages(); len(l.Program.StageRank) != n {
		return nil, fmt.Errorf("schedule %s makes %d stages of %d", j.Schedule, len(l.Program.StageRank), n)
	}
	l.split, l.held = l.splits(), held(l.Program)
	l.pipe = l.Program.StageRank
	if j.Encoder != nil {
		l.pipe = append([]int{0}, l.pipe...)
	}
	l.ports()
	l.traces()
	if j.Encoder != nil {
		if l.Program, err = l.compose(); err != nil {
			return nil, err
		}
	}
	l.Eval = l.forwardOnly()
	l.ranks()
	return l, nil
}

// shapes refuses what goes wrong when microbatches differ in shape: with ZeRO 2 and 3 replicas communicate within a microbatch's
// forward and backward, and one of them may have no pictures where another has some.
func (l *Layout) shapes() error {
	j := l.Job
	if j.Model.Vision == nil || j.Zero < 2 {
		return nil
	}
	if j.Mesh.DP > 1 || j.Encoder != nil && len(l.encoderGroups()) > 1 {
		return fmt.Errorf("zero=%d communicates in the middle of microbatches, and those of a model with pictures differ from replica to replica; set plan.zero=1", j.Zero)
	}
	return nil
}

// encoderStages is the number of stages before the decoder's that the decoder's schedule does not know.
func (l *Layout) encoderStages() int {
	if l.Job.Encoder != nil {
		return 1
	}
	return 0
}

// cuts are the borders of the stages: an encoder with a mesh of its own is one stage, before n of the decoder.
func (l *Layout) cuts(n int) ([]int, error) {
	j := l.Job
	if j.Encoder == nil {
		if j.Cuts != nil {
			return j.Cuts, nil
		}
		return j.Model.Balanced(n)
	}
	v := j.Model.Vision
	if v == nil {
		return nil, fmt.Errorf("an encoder plan for a model without an encoder")
	}
	if err := j.Encoder.Check(j.Mesh, v.Tower.Heads, v.Tower.Inter); err != nil {
		return nil, err
	}
	if j.Chunks > 1 {
		return nil, fmt.Errorf("chunks of a sequence and an encoder with a mesh of its own exclude each other")
	}
	rest, err := j.Model.BalancedFrom(j.Model.Foundation(), n)
	if j.Cuts != nil {
		rest, err = j.Cuts, nil
	}
	return append([]int{0}, rest...), err
}

// compose puts the encoder's actions into the decoder's program, by the costs of the traces.
func (l *Layout) compose() (*plan.Program, error) {
	costs := plan.Costs{}
	for s := range l.Stages {
		tr := l.Main(s)
		flops := func(ph grad.Phase) (n float64) {
			for _, seg := range tr.Segments(ph) {
				n += float64(seg.Cost.Flops)
			}
			return
		}
		costs.F = append(costs.F, flops(grad.F))
		if l.split {
			costs.I, costs.W = append(costs.I, flops(grad.I)), append(costs.W, flops(grad.W))
		} else {
			costs.I, costs.W = append(costs.I, flops(grad.B)), append(costs.W, 0)
		}
	}
	var edges []plan.Edge
	for _, p := range l.Ports {
		edges = append(edges, plan.Edge{From: p.From, To: p.To})
	}
	return schedule.Compose(l.Program, schedule.Encoder{Width: l.Job.Mesh.TP, Own: l.own(), Groups: l.encoderGroups(), Edges: edges,
		Frozen: !l.learns(0), Ahead: l.Job.Encoder.Ahead, Fill: l.Job.Encoder.Fill, Costs: costs})
}

func (l *Layout) ports() {
	for s, st := range l.Stages {
		for _, f := range st.Out {
			l.Ports = append(l.Ports, core.Port{ID: int32(len(l.Ports)), From: s, To: f.Peer, Grad: true, Optional: family.Optional(f.Port)})
			l.Names = append(l.Names, f.Port)
		}
	}
}

// forwardOnly is the program of an evaluation step: every stage's forwards in the training program's order.
func (l *Layout) forwardOnly() *plan.Program {
	p := *l.Program
	p.Rows = make([][]plan.Entry, len(l.Program.Rows))
	for r, row := range l.Program.Rows {
		for _, e := range row {
			for _, a := range []plan.Action{e.Action, e.With} {
				if a.Kind == plan.F {
					p.Rows[r] = append(p.Rows[r], plan.Entry{Action: a})
				}
			}
		}
	}
	return &p
}

func (l *Layout) options(eval bool, stage, chunk int) grad.Options {
	j := l.Job
	m := l.sideOf(stage)
	o := grad.Options{Mesh: meshOf(m, j.SeqParallel && l.side(stage) == DecoderSide), DType: j.DType,
		ShardGrads: j.Zero >= 2, ShardParams: j.Zero == 3, Frozen: j.Frozen, Recompute: j.Recompute, NoGrad: eval, Chunk: chunk, Chunks: max(1, j.Chunks)}
	if j.Offload > 0 && !eval {
		o.Offload = func(v *grad.Value) bool { return tensor.Len(v.Shape)*v.DType.Size() >= j.Offload }
	}
	o.InputGrad = func(port string) bool {
		for _, f := range l.Stages[stage].In {
			if f.Port == port {
				return l.wants(f.Peer, port)
			}
		}
		return false
	}
	if l.split && l.side(stage) == DecoderSide {
		o.Twice = true
	}
	o.Each = l.each(stage, chunk)
	o.LossInB = !l.split
	o.KeepLogits = stage >= l.encoderStages() && l.held[stage-l.encoderStages()] <= 1
	return o
}

// held lists the most microbatches or chunks that each stage of a decoder's program has between forward and backward.
func held(p *plan.Program) []int {
	most, now := make([]int, len(p.StageRank)), make([]int, len(p.StageRank))
	for _, row := range p.Rows {
		for _, e := range row {
			for _, a := range []plan.Action{e.Action, e.With} {
				switch a.Kind {
				case plan.F:
					now[a.Stage]++
					most[a.Stage] = max(most[a.Stage], now[a.Stage])
				case plan.B, plan.W:
					now[a.Stage]--
				}
			}
		}
	}
	return most
}

// each is what the blocks of a stage have of their own, nil where all are alike.
func (l *Layout) each(stage, chunk int) func(int) (tensor.DType, grad.Recompute) {
	j := l.Job
	keep := j.Chunks > 1 && chunk+j.KeepChunks >= j.Chunks
	spared := l.spared(stage)
	if j.Component == nil && !keep && spared == nil {
		return nil
	}
	return func(block int) (tensor.DType, grad.Recompute) {
		c := ComponentPlan{j.DType, j.Recompute}
		if j.Component != nil {
			c = j.Component(j.Model.Blocks[block].Component)
		}
		if keep || spared[block] {
			c.Recompute = grad.RecomputeNone
		}
		return c.DType, c.Recompute
	}
}

// spared are the layers of a stage of the decoder that recompute nothing because enough before them do.
func (l *Layout) spared(stage int) map[int]bool {
	n := l.Job.RecomputeLayers
	if len(n) == 0 || l.side(stage) != DecoderSide {
		return nil
	}
	left, out := n[0], map[int]bool{}
	if len(n) > 1 {
		left = n[stage-l.encoderStages()]
	}
	for i := l.Stages[stage].From; i < l.Stages[stage].To; i++ {
		if b := l.Job.Model.Blocks[i]; b.Recompute && b.Component == family.Foundation {
			out[i] = left <= 0
			left--
		}
	}
	return out
}

// sideOf is the size of a stage's mesh.
func (l *Layout) sideOf(stage int) Side {
	m := l.Job.Mesh
	if l.side(stage) == DecoderSide {
		return Side{TP: m.TP, DP: m.DP}
	}
	return Side{TP: l.Job.Encoder.TP, DP: m.DP * len(l.encoderGroups())}
}

// splits reports whether the program runs I and W apart.
func (l *Layout) splits() bool {
	for _, row := range l.Program.Rows {
		for _, e := range row {
			if e.Kind == plan.W {
				return true
			}
		}
	}
	return false
}

// wants reports whether a stage takes a gradient for a port that it gives: something behind it learns.
func (l *Layout) wants(stage int, port string) bool {
	for _, p := range l.Main(stage).Out {
		if p.Name == port {
			return p.Grad
		}
	}
	return false
}

// learns reports whether a stage takes any gradient.
func (l *Layout) learns(stage int) bool {
	return slices.ContainsFunc(l.Main(stage).Out, func(p *grad.Port) bool { return p.Grad })
}

// Main is the trace of a stage that has all its parameters: a training step's, of a microbatch with pictures.
func (l *Layout) Main(stage int) *grad.Trace { return l.Traces[TraceKey{Stage: stage, Class: l.Class}] }

// Trace is that of a key, made when a class of shape is met for the first time.
func (l *Layout) Trace(k TraceKey) *grad.Trace {
	if tr := l.Traces[k]; tr != nil {
		return tr
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	tr := l.more[k]
	if tr == nil {
		tr = l.record(k)
		l.more[k] = tr
	}
	return tr
}

func (l *Layout) record(k TraceKey) *grad.Trace {
	j := l.Job
	rows := j.Rows / max(1, j.Chunks)
	return j.Model.Record(l.options(k.Eval, k.Stage, k.Chunk), block.Rec{Shape: j.Model.Vision.Shape(rows, k.Class), Lora: j.Lora}, l.Stages[k.Stage])
}

func (l *Layout) traces() {
	j := l.Job
	if v := j.Model.Vision; v != nil {
		least := j.Model.Smallest(j.Rows)
		l.Class = v.Class(max(j.Patches, least.Patches), max(j.Frames, least.Frames))
	}
	classes := []int32{l.Class}
	if l.Class > 0 {
		classes = append(classes, 0)
	}
	for s := range l.Stages {
		for _, class := range classes {
			for c := range max(1, j.Chunks) {
				for _, eval := range []bool{false, true} {
					k := TraceKey{s, c, eval, class}
					l.Traces[k] = l.record(k)
				}
			}
		}
		tr := l.Main(s)
		for i := range l.Ports {
			if p := &l.Ports[i]; p.From == s {
				for _, o := range tr.Out {
					if o.Name == l.Names[i] {
						p.Grad = o.Grad
						p.Bytes = int64(tensor.Len(o.Value.Local) * o.Value.DType.Size())
					}
				}
			}
		}
		for _, p := range tr.Params {
			l.SideOf[p.Name] = l.side(s)
			if _, ok := l.Index[p.Name]; !ok {
				l.Index[p.Name] = len(l.Order)
				l.Order = append(l.Order, p.Name)
			}
		}
	}
}

// owners lists the pipeline ranks that hold a parameter, in stage order.
func (l *Layout) owners(name string) (out []int) {
	for s := range l.Stages {
		for _, p := range l.Main(s).Params {
			if r := l.pipe[s]; p.Name == name && (len(out) == 0 || out[len(out)-1] != r) {
				out = append(out, r)
			}
		}
	}
	return
}

func (l *Layout) ranks() {
	for r := range l.World() {
		l.Ranks = append(l.Ranks, l.rank(r))
	}
}

func (l *Layout) rank(r int) RankPart {
	m := l.Job.Mesh
	dp, local := l.Local(r)
	part := RankPart{Rank: r, Coord: topology.Coord{PP: -1, DP: dp}, Row: local, Sides: l.sides(r)}
	if r < m.Size() {
		part.Coord = m.Coord(r)
	}
	if l.Program.Homes == nil {
		part.Row = part.Coord.PP
	}
	seen := map[string]*grad.Param{}
	tieOf := map[string]int{}
	for s := range l.Stages {
		if !l.Program.Owns(s, part.Row) {
			continue
		}
		part.Stages = append(part.Stages, s)
		for _, p := range l.Main(s).Params {
			if first := seen[p.Name]; first != nil {
				if first.Grad != p.Grad {
					panic(fmt.Sprintf("host: the gradient of %s is placed %v on one stage and %v on another", p.Name, first.Grad, p.Grad))
				}
				continue
			}
			seen[p.Name] = p
			part.All = append(part.All, p)
			if !p.Frozen {
				part.Params = append(part.Params, l.param(&part, p, tieOf))
			}
		}
	}
	return part
}

func (l *Layout) param(part *RankPart, p *grad.Param, tieOf map[string]int) ParamPlan {
	j, c := l.Job, part.Coord
	out := ParamPlan{Param: p, Index: l.Index[p.Name], Side: l.SideOf[p.Name], TPSum: p.Grad.On(axisTP).Kind == grad.Partial, To: p.Local[0]}
	m := part.Sides[out.Side]
	if j.Zero > 0 && m.DP > 1 {
		out.From, out.To = grad.ShardRows(p.Local[0], m.DPPos, m.DP)
	}
	out.Counts = (p.Place.On(axisTP).Kind == grad.Sharded || m.TPPos == 0) && (j.Zero > 0 || m.DPPos == 0)
	if own := l.owners(p.Name); len(own) > 1 {
		key := fmt.Sprint(own)
		if tieOf[key] == 0 {
			var ranks []int
			for _, pp := range own {
				ranks = append(ranks, j.Mesh.Rank(topology.Coord{PP: pp, DP: c.DP, TP: c.TP}))
			}
			part.Ties = append(part.Ties, ranks)
			tieOf[key] = len(part.Ties)
		}
		out.Tie = tieOf[key]
		out.Counts = out.Counts && own[0] == c.PP
	}
	return out
}
