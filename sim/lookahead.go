package sim

import "github.com/lfactor/lfactor/actors"

// lookahead guesses how long the hub of a run that is apart will say nothing. The coordinator answers when
// all ranks have said what it waits for, and its answer takes its way; a collective ends when its last member
// has brought its part, and takes its time. No rank is heard of by the hub before it has gone through the
// rest of its program, which takes the jobs' and the collectives' time.
type lookahead struct {
	courses  [][]int64 // by rank: as courseOf says
	offset   []int64   // by rank: from its part's next event until the hub hears of it, at least
	said     []bool    // by rank: the coordinator does not wait for it
	reply    int64     // the least time from the coordinator to a rank
	meetings []meeting
}

// meeting is a collective of several parts.
type meeting struct {
	c    *group
	took int64 // at least
}

// look notes how far a part's ranks are.
func (f *lookahead) look(s *Sim) {
	for _, r := range s.ranks {
		begun, under, said := s.nodes[r].rank.Ahead()
		course := f.courses[r]
		if f.said[r], f.offset[r] = said, course[begun]; under && course[begun-1] == 0 {
			f.offset[r] = 0
		}
	}
}

// of is the earliest time at which the hub hears of a rank.
func (x *partition) of(hub *Sim, r int) int64 {
	next := x.parts[hub.homes[hub.l.RankRefs[r]]-1].next
	if next == never {
		return never
	}
	return next + x.sight.offset[r]
}

// horizon is how far all may go; never if nothing is left to happen.
func (x *partition) horizon(hub *Sim) int64 {
	first := int64(never)
	for _, p := range x.parts {
		first = min(first, p.next)
	}
	f, word, other := &x.sight, int64(-1), int64(never) // pending
	for i := range x.mail.heap {
		l := &x.mail.heap[i]
		if k := hub.flight(l.msg).kind; k == actors.Ready || k == actors.Closed {
			word = max(word, l.at)
		} else {
			other = min(other, l.at)
		}
	}
	if len(x.mail.heap) > 0 {
		first = min(first, x.mail.heap[0].at)
	}
	if first == never {
		return never
	}
	for r, said := range f.said {
		if !said {
			word = max(word, x.of(hub, r))
		}
	}
	if word < 0 {
		word = first
	}
	end := min(later(word, f.reply), other)
	for i := range f.meetings {
		m := &f.meetings[i]
		end = min(end, later(x.met(hub, m.c), m.took))
	}
	return max(end, first+1)
}

// later is a time and so much more.
func later(at, by int64) int64 {
	if at > never-by {
		return never - 1
	}
	return at + by
}

// met is the earliest time at which a collective has all parts that it lacks.
func (x *partition) met(hub *Sim, c *group) int64 {
	if len(c.open) == 0 {
		last := int64(0)
		for _, r := range c.ranks {
			last = max(last, x.of(hub, r))
		}
		return last
	}
	first := int64(never)
	for i := range c.open {
		last := int64(0)
		for k, r := range c.ranks {
			if !c.open[i].came[k] {
				last = max(last, x.of(hub, r))
			}
		}
		first = min(first, last)
	}
	return first
}
