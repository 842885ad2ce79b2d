package core

import "github.com/lfactor/lfactor/pipeline/plan"

// Ahead is how far a rank is, for a driver that looks ahead: how many entries of its row it has begun since
// its step was opened, the optimizer step among them; whether the last of them is under way; and whether the
// coordinator has heard all that it waits for from this rank.
func (r *Rank) Ahead() (begun int, under, said bool) {
	if r.phase != working {
		return 0, false, true
	}
	c := &r.cur[0]
	said = r.under > 0 && c.a.Kind == plan.Step && c.pc > 0 && c.segs[c.pc-1].Ready && r.verdict == nil
	return int(r.pc), r.under > 0, said
}
