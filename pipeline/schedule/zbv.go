package schedule

import "github.com/lfactor/lfactor/pipeline/plan"

var _ = register(Schedule{
	Name: "zb-v", Paper: "2401.10241", Build: zbv, Runs: true, Loops: 2,
	Time: func(s Shape, u Unit) float64 { return float64(s.Micro) * u.Sum() },
	Of:   Longest, When: unitTimes,
	Live: func(s Shape, rank int) int { return 4 * s.Ranks }, LiveBound: true,
})

// zbv is the zero-bubble schedule on a V: both stages of a rank share its memory, so that every rank holds
// what 1F1B's first rank holds, and the last microbatch's backward ends where its forward began.
func zbv(s Shape) (*plan.Program, error) {
	p := vPlace(s)
	for r := range s.Ranks {
		v := &vRow{near: r, far: 2*s.Ranks - 1 - r, micro: s.Micro}
		for range 2*(s.Ranks-r) - 1 {
			v.f(0)
		}
		for range r {
			v.f(1)
			v.f(0)
		}
		for range s.Ranks - r {
			v.f(1)
			v.i(1)
			v.w(1)
		}
		for v.n[plan.F][1] < s.Micro || v.n[plan.F][0] < s.Micro {
			v.f(0)
			v.i(0)
			v.w(0)
			v.f(1)
			v.i(1)
			v.w(1)
		}
		for range r {
			v.i(0)
			v.i(1)
		}
		for range s.Ranks - r {
			v.i(0)
			v.w(0)
		}
		for range s.Micro {
			v.i(0)
			v.i(1)
			v.w(1)
		}
		for range s.Micro {
			v.w(0)
		}
		p.Rows[r] = v.row
	}
	return p, nil
}

// vRow is a row under construction: passes of both stages are counted off, and one that is not possible is left out.
type vRow struct {
	near, far, micro int
	n                [plan.Step][2]int
	row              []plan.Entry
}

// add appends the next action of kind k on the near or the far stage of the row, unless that many have run.
func (v *vRow) add(k plan.Kind, which, before int) {
	if v.n[k][which] < before {
		v.row = append(v.row, entry(k, []int{v.near, v.far}[which], v.n[k][which]))
		v.n[k][which]++
	}
}

func (v *vRow) f(which int) { v.add(plan.F, which, v.micro) }
func (v *vRow) i(which int) { v.add(plan.I, which, v.n[plan.F][which]) }
func (v *vRow) w(which int) { v.add(plan.W, which, v.n[plan.I][which]) }
