package schedule

import "github.com/lfactor/lfactor/pipeline/plan"

var _ = register(Schedule{
	Name: "breadth-first", Paper: "2211.05953", Build: breadthFirst, Runs: true,
	Time: func(s Shape, u Unit) float64 {
		return float64(s.Micro)*u.Sum() + float64(s.Ranks-1)*u.Sum()/float64(s.Loops)
	},
	When: func(s Shape, _ Unit) bool { return s.Micro >= s.Ranks },
	Live: func(s Shape, rank int) int { return 2 * s.Micro * s.Loops },
})

// breadthFirst runs every microbatch through one of a rank's stages before the next, and back: gpipe with the smaller
// bubble of several stages a rank. Gradients of a stage are complete early, which suits sharded parameters.
func breadthFirst(s Shape) (*plan.Program, error) {
	p := placed(s, s.Loops, func(stage int) int { return stage % s.Ranks })
	for r := range s.Ranks {
		for _, k := range []plan.Kind{plan.F, plan.B} {
			for l := range s.Loops {
				if k == plan.B {
					l = s.Loops - 1 - l
				}
				for m := range s.Micro {
					p.Rows[r] = append(p.Rows[r], entry(k, l*s.Ranks+r, m))
				}
			}
		}
	}
	return p, nil
}
