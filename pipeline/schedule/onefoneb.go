package schedule

import "github.com/lfactor/lfactor/pipeline/plan"

var _ = register(Schedule{
	Name: "1f1b", Paper: "2104.04473", Build: oneFOneB, Runs: true, Loops: 1,
	Time: fillDrain,
	Live: func(s Shape, rank int) int { return 2 * min(s.Micro, s.Ranks-rank) },
})

// oneFOneB alternates one forward and one backward once each rank's warm-up forwards are in. It takes as
// long as gpipe and holds at most ranks-r activations on rank r.
func oneFOneB(s Shape) (*plan.Program, error) {
	p := chain(s)
	for r := range s.Ranks {
		warm := min(s.Micro, s.Ranks-r-1)
		for m := range warm {
			p.Rows[r] = append(p.Rows[r], entry(plan.F, r, m))
		}
		for m := range s.Micro {
			if m+warm < s.Micro {
				p.Rows[r] = append(p.Rows[r], entry(plan.F, r, m+warm))
			}
			p.Rows[r] = append(p.Rows[r], entry(plan.B, r, m))
		}
	}
	return p, nil
}
