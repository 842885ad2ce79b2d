package schedule

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// Shape is what a schedule needs to know.
// In the words of the field: pipeline parallelism.
type Shape struct {
	Ranks int         // pipeline-parallel ranks
	Micro int         // microbatches a step
	Loops int         // stages a rank, 0 is what the schedule needs
	Split []int       // chunks of each microbatch, nil is one each
	Group int         // microbatches that interleaved schedules run of one stage before the next, 0 chooses
	Costs *plan.Costs // by stage, nil is the same for all; schedules that follow costs say so
	// a forward and a backward of the steady phase are one entry, whose segments alternate
	Pairs bool
	// most activations a rank may hold, in those of one microbatch on one rank; 0 is the schedule's own limit
	Memory float64
}

// Unit is what the passes of a rank's whole share of the model take for one microbatch, the same on every rank.
type Unit struct{ F, I, W float64 }

// Sum is the work of a microbatch.
func (u Unit) Sum() float64 { return u.F + u.I + u.W }

// Measure is what a claim on time is about.
type Measure uint8

// Makespan counts from the first start to the last end of all ranks; Longest is the longest span of one rank.
const (
	Makespan Measure = iota
	Longest
)

// Schedule is a builder together with what its paper claims, so that one test can hold every schedule to
// its own claims.
type Schedule struct {
	Name  string
	Paper string // arXiv id
	Build func(Shape) (*plan.Program, error)
	Runs  bool // the runtime can train by it: no stage is a second copy of another
	Pairs bool // it can put forwards and backwards into one entry
	Loops int  // stages a rank, 0 is any number
	// its order follows Shape.Costs
	Follows bool
	// Fits says why a shape is not possible; nil takes every shape of one chunk a microbatch.
	Fits func(Shape) error
	// Time is the length of a step with equal stages and free communication; Of says in which sense, and if
	// AtMost is set the schedule may be faster. When limits the shapes it holds for; nil is all that fit.
	Time   func(s Shape, u Unit) float64
	Of     Measure
	AtMost bool
	When   func(s Shape, u Unit) bool
	// Live is the most activations that a rank holds, in half activations of one stage and chunk (F holds two,
	// I gives one back and W the other). It is a bound for programs that follow costs, else exact for Micro ≥ 2·Ranks.
	Live      func(s Shape, rank int) int
	LiveBound bool
}

var all = map[string]Schedule{}

// register is called from a package-level variable of each schedule's own file.
func register(s Schedule) struct{} {
	if _, dup := all[s.Name]; dup {
		panic("schedule: " + s.Name + " registered twice")
	}
	all[s.Name] = s
	source.Offer(source.Schedules, s.Name)
	return struct{}{}
}

// Names lists the schedules in order.
func Names() []string { return slices.Sorted(maps.Keys(all)) }

// Trainable lists the schedules that training can carry out, in order: the others are for comparison in simulations.
func Trainable() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return !all[name].Runs })
}

// Get returns the named schedule.
func Get(name string) (Schedule, error) {
	s, ok := all[name]
	if !ok {
		return s, fmt.Errorf("schedule %q: unknown, have %v", name, Names())
	}
	return s, nil
}

// Build makes the named program and checks it.
func Build(name string, shape Shape) (*plan.Program, error) {
	s, err := Get(name)
	if err != nil {
		return nil, err
	}
	if shape, err = s.complete(shape); err != nil {
		return nil, fmt.Errorf("schedule %q: %w", name, err)
	}
	p, err := s.Build(shape)
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("schedule %q for %d ranks, %d microbatches, %d stages a rank: %w", name,
			shape.Ranks, shape.Micro, shape.Loops, err)
	}
	return p, nil
}

// Bounds on a shape: a program's actions are held in memory.
const (
	ranksMax   = 1 << 13
	actionsMax = 1 << 26
)

// complete fills in what the schedule decides and refuses what it cannot do.
func (s Schedule) complete(x Shape) (Shape, error) {
	if x.Loops == 0 {
		x.Loops = max(1, s.Loops)
	}
	switch {
	case x.Ranks < 1 || x.Micro < 1 || x.Ranks > ranksMax || x.Loops < 1:
		return x, fmt.Errorf("%d ranks with %d stages each and %d microbatches: want 1 to %d ranks and "+
			"at least 1 of the others", x.Ranks, x.Loops, x.Micro, ranksMax)
	case x.Ranks*x.Loops >= 1<<15 || int64(x.Ranks)*int64(x.Loops)*int64(x.Micro) > actionsMax:
		return x, fmt.Errorf("%d ranks with %d stages each and %d microbatches are too many actions",
			x.Ranks, x.Loops, x.Micro)
	case s.Loops > 0 && x.Loops != s.Loops:
		return x, fmt.Errorf("wants %d stages a rank, not %d; set plan.virtual_stages", s.Loops, x.Loops)
	case x.Pairs && !s.Pairs:
		return x, fmt.Errorf("has no forwards and backwards that alternate; %s have, or leave "+
			"plan.overlap_microbatches out", strings.Join(pairing(), ", "))
	case x.Memory < 0 || math.IsNaN(x.Memory):
		return x, fmt.Errorf("a memory of %v activations", x.Memory)
	case x.Split != nil && len(x.Split) != x.Micro:
		return x, fmt.Errorf("chunks of %d microbatches, not %d", len(x.Split), x.Micro)
	}
	for m, k := range x.Split {
		if k < 1 || k >= 1<<15 || s.Fits == nil && k > 1 {
			return x, fmt.Errorf("%d chunks of microbatch %d: chunks are for chunkpipe and seq1f1b; "+
				"set plan.schedule to one of them, or plan.chunk_size to 0", k, m)
		}
	}
	if x.Costs != nil {
		if err := x.Costs.Check(x.Ranks * x.Loops); err != nil {
			return x, err
		}
	}
	if s.Fits != nil {
		return x, s.Fits(x)
	}
	return x, nil
}

// pairing lists the schedules that can put forwards and backwards into one entry.
func pairing() (out []string) {
	for _, name := range Names() {
		if all[name].Pairs && all[name].Runs {
			out = append(out, name)
		}
	}
	return
}

// chain is an empty program of one stage a rank.
func chain(s Shape) *plan.Program {
	return placed(s, 1, func(stage int) int { return stage })
}

// placed is an empty program of loops stages a rank, placed by rank.
func placed(s Shape, loops int, rank func(stage int) int) *plan.Program {
	p := &plan.Program{Rows: make([][]plan.Entry, s.Ranks), Micro: s.Micro, Chunks: s.Split}
	for i := range s.Ranks * loops {
		p.StageRank = append(p.StageRank, rank(i))
	}
	return p
}

func entry(k plan.Kind, stage, micro int) plan.Entry {
	return plan.Entry{Action: act(k, stage, micro)}
}

func act(k plan.Kind, stage, micro int) plan.Action {
	return plan.Action{Kind: k, Stage: int16(stage), Micro: int32(micro)}
}

// costs are the shape's, or equal ones.
func (s Shape) costs() plan.Costs {
	if s.Costs != nil {
		return *s.Costs
	}
	return plan.Costs{}
}
