package schedule

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/pipeline/plan"
)

var _ = register(Schedule{
	Name: "v-half", Paper: "2405.15362", Runs: true, Loops: 2,
	Build: func(s Shape) (*plan.Program, error) {
		t := 0
		if s.Ranks%2 == 0 {
			t = 3
		}
		return controllable(s, s.Ranks/2+1, func(p, r int) [4]int {
			return [4]int{2 * r, 3*p - r - 2, 3*p + t + 2*r - 1, 6*p + t - r - 2}
		})
	},
	Time: func(s Shape, u Unit) float64 { return float64(s.Micro)*u.Sum() + (1.5*float64(s.Ranks)-3.5)*u.F },
	Of:   Longest, When: powersOfTwo,
	Live: func(s Shape, rank int) int { return 4 * ((s.Ranks + 2) / 2) }, LiveBound: true,
})

var _ = register(Schedule{
	Name: "v-min", Paper: "2405.15362", Runs: true, Loops: 2,
	Build: func(s Shape) (*plan.Program, error) {
		t := 0
		if s.Ranks%3 == 0 {
			t = 2
		}
		return controllable(s, (s.Ranks+4)/3, func(p, r int) [4]int {
			return [4]int{r, 2*p - r - 1, 2*p + t + r, 4*p + t - r - 1}
		})
	},
	Time: func(s Shape, u Unit) float64 { return float64(s.Micro)*u.Sum() + (2*float64(s.Ranks)-2.5)*u.F },
	Of:   Longest, When: powersOfTwo,
	Live: func(s Shape, rank int) int { return 4 * ((s.Ranks + 4) / 3) }, LiveBound: true,
})

// powersOfTwo are the pipelines for which the paper's lengths were taken, with equal passes.
func powersOfTwo(s Shape, u Unit) bool {
	return s.Ranks >= 4 && s.Ranks&(s.Ranks-1) == 0 && unitTimes(s, u)
}

// controllable repeats a building block: the starts of both forwards, then of the backwards of the second and first
// stage. The block alone bounds what a rank holds; limit is that bound in microbatches. Of the block's order and the
// one in which a rank may run its other stage's pass when that is ready earlier, the shorter counts.
func controllable(s Shape, limit int, starts func(ranks, rank int) [4]int) (*plan.Program, error) {
	if s.Memory > 0 {
		limit = int(s.Memory)
	}
	var best *plan.Program
	length := math.Inf(1)
	for _, eager := range []bool{false, true} {
		p := vPlace(s)
		rows := make([][]plan.Action, s.Ranks)
		for r := range s.Ranks {
			b, far := starts(s.Ranks, r), 2*s.Ranks-1-r
			rows[r] = repeat([]slot{{plan.F, r, b[0]}, {plan.F, far, b[1]}, {plan.I, far, b[2]},
				{plan.I, r, b[3]}}, s.Micro)
		}
		fillW(p, rows, s.costs(), 4*limit, eager)
		t, err := p.Evaluate(s.costs())
		if err != nil {
			return nil, err
		}
		if t.Longest < length && (best == nil || slices.Max(t.Peak) <= 4*limit) {
			best, length = p, t.Longest
		}
	}
	return best, nil
}
