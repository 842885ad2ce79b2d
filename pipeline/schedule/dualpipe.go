package schedule

import (
	"fmt"

	"github.com/lfactor/lfactor/pipeline/plan"
)

var _ = register(Schedule{
	Name: "dualpipe", Paper: "2412.19437", Build: dualPipe, Loops: 2, Pairs: true,
	Fits: func(s Shape) error {
		if s.Ranks%2 != 0 || s.Micro < s.Ranks {
			return fmt.Errorf("wants an even number of ranks and in each direction as many "+
				"microbatches; %d ranks have %d", s.Ranks, s.Micro)
		}
		return unchunked(s)
	},
	Time: func(s Shape, u Unit) float64 {
		return float64(s.Micro)*u.Sum() + float64(s.Ranks/2-1)*(u.F+2*u.I-u.W)/2
	},
	Of: Longest, When: func(s Shape, u Unit) bool { return u.F == u.I },
	Live: func(s Shape, rank int) int { return 2 * (s.Ranks + 1) }, LiveBound: true,
})

var _ = register(Schedule{
	Name: "dualpipev", Paper: "2412.19437", Build: dualPipeV, Runs: true, Loops: 2, Pairs: true,
	Fits: func(s Shape) error {
		if s.Micro < 2*s.Ranks {
			return fmt.Errorf("wants at least two microbatches a rank; %d ranks have %d", s.Ranks, s.Micro)
		}
		return unchunked(s)
	},
	Time: func(s Shape, u Unit) float64 {
		return float64(s.Micro)*u.Sum() + float64(s.Ranks-1)*(u.F+2*u.I-u.W)/2
	},
	Of: Longest, When: func(s Shape, u Unit) bool { return u.F == u.I },
	Live: func(s Shape, rank int) int { return 2 * (2*s.Ranks + 1) }, LiveBound: true,
})

// unchunked is an error if a microbatch is split into chunks, for schedules that have no order for them.
func unchunked(s Shape) error {
	for m, k := range s.Split {
		if k > 1 {
			return fmt.Errorf("%d chunks of microbatch %d: chunks are for chunkpipe and seq1f1b; "+
				"set plan.schedule to one of them, or plan.chunk_size to 0", k, m)
		}
	}
	return nil
}

// dualPipe feeds two copies of the model from both ends: stages 0 to ranks-1 are the one, ranks to 2·ranks-1
// the other, placed in opposite order. Micro counts the microbatches of each direction.
func dualPipe(s Shape) (*plan.Program, error) {
	n := s.Ranks
	p := placed(s, 2, func(stage int) int { return min(stage, 2*n-1-stage) })
	for i := range n - 1 {
		p.Edges = append(p.Edges, plan.Edge{From: i, To: i + 1}, plan.Edge{From: n + i, To: n + i + 1})
	}
	for r := range n {
		near, far, half := r, 2*n-1-r, min(r, n-1-r)
		if r >= n/2 {
			near, far = far, near
		}
		p.Rows[r] = dualRow(near, far, n/2-half-1, half+1, s.Micro-n+half+1, s.Micro)
	}
	return p, nil
}

// dualPipeV is DualPipe folded at its middle: one copy of the model on half the ranks, in a V.
func dualPipeV(s Shape) (*plan.Program, error) {
	p := vPlace(s)
	for r := range s.Ranks {
		p.Rows[r] = dualRow(r, 2*s.Ranks-1-r, s.Ranks-r-1, r+1, s.Micro-2*s.Ranks+r+1, s.Micro)
	}
	return p, nil
}

// dualRow is one rank's row by the eight steps of DualPipe: outer is how far the rank is from the middle,
// inner from the end, both with the middle and the end counted; pairs is the number of overlapped rounds.
func dualRow(near, far, outer, inner, pairs, micro int) []plan.Entry {
	d := &dual{vRow: vRow{near: near, far: far, micro: micro}}
	for range 2 * outer {
		d.f(0)
	}
	for range inner {
		d.f(0)
		d.f(1)
	}
	for range outer {
		d.i(1)
		d.weight()
		d.f(1)
	}
	for i := range pairs {
		if i == 0 && outer == 0 {
			d.f(0)
			d.b(1)
		} else {
			d.pair(0, 1)
		}
		d.pair(1, 0)
	}
	for range outer {
		d.b(1)
		d.pair(1, 0)
	}
	d.turn(inner)
	for range outer {
		d.weight()
		d.half(0)
	}
	for range inner {
		d.weight()
	}
	return d.row
}

// dual adds DualPipe's moves to a row: whole backwards, pairs, and weight gradients put off in one queue
// of both stages.
type dual struct {
	vRow
	owed []plan.Entry
}

func (d *dual) stage(which int) int { return []int{d.near, d.far}[which] }

// back is the next backward of a stage, of kind B or I.
func (d *dual) back(k plan.Kind, which int) plan.Entry {
	e := entry(k, d.stage(which), d.n[plan.I][which])
	d.n[plan.I][which]++
	return e
}

func (d *dual) b(which int) { d.row = append(d.row, d.back(plan.B, which)) }

func (d *dual) i(which int) { d.half(which) }

// half runs the input gradient now and owes the weight gradient.
func (d *dual) half(which int) {
	e := d.back(plan.I, which)
	d.row = append(d.row, e)
	e.Kind = plan.W
	d.owed = append(d.owed, e)
}

// weight runs the oldest weight gradient that was put off, to fill a gap of the row.
func (d *dual) weight() {
	d.row = append(d.row, d.owed[0])
	d.owed = d.owed[1:]
}

// pair overlaps the next forward of one stage with the next backward of the other.
func (d *dual) pair(f, b int) {
	e := entry(plan.F, d.stage(f), d.n[plan.F][f])
	d.n[plan.F][f]++
	e.With = d.back(plan.B, b).Action
	d.row = append(d.row, e)
}

// turn runs inner backwards of each stage; from its middle on they are input gradients only.
func (d *dual) turn(inner int) {
	whole := true
	run := func(which int) {
		if whole {
			d.b(which)
		} else {
			d.half(which)
		}
	}
	for i := range inner {
		if i == inner/2 && inner%2 == 0 {
			whole = false
		}
		run(1)
		if i == inner/2 && inner%2 == 1 {
			whole = false
		}
		run(0)
	}
}
