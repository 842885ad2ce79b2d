package search

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
)

// policy decides what a rank runs next when several passes are possible.
type policy struct {
	gap   float64 // a W is run before the next pass if that leaves at least this share of the W's length idle
	slope float64 // how many fewer forwards in flight each rank may have than the one before
	back  bool    // a backward goes before a forward that could begin earlier by less than its own length
}

// String describes the policy.
func (p policy) String() string {
	return fmt.Sprintf("greedy gap %g slope %g backward-first %v", p.gap, p.slope, p.back)
}

var policies = func() (out []policy) {
	for _, slope := range []float64{0, 1, 2} {
		for _, gap := range []float64{1, 0.7, 0.35, 0.05} {
			for _, back := range []bool{false, true} {
				out = append(out, policy{gap: gap, slope: slope, back: back})
			}
		}
	}
	return
}()

// The passes of a microbatch on a rank.
const (
	passF = iota
	passI
	passW
	passes
)

// run builds a program event by event: of all ranks' next passes the one that begins first is placed, so
// that no choice depends on a later one. Memory is held within limit, and enough of it is kept for the
// oldest microbatch to come back. It returns nil where the policy locks itself.
func run(s schedule.Shape, pol policy, limit int) *plan.Program {
	g := &walk{s: s, pol: pol, clock: make([]float64, s.Ranks), held: make([]int, s.Ranks), limit: limit,
		next: make([]choice, s.Ranks)}
	g.p = &plan.Program{Rows: make([][]plan.Entry, s.Ranks), Micro: s.Micro}
	for k, kind := range []plan.Kind{plan.F, plan.I, plan.W} {
		g.n[k] = make([]int, s.Ranks)
		for r := range s.Ranks {
			g.cost[k] = append(g.cost[k], s.Costs.Of(plan.Action{Kind: kind, Stage: int16(r)}))
			g.end[k] = append(g.end[k], make([]float64, s.Micro))
		}
	}
	for r := range s.Ranks {
		g.p.StageRank = append(g.p.StageRank, r)
		g.p.Rows[r] = make([]plan.Entry, 0, 3*s.Micro)
	}
	for r := range s.Ranks {
		g.next[r] = g.choose(r)
	}
	for range passes * s.Ranks * s.Micro {
		best := 0
		for r := range s.Ranks {
			if g.next[r].at < g.next[best].at {
				best = r
			}
		}
		if math.IsInf(g.next[best].at, 1) {
			return nil
		}
		g.put(best, g.next[best])
		for r := max(0, best-1); r <= min(s.Ranks-1, best+1); r++ {
			g.next[r] = g.choose(r)
		}
	}
	return g.p
}

// choice is a pass and when it begins.
type choice struct {
	pass int
	at   float64
}

// walk is the state of building a schedule by a policy: what each rank has run, until when, and
// what it holds in half activations.
type walk struct {
	s     schedule.Shape
	p     *plan.Program
	pol   policy
	cost  [passes][]float64
	n     [passes][]int
	end   [passes][][]float64
	clock []float64
	held  []int
	limit int
	next  []choice
}

var never = math.Inf(1)

// begin is when rank r's next pass of a kind may begin, never while its input has no time.
func (g *walk) begin(pass, r int) float64 {
	i := g.n[pass][r]
	switch {
	case i == g.s.Micro:
		return never
	case pass == passF && r > 0:
		if g.n[passF][r-1] <= i {
			return never
		}
		return max(g.clock[r], g.end[passF][r-1][i]+g.s.Costs.Comm)
	case pass == passI && g.n[passF][r] <= i:
		return never
	case pass == passI && r < g.s.Ranks-1:
		if g.n[passI][r+1] <= i {
			return never
		}
		return max(g.clock[r], g.end[passI][r+1][i]+g.s.Costs.Comm)
	case pass == passW && g.n[passI][r] <= i:
		return never
	}
	return g.clock[r]
}

// room reports whether a forward may begin: within memory, and within the rank's share of forwards in flight.
func (g *walk) room(r int) bool {
	flight := g.n[passF][r] - g.n[passI][r]
	most := max(1, g.limit/2-int(g.pol.slope*float64(r)))
	return g.held[r]+2 <= g.limit && flight < most
}

// choose picks rank r's next pass.
func (g *walk) choose(r int) choice {
	f, i, w := g.begin(passF, r), g.begin(passI, r), g.begin(passW, r)
	if !g.room(r) {
		if g.held[r]+2 > g.limit && w < never && i > g.clock[r] { // a W makes room
			return choice{passW, w}
		}
		f = never
	}
	first := choice{passI, i}
	if f < i && !(g.pol.back && i < f+g.cost[passF][r]) {
		first = choice{passF, f}
	}
	if w < never && first.at-w >= g.pol.gap*g.cost[passW][r] && first.at > w {
		return choice{passW, w}
	}
	return first
}

// put runs choice c on rank r. A forward holds two half activations more, an input gradient and a
// weight gradient one less each.
func (g *walk) put(r int, c choice) {
	i := g.n[c.pass][r]
	g.clock[r] = c.at + g.cost[c.pass][r]
	g.end[c.pass][r][i] = g.clock[r]
	g.n[c.pass][r]++
	g.held[r] += [passes]int{2, -1, -1}[c.pass]
	kind := [passes]plan.Kind{plan.F, plan.I, plan.W}[c.pass]
	g.p.Rows[r] = append(g.p.Rows[r], plan.Entry{Action: plan.Action{Kind: kind, Stage: int16(r), Micro: int32(i)}})
}
