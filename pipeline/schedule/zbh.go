package schedule

import "github.com/lfactor/lfactor/pipeline/plan"

var _ = register(Schedule{
	Name: "zb-h1", Paper: "2401.10241", Build: func(s Shape) (*plan.Program, error) {
		return handmade(s, 1)
	}, Runs: true, Loops: 1,
	Time: func(s Shape, u Unit) float64 {
		return float64(s.Micro)*u.Sum() + float64(s.Ranks-1)*(u.F+u.I-u.W)
	},
	Of: Longest, When: unitTimes,
	Live: func(s Shape, rank int) int { return 2 * min(s.Ranks, s.Micro) }, LiveBound: true,
})

var _ = register(Schedule{
	Name: "zb-h2", Paper: "2401.10241", Build: func(s Shape) (*plan.Program, error) {
		return handmade(s, 2)
	}, Runs: true, Loops: 1,
	Time: func(s Shape, u Unit) float64 {
		return float64(s.Micro)*u.Sum() + float64(s.Ranks-1)*(u.F+u.I-2*u.W)
	},
	Of: Longest, When: unitTimes,
	Live: func(s Shape, rank int) int { return 2 * min(2*s.Ranks-1, s.Micro) }, LiveBound: true,
})

// unitTimes are the costs for which the handmade schedules were made: F = I = W, and microbatches enough to
// fill the pipeline.
// In the words of the field: zero bubble.
func unitTimes(s Shape, u Unit) bool { return u.F == u.I && u.I == u.W && s.Micro >= 2*s.Ranks }

// handmade is 1F1B with the weight gradients moved behind: each rank keeps as many microbatches in flight as the first
// one, depth times what 1F1B keeps (less the last rank's one), and runs a W where the others would idle.
func handmade(s Shape, depth int) (*plan.Program, error) {
	p := chain(s)
	for r := range s.Ranks {
		warm := min(s.Micro, depth*(s.Ranks-r-1)+1)
		behind := depth * r
		row := make([]plan.Entry, 0, 3*s.Micro)
		f, w := warm, 0
		for m := range warm {
			row = append(row, entry(plan.F, r, m))
		}
		for m := range s.Micro {
			row = append(row, entry(plan.I, r, m))
			if m >= behind {
				row = append(row, entry(plan.W, r, w))
				w++
			}
			if f < s.Micro {
				row = append(row, entry(plan.F, r, f))
				f++
			}
		}
		for ; w < s.Micro; w++ {
			row = append(row, entry(plan.W, r, w))
		}
		p.Rows[r] = row
	}
	return p, nil
}
