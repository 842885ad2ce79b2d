package host

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels"
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
	Model       *family.Model
	Lora        *block.Lora
	Frozen      func(param string) bool
	Mesh        topology.Mesh
	Zero        int
	SeqParallel bool
	Schedule    string
	Loops       int // stages a pipeline rank, 0 is 1
	Cuts        []int
	Micro       int // microbatches a step and data-parallel rank
	Chunks      int // chunks of each microbatch's sequence, 0 is 1
	Rows        int // tokens of a microbatch
	Patches     int // of pictures in a large microbatch, for models with a vision tower: what memory is planned for
	Frames      int // of pictures, tiles and rows in time of videos, likewise
	Recompute   grad.Recompute
	DType       tensor.DType
	Optim       optim.Config
	Credits     int
	Memory      int64 // bytes a rank, 0 for no limit
	Seed        uint64
}

// Layout is everything that follows from a job before anything is allocated: programs, traces and what each rank owns.
type Layout struct {
	Job     *Job
	Stages  []family.Stage
	Program *plan.Program
	Eval    *plan.Program
	Ports   []core.Port
	Names   []string // of ports
	Traces  map[TraceKey]*grad.Trace
	Index   map[string]int // parameters of the whole model, in order of first use
	Order   []string
	Ranks   []RankPart
}

// RankPart is one rank's share of a layout.
type RankPart struct {
	Rank   int
	Coord  topology.Coord
	Stages []int
	Params []ParamPlan // trainable
	All    []*grad.Param
	Ties   [][]int // ranks of each tie group, in stage order
}

// Plan lays a job out. It allocates no tensors, so it also serves `lfactor plan`.
func Plan(j *Job) (*Layout, error) {
	l := &Layout{Job: j, Traces: map[TraceKey]*grad.Trace{}, Index: map[string]int{}}
	loops := max(1, j.Loops)
	if l.Job.Credits == 0 {
		l.Job.Credits = 2
	}
	var err error
	cuts := j.Cuts
	if cuts == nil {
		if cuts, err = j.Model.Balanced(j.Mesh.PP * loops); err != nil {
			return nil, err
		}
	}
	l.Stages = j.Model.Cut(cuts)
	shape := schedule.Shape{Ranks: j.Mesh.PP, Micro: j.Micro, Loops: loops}
	if j.Chunks > 1 {
		for range j.Micro {
			shape.Split = append(shape.Split, j.Chunks)
		}
	}
	if l.Program, err = schedule.Build(j.Schedule, shape); err != nil {
		return nil, err
	}
	if s, _ := schedule.Get(j.Schedule); !s.Runs {
		return nil, fmt.Errorf("schedule %s feeds two copies of the model from both ends, which training cannot do; dualpipev is its form with one", j.Schedule)
	}
	if len(l.Program.StageRank) != len(l.Stages) {
		return nil, fmt.Errorf("schedule %s makes %d stages of %d", j.Schedule, len(l.Program.StageRank), len(l.Stages))
	}
	l.ports()
	l.Eval = l.forwardOnly()
	l.traces()
	l.ranks()
	return l, nil
}

func (l *Layout) ports() {
	for s, st := range l.Stages {
		for _, f := range st.Out {
			l.Ports = append(l.Ports, core.Port{ID: int32(len(l.Ports)), From: s, To: f.Peer, Grad: true})
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
	o := grad.Options{Mesh: []grad.MeshAxis{{Name: "tp", Size: j.Mesh.TP}}, DP: j.Mesh.DP, DType: j.DType, SeqParallel: j.SeqParallel,
		ShardGrads: j.Zero >= 2, ShardParams: j.Zero == 3, Frozen: j.Frozen, Recompute: j.Recompute, NoGrad: eval, Chunk: chunk, Chunks: max(1, j.Chunks)}
	o.InputGrad = func(string) bool { return l.needsGrad(stage) }
	if l.splits() {
		o.Twice = true
	}
	return o
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

// needsGrad reports whether a stage before this one has something to train.
func (l *Layout) needsGrad(stage int) bool {
	for s := range stage {
		for _, p := range l.Traces[TraceKey{s, 0, false}].Params {
			if !p.Frozen {
				return true
			}
		}
	}
	return false
}

// shape is that of a large microbatch, or of a chunk.
func (l *Layout) shape() block.Shape {
	j := l.Job
	rows := j.Rows / max(1, j.Chunks)
	if j.Model.Vision == nil {
		return block.Shape{Rows: rows}
	}
	least := j.Model.Smallest(rows)
	return j.Model.Vision.Shape(rows, j.Model.Vision.Class(max(j.Patches, least.Patches), max(j.Frames, least.Frames)))
}

func (l *Layout) traces() {
	j := l.Job
	for s, st := range l.Stages {
		for c := range max(1, j.Chunks) {
			rec := block.Rec{Shape: l.shape(), Lora: j.Lora}
			l.Traces[TraceKey{s, c, false}] = j.Model.Record(l.options(false, s, c), rec, st)
			l.Traces[TraceKey{s, c, true}] = j.Model.Record(l.options(true, s, c), rec, st)
		}
		tr := l.Traces[TraceKey{s, 0, false}]
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
		for _, p := range l.Traces[TraceKey{s, 0, false}].Params {
			if r := l.Program.StageRank[s]; p.Name == name && (len(out) == 0 || out[len(out)-1] != r) {
				out = append(out, r)
			}
		}
	}
	return
}

func (l *Layout) ranks() {
	for r := range l.Job.Mesh.Size() {
		l.Ranks = append(l.Ranks, l.rank(r))
	}
}

func (l *Layout) rank(r int) RankPart {
	m := l.Job.Mesh
	part := RankPart{Rank: r, Coord: m.Coord(r)}
	seen := map[string]*grad.Param{}
	tieOf := map[string]int{}
	for s, owner := range l.Program.StageRank {
		if owner != part.Coord.PP {
			continue
		}
		part.Stages = append(part.Stages, s)
		for _, p := range l.Traces[TraceKey{s, 0, false}].Params {
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
	out := ParamPlan{Param: p, Index: l.Index[p.Name], TPSum: p.Grad[0].Kind == grad.Partial, To: p.Local[0]}
	if j.Zero > 0 && j.Mesh.DP > 1 {
		out.From, out.To = grad.ShardRows(p.Local[0], c.DP, j.Mesh.DP)
	}
	out.Counts = (p.Place[0].Kind == grad.Sharded || c.TP == 0) && (j.Zero > 0 || c.DP == 0)
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

// Refs of a run, dense and the same in every process.
const (
	CoordinatorRef actors.Ref = 0
	ObserverRef    actors.Ref = 1
	firstRank      actors.Ref = 2
)

// RankRef is the ref of a rank.
func RankRef(rank int) actors.Ref { return firstRank + actors.Ref(rank) }

// LoaderRef is the ref of the loader that serves replica dp in process proc.
func (l *Layout) LoaderRef(proc, dp int) actors.Ref {
	return firstRank + actors.Ref(l.Job.Mesh.Size()+proc*l.Job.Mesh.DP+dp)
}

// RankLayout is what the behaviour of rank r in process proc knows.
func (l *Layout) RankLayout(r, proc int) *core.RankLayout {
	j, part := l.Job, l.Ranks[r]
	m := j.Mesh
	group := func(ranks []int) core.Group {
		g := core.Group{}
		for i, x := range ranks {
			g.Members = append(g.Members, RankRef(x))
			if x == r {
				g.Pos = i
			}
		}
		return g
	}
	world := make([]int, m.Size())
	for i := range world {
		world[i] = i
	}
	groups := []core.Group{group(m.TPGroup(r)), group(m.DPGroup(r)), group(world)}
	for _, t := range part.Ties {
		groups = append(groups, group(t))
	}
	lowered := map[loweredKey][]core.Segment{}
	for k, tr := range l.Traces {
		for kind, ph := range phases {
			lowered[loweredKey{k, kind}] = lower(tr, ph)
		}
	}
	return &core.RankLayout{Rank: r, Program: l.Program, Row: part.Coord.PP, Eval: l.Eval, Groups: groups, Ports: l.Ports,
		Lower: func(a plan.Action, eval bool) []core.Segment {
			return lowered[loweredKey{TraceKey{int(a.Stage), int(a.Chunk), eval}, a.Kind}]
		},
		Update: UpdateSegments(part.Params, m.TP, m.DP, j.Zero, len(part.Ties), m.Size()),
		Peer: func(stage int) actors.Ref {
			return RankRef(m.Rank(topology.Coord{PP: l.Program.StageRank[stage], DP: part.Coord.DP, TP: part.Coord.TP}))
		},
		Loader: l.LoaderRef(proc, part.Coord.DP), Coordinator: CoordinatorRef, Credits: j.Credits}
}

type loweredKey struct {
	t TraceKey
	k plan.Kind
}

// lower is what a behaviour knows of a trace's phase.
func lower(tr *grad.Trace, ph grad.Phase) []core.Segment {
	var out []core.Segment
	for _, s := range tr.Segments(ph) {
		seg := core.Segment{Flops: s.Cost.Flops, Bytes: s.Cost.Bytes, Calls: s.Cost.Calls}
		for _, n := range s.Comm {
			g := GroupTP
			if tr.OverData(n) {
				g = GroupDP
			}
			seg.Comms = append(seg.Comms, core.Comm{Group: g, Bytes: tr.CommBytes(n)})
		}
		out = append(out, seg)
	}
	return out
}

// Device makes the device of rank r; its parameters are still to be set.
func (l *Layout) Device(r int, b kernels.Backend, save Saver) (*Rank, error) {
	j, part := l.Job, l.Ranks[r]
	var ties []int
	for _, t := range part.Ties {
		ties = append(ties, len(t))
	}
	elsewhere := map[string]bool{}
	for _, p := range part.All {
		elsewhere[p.Name] = l.owners(p.Name)[0] != part.Coord.PP
	}
	name := j.Mesh.Name(r)
	return NewRank(RankConfig{Name: name, Backend: b, Pool: tensor.NewPool(name, j.Memory), Host: tensor.NewPool(name+" host", 0),
		TPPos: part.Coord.TP, TP: j.Mesh.TP, DPPos: part.Coord.DP, DP: j.Mesh.DP, World: j.Mesh.Size(), Ties: ties, Elsewhere: elsewhere, Zero: j.Zero,
		Traces: l.Traces, Ports: l.Ports, PortNames: l.Names, Optim: j.Optim, Params: part.Params, NumParams: len(l.Order), DType: j.DType, Save: save})
}
