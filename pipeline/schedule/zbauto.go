package schedule

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/pipeline/plan"
)

var _ = register(Schedule{
	Name: "zb-1p", Paper: "2401.10241", Build: func(s Shape) (*plan.Program, error) { return zbAuto(s, 1) },
	Runs: true, Loops: 1, Follows: true,
	Time: func(s Shape, u Unit) float64 {
		return float64(s.Micro)*u.Sum() + float64(s.Ranks-1)*(u.F+u.I-u.W)
	},
	Of: Longest, AtMost: true, When: unitTimes,
	Live: limitOf(1), LiveBound: true,
})

var _ = register(Schedule{
	Name: "zb-2p", Paper: "2401.10241", Build: func(s Shape) (*plan.Program, error) { return zbAuto(s, 2) },
	Runs: true, Loops: 1, Follows: true,
	Time: func(s Shape, u Unit) float64 { return float64(s.Micro) * u.Sum() },
	Of:   Longest, AtMost: true, When: unitTimes,
	Live: limitOf(2), LiveBound: true,
})

// limitOf is the memory limit in half activations: the shape's own, or share times what 1F1B holds on its first rank.
func limitOf(share int) func(s Shape, rank int) int {
	return func(s Shape, rank int) int {
		if s.Memory > 0 {
			return int(2 * s.Memory)
		}
		return 2 * share * s.Ranks
	}
}

// zbAuto is the automatic schedule of the paper's section 3.1 under a memory limit, by greedy construction under eight
// combinations of its choices; the one with the shortest longest span wins, the earlier of equals.
func zbAuto(s Shape, share int) (*plan.Program, error) {
	limit := limitOf(share)(s, 0)
	var best *plan.Program
	span, fault := math.Inf(1), error(nil)
	for choice := range 8 {
		g := newGreedy(s, limit)
		g.fillBefore, g.keepBack, g.fillSmall = choice&4 == 0, choice&2 == 0, choice&1 == 0
		if err := g.build(); err != nil {
			fault = err
			continue
		}
		if x := g.longest(); x < span {
			best, span = g.p, x
		}
	}
	if best == nil {
		return nil, fault
	}
	return best, nil
}

// greedy builds rows and their times together, one microbatch's round of forwards and backwards after the other.
type greedy struct {
	s     Shape
	p     *plan.Program
	cost  [3][]float64 // of F, I and W by rank
	comm  float64
	limit int
	n     [3][]int       // passes placed, by kind and rank
	end   [3][][]float64 // of each
	clock []float64
	held  []int
	idle  []float64 // since the rank's first forward
	worst float64   // the most of idle
	// the paper's choices
	fillBefore bool // before the first backward, only forwards that end before it can begin
	keepBack   bool // leave out a forward that would delay the next rank's backward for no gain
	fillSmall  bool // run a W into a gap shorter than itself even on a rank that has idled less than others
}

const (
	kF = iota
	kI
	kW
)

// newGreedy prepares the search under a memory limit that counts half activations per rank.
func newGreedy(s Shape, limit int) *greedy {
	c := s.costs()
	g := &greedy{s: s, p: chain(s), comm: c.Comm, limit: limit, clock: make([]float64, s.Ranks),
		held: make([]int, s.Ranks), idle: make([]float64, s.Ranks)}
	for k, kind := range []plan.Kind{plan.F, plan.I, plan.W} {
		g.n[k] = make([]int, s.Ranks)
		for r := range s.Ranks {
			g.cost[k] = append(g.cost[k], c.Of(act(kind, r, 0)))
			g.end[k] = append(g.end[k], make([]float64, s.Micro))
		}
	}
	for r := range g.p.Rows {
		g.p.Rows[r] = make([]plan.Entry, 0, 3*s.Micro)
	}
	return g
}

var deltas = [3]int{2, -1, -1} // half activations taken by F, I and W

// arrives is when the input of rank's next pass of kind k is there.
func (g *greedy) arrives(k, r int) float64 {
	i := g.n[k][r]
	switch {
	case k == kF && r > 0:
		return g.end[kF][r-1][i] + g.comm
	case k == kI && r < g.s.Ranks-1:
		return g.end[kI][r+1][i] + g.comm
	}
	return 0
}

// put appends the next action of kind k to rank r. Idle time before the first forward is left out
// of the sum, because no order of actions avoids it.
func (g *greedy) put(k, r int) {
	i, begin := g.n[k][r], max(g.clock[r], g.arrives(k, r))
	if g.n[kF][r] > 0 {
		g.idle[r] += begin - g.clock[r]
		g.worst = max(g.worst, g.idle[r])
	}
	g.clock[r] = begin + g.cost[k][r]
	g.end[k][r][i] = g.clock[r]
	g.held[r] += deltas[k]
	g.n[k][r]++
	g.p.Rows[r] = append(g.p.Rows[r], entry([]plan.Kind{plan.F, plan.I, plan.W}[k], r, i))
}

// build lays out the rows: a warm-up, then rounds of a forward where it pays and a backward on
// every rank, and at last the weight gradients that are left.
func (g *greedy) build() error {
	if g.limit < 2 {
		return fmt.Errorf("a memory of %g activations holds no microbatch", float64(g.limit)/2)
	}
	g.warm()
	for range g.s.Micro - 1 {
		run := g.forwards()
		for r, f := range run {
			if f {
				if err := g.forward(r); err != nil {
					return err
				}
			}
		}
		for r := g.s.Ranks - 1; r >= 0; r-- {
			g.fill(kI, r)
			// Rank 0 has no forwards left to hide gaps behind, so it pays its debts before the next backward.
			if r == 0 && g.n[kF][0] == g.s.Micro {
				for g.n[kW][0] < g.n[kI][0] {
					g.put(kW, 0)
				}
			}
			g.put(kI, r)
		}
	}
	for r := range g.s.Ranks {
		for g.n[kW][r] < g.s.Micro {
			g.put(kW, r)
		}
	}
	return nil
}

// warm places the forwards before the first backward, as many as memory holds and the way of the first
// microbatch to the last rank and back takes, each rank more than the next; then that backward.
func (g *greedy) warm() {
	p := g.s.Ranks
	for r := range p {
		g.put(kF, r)
	}
	more := make([]int, p)
	back := g.end[kF][p-1][0] + g.cost[kI][p-1]
	for r := p - 2; r >= 0; r-- {
		t := g.clock[r]
		for held := g.held[r] + 2; 1+more[r] < g.s.Micro && held <= g.limit; held += 2 {
			if g.fillBefore && t+g.cost[kF][r] > back+g.comm || !g.fillBefore && t >= back+g.comm {
				break
			}
			t += g.cost[kF][r]
			more[r]++
		}
		back = max(t, back+g.comm) + g.cost[kI][r]
	}
	for r := 1; r < p; r++ {
		for more[r] > 0 && more[r] >= more[r-1] && 1+more[r] < g.s.Micro {
			more[r]--
		}
	}
	for r := range p {
		for range more[r] {
			g.put(kF, r)
		}
	}
	for r := p - 1; r >= 0; r-- {
		g.put(kI, r)
	}
}

// forwards decides which ranks run a forward in this round: a rank may leave one out only if all before it do.
func (g *greedy) forwards() []bool {
	run := make([]bool, g.s.Ranks)
	for r := range run {
		run[r] = g.n[kF][r] < g.s.Micro && !g.skips(r)
	}
	for r := g.s.Ranks - 2; r >= 0; r-- {
		run[r] = run[r] && run[r+1]
	}
	return run
}

// skips reports whether rank r, two forwards ahead of the next rank, should leave one out: it would end after the next
// rank's backward, and waiting for that costs no more idle time than the worst rank has anyway.
func (g *greedy) skips(r int) bool {
	if !g.keepBack || r+1 == g.s.Ranks || g.n[kF][r] < g.n[kF][r+1]+2 {
		return false
	}
	next := g.clock[r+1] + g.cost[kF][r+1] + g.cost[kI][r+1] + g.comm
	if g.clock[r] >= next {
		return true
	}
	need, ws := g.held[r]+2, 0
	for need > g.limit && g.n[kW][r]+ws < g.n[kI][r] {
		need--
		ws++
	}
	if g.clock[r]+g.cost[kF][r]+float64(ws)*g.cost[kW][r] <= next {
		return false
	}
	return next-g.clock[r] <= g.worst-g.idle[r]
}

// forward places a forward of r after the Ws that make room for it or fit before its input comes.
func (g *greedy) forward(r int) error {
	for g.held[r]+2 > g.limit {
		if g.n[kW][r] >= g.n[kI][r] {
			return fmt.Errorf("rank %d cannot hold %d microbatches in %g activations", r,
				g.n[kF][r]-g.n[kI][r]+1, float64(g.limit)/2)
		}
		g.put(kW, r)
	}
	g.fill(kF, r)
	g.put(kF, r)
	return nil
}

// fill runs the Ws that fit before the input of r's next pass of kind k comes, and one that does not fit
// where the gap would make the worst rank's idle time worse.
func (g *greedy) fill(k, r int) {
	if k == kF && r == 0 || k == kI && r == g.s.Ranks-1 {
		return
	}
	at := g.arrives(k, r)
	for g.n[kW][r] < g.n[kI][r] && g.clock[r]+g.cost[kW][r] <= at {
		g.put(kW, r)
	}
	if gap := at - g.clock[r]; g.n[kW][r] < g.n[kI][r] && gap > 0 && (g.fillSmall || gap > g.worst-g.idle[r]) {
		g.put(kW, r)
	}
}

// longest is the longest span of a rank.
func (g *greedy) longest() (span float64) {
	for r := range g.s.Ranks {
		span = max(span, g.clock[r]-g.end[kF][r][0]+g.cost[kF][r])
	}
	return
}
