package schedule

import "github.com/lfactor/lfactor/pipeline/plan"

var _ = register(Schedule{
	Name: "gpipe", Paper: "1811.06965", Build: gpipe,
	Ticks: func(s Shape, f, b int) int { return (s.Micro + s.Ranks - 1) * (f + b) },
	Live:  func(s Shape, rank int) int { return s.Micro },
})

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
