package schedule

import (
	"iter"
	"math"
	"slices"

	"github.com/lfactor/lfactor/pipeline/plan"
)

// vPlace places stages in a V: rank r has stage r and, on the way back, stage 2·ranks-1-r.
func vPlace(s Shape) *plan.Program {
	return placed(s, 2, func(stage int) int { return min(stage, 2*s.Ranks-1-stage) })
}

// slot is one pass of a V schedule's building block: begin counts slots of one pass.
type slot struct {
	kind  plan.Kind
	stage int
	begin int
}

const blockPeriod = 6 // slots between microbatches: F, I and W of two stages

// repeat orders the passes of a rank: the block of microbatch m begins m periods later.
func repeat(block []slot, micro int) (out []plan.Action) {
	type timed struct {
		at int
		a  plan.Action
	}
	var all []timed
	for m := range micro {
		for _, b := range block {
			all = append(all, timed{b.begin + m*blockPeriod, act(b.kind, b.stage, m)})
		}
	}
	slices.SortStableFunc(all, func(a, b timed) int { return a.at - b.at })
	for _, x := range all {
		out = append(out, x.a)
	}
	return
}

// fillW completes rows of F and I with W: rows run as soon as possible, and a W goes where it fits before
// the next pass can begin, or where the rank's limit (in half activations) leaves no room for the next
// forward. Passes are taken in order of their start, so that a choice never depends on a later one.
func fillW(p *plan.Program, rows [][]plan.Action, c plan.Costs, limit int, eager bool) {
	f := &filler{p: p, c: c, limit: limit, eager: eager, end: map[plan.Action]float64{},
		clock: make([]float64, len(rows)), held: make([]int, len(rows)),
		owed: make([][]plan.Action, len(rows)), forwards: make([]int, len(rows))}
	for r := range rows {
		f.forwards[r] = 2 * p.Micro
	}
	for {
		best, which, at := -1, 0, math.Inf(1)
		for r, row := range rows {
			for i := range f.open(row, r) {
				if t := f.begin(r, row[i]); t < at {
					best, which, at = r, i, t
				}
			}
		}
		if best < 0 {
			break
		}
		a := rows[best][which]
		if len(f.owed[best]) > 0 && (f.clock[best]+c.Of(f.owed[best][0]) <= at || a.Kind == plan.F &&
			f.held[best]+2 > limit) {
			f.weight(best)
			continue
		}
		rows[best] = slices.Delete(rows[best], which, which+1)
		f.put(best, a, at)
	}
	for r := range rows {
		for len(f.owed[r]) > 0 {
			f.weight(r)
		}
	}
}

// open yields the passes of a row that may run next: the first, and the first of the rank's other stage: always if the
// filler is eager, else once the forwards are over, when nothing is gained by waiting for the steady order.
func (f *filler) open(row []plan.Action, r int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(row) == 0 || !yield(0) || !f.eager && (row[0].Kind != plan.I || f.forwards[r] > 0) {
			return
		}
		for i, a := range row {
			if a.Stage != row[0].Stage {
				yield(i)
				return
			}
		}
	}
}

type filler struct {
	eager    bool
	p        *plan.Program
	c        plan.Costs
	limit    int
	end      map[plan.Action]float64
	clock    []float64
	held     []int
	owed     [][]plan.Action // Ws whose I is done, in order
	forwards []int           // still to run
}

// begin is when rank r can start a, infinite while an input has no time yet.
func (f *filler) begin(r int, a plan.Action) float64 {
	t := f.clock[r]
	from := func(x plan.Action) {
		e, ok := f.end[x]
		if !ok {
			t = math.Inf(1)
			return
		}
		if f.p.StageRank[x.Stage] != r {
			e += f.c.Comm
		}
		t = max(t, e)
	}
	last := int16(len(f.p.StageRank) - 1)
	x := a
	switch {
	case a.Kind == plan.F && a.Stage > 0:
		x.Stage--
		from(x)
	case a.Kind == plan.I:
		x.Kind = plan.F
		from(x)
		if a.Stage < last {
			x = a
			x.Stage++
			from(x)
		}
	}
	return t
}

// put runs a on rank r from time at, and keeps the memory in units of half an activation: a forward
// adds two, an input gradient and a weight gradient free one each.
func (f *filler) put(r int, a plan.Action, at float64) {
	f.clock[r] = at + f.c.Of(a)
	f.end[a] = f.clock[r]
	f.p.Rows[r] = append(f.p.Rows[r], plan.Entry{Action: a})
	switch a.Kind {
	case plan.F:
		f.held[r] += 2
		f.forwards[r]--
	case plan.I:
		f.held[r]--
		a.Kind = plan.W
		f.owed[r] = append(f.owed[r], a)
	default:
		f.held[r]--
	}
}

// weight runs the oldest weight gradient that rank r owes, as soon as the rank is free.
func (f *filler) weight(r int) {
	a := f.owed[r][0]
	f.owed[r] = f.owed[r][1:]
	f.put(r, a, f.clock[r])
}
