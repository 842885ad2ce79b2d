package layout

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// Layout is everything that follows from a job before anything is allocated: programs, traces and what each rank owns.
type Layout struct {
	Design  *Design
	Stages  []family.Stage
	Program *plan.Program
	Eval    *plan.Program
	Ports   []core.Port
	Names   []string                 // of ports
	Traces  map[TraceKey]*grad.Trace // of microbatches without images, and of Class
	Class   int32                    // the class of shape that memory is planned for
	Index   map[string]int           // parameters of the whole model, in order of first use
	Order   []string
	Ranks   []RankPart
	SideOf  map[string]int // the side of a parameter's mesh
	Filled  bool           // every microbatch runs every block, on padding where it has nothing for it

	turning bool                 // see Turning
	meshes  [][]grad.MeshAxis    // by side
	axes    []sideAxes           // of every group
	groups  map[groupKey]int     // places in axes
	lists   []map[int]core.Group // by axes and rank: see along
	portsAt [][]int              // by stage: the places in Ports of those that begin or end there

	owners map[string][]int // by parameter: the pipeline ranks that hold it, in stage order
	pipe   []int            // pipeline rank of each stage, of a part's 0
	split  bool             // the program runs I and W apart
	held   []int            // microbatches that a stage of the decoder has between forward and backward, at most
	mu     sync.Mutex
	more   map[TraceKey]*grad.Trace // of other classes, made when first asked for
	lower  map[loweredKey][]core.Segment
	early  map[int][]bucket // by row of the program
	none   map[int32][]bool // by class: the ports that carry nothing
	works  map[int32]work   // by class
	feet   map[footKey]*grad.Footprint
	// of activations, by row of the program; by share of the rows of even routing
	peaks map[float64][]int64
	left  map[int]int64               // by row: what members may still have to take of its gradients when its program has ended
	with  map[plan.Action]plan.Action // the other of two actions whose segments alternate
}

// RankPart is one rank's share of a layout.
type RankPart struct {
	Rank   int
	Coord  Coord // on the decoder's mesh; PP is -1 for a rank of a part's own
	Row    int   // in the program
	Sides  []Side
	Stages []int
	Params []ParamPlan // trainable
	All    []Held
	Ties   [][]int // ranks of each tie group, in stage order
}

// Budget gives every rank a budget in bytes, where the job has none of its own.
func (l *Layout) Budget(bytes int64) {
	if l.Design.Memory == 0 {
		l.Design.Memory = bytes
	}
}

// Coord is a rank's pipeline rank, replica, and place in context and tensor parallelism, for those who print it.
type Coord struct{ PP, DP, CP, TP int }

// Dealt is the number of ranks that the rows of a microbatch, or of a chunk, are dealt out to in two runs
// each, 0 where they lie in order.
func (l *Layout) Dealt() int {
	if n := l.Design.Mesh.Len(topology.CP); l.Design.Zigzag && n > 1 {
		return n
	}
	return 0
}

// New lays a design out. It allocates no tensors, so it also serves `lfactor plan`.
func New(j *Design) (*Layout, error) {
	l := &Layout{Design: j, Traces: map[TraceKey]*grad.Trace{}, Index: map[string]int{}, SideOf: map[string]int{},
		more: map[TraceKey]*grad.Trace{}, lower: map[loweredKey][]core.Segment{}, early: map[int][]bucket{},
		none: map[int32][]bool{}, works: map[int32]work{}, feet: map[footKey]*grad.Footprint{},
		peaks: map[float64][]int64{}, left: map[int]int64{}}
	var err error
	if _, err = optim.Of(j.Optim); err != nil {
		return nil, err
	}
	l.turning = j.turns()
	loops := max(1, j.Loops)
	if l.Design.Credits == 0 {
		l.Design.Credits = 2
	}
	if err := l.shapes(); err != nil {
		return nil, err
	}
	for side := range l.sidesOf() {
		l.meshes = append(l.meshes, l.mesh(side))
	}
	l.groupAxes()
	cuts, err := l.cuts(j.Mesh.Len(topology.PP) * loops)
	if err != nil {
		return nil, err
	}
	l.Stages = j.Model.Cut(cuts)
	shape := schedule.Shape{Ranks: j.Mesh.Len(topology.PP), Micro: j.Micro, Loops: loops, Pairs: j.Pairs}
	if j.Chunks > 1 {
		for range j.Micro {
			shape.Split = append(shape.Split, j.Chunks)
		}
	}
	if l.Program, err = j.program(shape); err != nil {
		return nil, err
	}
	if j.Pairs && !paired(l.Program) {
		return nil, fmt.Errorf("plan.overlap_microbatches: %d microbatches a step leave no forward beside a backward "+
			"of %s on %d ranks: raise train.global_batch, or remove it", j.Micro, j.Schedule, shape.Ranks)
	}
	if s, err := schedule.Get(j.Schedule); j.Program == nil && err == nil && !s.Runs {
		return nil, fmt.Errorf("schedule %s feeds two copies of the model from both ends, which "+
			"training cannot do; dualpipev is its form with one", j.Schedule)
	}
	if n := len(l.Stages) - len(j.Parts); len(l.Program.StageRank) != n {
		return nil, fmt.Errorf("schedule %s makes %d stages of %d", j.Schedule, len(l.Program.StageRank), n)
	}
	l.split, l.held = l.splits(), held(l.Program)
	l.pipe = append(make([]int, len(j.Parts)), l.Program.StageRank...)
	l.ports()
	l.traces()
	if err := l.follow(shape); err != nil {
		return nil, err
	}
	if err := l.allChosen(); err != nil {
		return nil, err
	}
	if len(j.Parts) > 0 {
		if l.Program, err = l.compose(); err != nil {
			return nil, err
		}
	}
	l.pair()
	l.Eval = l.forwardOnly()
	l.ranks()
	l.updateGroups()
	return l, l.blocksFit()
}

// shapes settles what microbatches of different shapes mean for a plan that communicates within their forward and
// backward (ZeRO 2 and 3, counts of experts over replicas): one replica may have images where another has none,
// and would not take part. So every microbatch runs every block, on padding where it has nothing for it. A part with
// several replicas beside one of the decoder has no such remedy, since they work on different microbatches at a time.
func (l *Layout) shapes() error {
	j := l.Design
	what, try := fmt.Sprintf("zero=%d", j.Zero), "plan.zero=1"
	if j.Zero < 2 {
		what, try = "the loss of balance of the whole batch", "train.router.loss=sequence"
	}
	if batch := j.Model.Spec.Balance.Kind == block.BatchBalance; len(j.Model.Modalities) == 0 || j.Zero < 2 && !batch {
		return nil
	}
	for i := range j.Parts {
		if len(l.partGroups(i)) > 1 {
			return fmt.Errorf("%s communicates in the middle of microbatches, and the %d replicas of an "+
				"encoder with a mesh of its own take them in turn; set %s, or plan.encoder.tp to the ranks "+
				"that it has", what, len(l.partGroups(i)), try)
		}
	}
	l.Filled = j.Mesh.Replicas() > 1
	return nil
}

// Absent reports whether a port carries nothing for microbatches of a class. It may be called from several goroutines.
func (l *Layout) Absent(port, class int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	none, known := l.none[class]
	if !known {
		s := l.Design.Model.Shape(l.Design.Rows, class)
		for _, name := range l.Names {
			none = append(none, l.Design.Model.Absent(name, s))
		}
		l.none[class] = none
	}
	return none[port]
}

// cuts are the borders of the stages: each part with a mesh of its own is one stage, before n of the decoder.
func (l *Layout) cuts(n int) ([]int, error) {
	j := l.Design
	if len(j.Parts) == 0 {
		if j.Cuts != nil {
			return j.Cuts, nil
		}
		return j.Model.Balanced(n, l.tokens())
	}
	first := j.Model.Foundation()
	if first == 0 {
		return nil, fmt.Errorf("an encoder plan for a model without an encoder")
	}
	if j.Chunks > 1 {
		return nil, fmt.Errorf("chunks of a sequence and an encoder with a mesh of its own exclude each other")
	}
	var cuts []int
	for i, e := range j.Parts {
		if err := e.Check(j.Mesh); err != nil {
			return nil, err
		}
		if e.From >= first || i == 0 && e.From != 0 || i > 0 && e.From <= cuts[i-1] {
			return nil, fmt.Errorf("part %d begins at block %d; parts begin at 0, rise, and lie before "+
				"the decoder, which begins at %d", i, e.From, first)
		}
		cuts = append(cuts, e.From)
	}
	if j.Cuts != nil {
		return append(cuts, j.Cuts...), nil
	}
	rest, err := j.Model.BalancedFrom(first, n, l.tokens())
	return append(cuts, rest...), err
}

// costs prices the passes of every stage by the work of its trace.
func (l *Layout) costs() plan.Costs {
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
	return costs
}

// compose puts the parts' actions into the decoder's program, by the costs of the traces.
func (l *Layout) compose() (*plan.Program, error) {
	costs := l.costs()
	var edges []plan.Edge
	for _, p := range l.Ports {
		edges = append(edges, plan.Edge{From: p.From, To: p.To})
	}
	parts := schedule.Parts{Width: widthOf(l.Design.Mesh), Own: l.owned(), Edges: edges, Costs: costs}
	for i, e := range l.Design.Parts {
		parts.List = append(parts.List, schedule.Part{Groups: l.partGroups(i), Frozen: !l.learns(i),
			Ahead: e.Ahead, Fill: e.Fill})
	}
	return schedule.Compose(l.Program, parts)
}

// ports numbers the ports between stages, in the order of the stages that produce them. The numbers
// are the same on all ranks, since messages carry nothing else to tell ports apart.
func (l *Layout) ports() {
	l.portsAt = make([][]int, len(l.Stages))
	for s, st := range l.Stages {
		for _, f := range st.Out {
			l.Ports = append(l.Ports, core.Port{ID: int32(len(l.Ports)), From: s, To: f.Peer, Grad: true,
				Optional: l.Design.Model.Optional(f.Port)})
			for _, at := range slices.Compact([]int{s, f.Peer}) {
				l.portsAt[at] = append(l.portsAt[at], len(l.Names))
			}
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

// paired reports whether a program has entries of two actions.
func paired(p *plan.Program) bool {
	return slices.ContainsFunc(p.Rows, func(row []plan.Entry) bool {
		return slices.ContainsFunc(row, func(e plan.Entry) bool { return e.With.Kind != plan.None })
	})
}

// pair notes which actions have another beside them.
func (l *Layout) pair() {
	l.with = map[plan.Action]plan.Action{}
	for _, row := range l.Program.Rows {
		for _, e := range row {
			if e.With.Kind != plan.None {
				l.with[e.Action], l.with[e.With] = e.With, e.Action
			}
		}
	}
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
