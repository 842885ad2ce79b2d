package schedule

import "github.com/lfactor/lfactor/pipeline/plan"

var _ = register(Schedule{
	Name: "1f1b", Paper: "2104.04473", Build: oneFOneB, Runs: true, Loops: 1,
	Pairs: true,
	Time:  fillDrain,
	Live: func(s Shape, rank int) int {
		if s.Pairs {
			return 2 * min(s.Micro, 2*(s.Ranks-rank))
		}
		return 2 * min(s.Micro, s.Ranks-rank)
	},
})

// oneFOneB alternates one forward and one backward once each rank's warm-up forwards are in. It takes as long as gpipe
// and holds at most ranks-r activations on rank r, or twice as many if both are one entry: what such an entry gives
// comes when all of it has ended, so that a microbatch's way to the last stage and back has twice as many entries.
func oneFOneB(s Shape) (*plan.Program, error) {
	if s.Pairs {
		return interleaved(s)
	}
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
