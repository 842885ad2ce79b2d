package schedule

import "github.com/lfactor/lfactor/pipeline/plan"

var _ = register(Schedule{
	Name: "gpipe", Paper: "1811.06965", Build: gpipe, Runs: true, Loops: 1,
	Time: fillDrain,
	Live: func(s Shape, rank int) int { return 2 * s.Micro },
})

// fillDrain is the length of a step whose ranks wait for the first microbatch to come and the last to leave.
func fillDrain(s Shape, u Unit) float64 { return float64(s.Micro+s.Ranks-1) * u.Sum() }

// gpipe runs every forward, then every backward: fill, then drain.
func gpipe(s Shape) (*plan.Program, error) {
	p := chain(s)
	for r := range s.Ranks {
		for _, k := range []plan.Kind{plan.F, plan.B} {
			for m := range s.Micro {
				p.Rows[r] = append(p.Rows[r], entry(k, r, m))
			}
		}
	}
	return p, nil
}
