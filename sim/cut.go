package sim

import (
	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// cutter finds the parts of a run, and what is known of their ranks' work beforehand.
type cutter struct {
	*folder
	s      *Sim
	root   []int32
	known  map[*actors.Ref]int32 // groups by their list's first element: layouts share lists
	joined []bool                // by group
	prices map[commKey]int64
	job    actors.Job
}

// commKey is a collective of a group.
type commKey struct {
	group int32
	bytes int64
	apart bool
}

func newCutter(s *Sim) *cutter {
	c := &cutter{folder: newFolder(s.l, &s.p), s: s, known: map[*actors.Ref]int32{},
		prices: map[commKey]int64{}, root: make([]int32, len(s.l.Ranks))}
	c.number()
	for i := range c.root {
		c.root[i] = int32(i)
	}
	c.in = make([][]int32, len(c.root))
	all := make([]int32, 0, len(c.root)*2)
	for r, l := range s.l.Ranks {
		first := len(all)
		for _, g := range l.Groups {
			all = append(all, c.numberOf(g.Members))
		}
		c.in[r] = all[first:len(all):len(all)]
	}
	c.joined = make([]bool, len(c.groups))
	return c
}

// numberOf numbers a set of members.
func (c *cutter) numberOf(members []actors.Ref) int32 {
	i, known := c.known[&members[0]]
	if !known {
		i = c.group(members)
		c.known[&members[0]] = i
	}
	return i
}

// find is the rank by which a part goes.
func (c *cutter) find(r int32) int32 {
	for c.root[r] != r {
		c.root[r] = c.root[c.root[r]]
		r = c.root[r]
	}
	return r
}

func (c *cutter) unite(a, b int32) {
	a, b = c.find(a), c.find(b)
	c.root[max(a, b)] = min(a, b)
}

// join makes parts of ranks that meet between two steps.
func (c *cutter) join() {
	for _, ranks := range c.loads {
		for _, r := range ranks {
			c.unite(ranks[0], r)
		}
	}
	users := []int32{}
	use := func(r, port int32) {
		for int(port) >= len(users) {
			users = append(users, -1)
		}
		if port >= 0 {
			if users[port] >= 0 {
				c.unite(users[port], r)
			}
			users[port] = r
		}
	}
	for r, l := range c.l.Ranks {
		r := int32(r)
		c.peers(r, func(peer int32) {
			c.unite(r, peer)
			for _, x := range [...]Link{c.p.Link(int(r), int(peer)), c.p.Link(int(peer), int(r))} {
				use(r, x.Out)
				use(r, x.In)
			}
		})
		classes, _ := c.classes(r)
		for _, a := range c.row(r).actions {
			for _, class := range classes {
				for _, s := range l.Lower(a, false, class) {
					for i := range s.Comms {
						c.meet(c.in[r][s.Comms[i].Group])
					}
				}
			}
		}
	}
	c.s.ports = make([]int64, len(users))
}

// meet unites a group's ranks.
func (c *cutter) meet(g int32) {
	if c.joined[g] {
		return
	}
	c.joined[g] = true
	for _, r := range c.groups[g].ranks {
		c.unite(c.groups[g].ranks[0], r)
	}
}

// price is what a collective takes.
func (c *cutter) price(g int32, comm *core.Comm) int64 {
	ranks := c.groups[g].ranks
	if len(ranks) < 2 {
		return 0
	}
	k := commKey{g, comm.Bytes, comm.Apart}
	took, known := c.prices[k]
	if !known {
		all := make([]int, len(ranks))
		for i, r := range ranks {
			all[i] = int(r)
		}
		took = c.p.Collective(all, comm.Bytes, comm.Apart)
		c.prices[k] = took
	}
	return took
}

// courseKey finds the course of ranks that do the same in the same times.
type courseKey struct {
	row rowKey
	h   uint64
}

// courses gives each rank what courseOf says of it.
func (c *cutter) courses(homes []int32) [][]int64 {
	out, known := make([][]int64, len(c.l.Ranks)), map[courseKey][]int64{}
	spans := make([]bool, len(c.groups))
	for i := range c.groups {
		for _, r := range c.groups[i].ranks {
			spans[i] = spans[i] || homes[c.l.RankRefs[r]] != homes[c.l.RankRefs[c.groups[i].ranks[0]]]
		}
	}
	took := map[plan.Action]int64{}
	for r, l := range c.l.Ranks {
		k := courseKey{row: rowKey{l.Program, l.Row}}
		for _, a := range c.row(int32(r)).actions {
			took[a] = c.least(int32(r), a)
			k.h = mix(k.h, uint64(took[a]))
		}
		if known[k] == nil {
			known[k] = courseOf(l, took, func(a plan.Action) bool { return c.begins(int32(r), a, spans) })
		}
		out[r] = known[k]
	}
	return out
}

// courseOf is, by entry of a rank's row, the least time from its beginning to when the hub hears of the rank;
// took is by action of any microbatch, and begins says whether the hub hears of an action.
func courseOf(l *core.RankLayout, took map[plan.Action]int64, begins func(plan.Action) bool) []int64 {
	row := l.Program.Rows[l.Row]
	out := make([]int64, len(row)+2)
	for i := len(row) - 1; i >= 0; i-- {
		longest, heard := int64(0), false
		for _, a := range [...]plan.Action{row[i].Action, row[i].With} {
			if a.Kind != plan.None {
				heard = heard || begins(a)
				a.Micro = 0
				longest = max(longest, took[a])
			}
		}
		if !heard {
			out[i] = longest + out[i+1]
		}
	}
	return out
}

// begins reports whether an action begins an exchange of the optimizer step in which ranks of several parts take part.
func (c *cutter) begins(r int32, a plan.Action, spans []bool) bool {
	l := c.l.Ranks[r]
	if l.Early == nil {
		return false
	}
	classes, _ := c.classes(r)
	for _, class := range classes {
		for i := range l.Lower(a, false, class) {
			for _, k := range l.Early.Of(a, class, int32(i)) {
				if spans[c.in[r][l.Update[l.Early.Segment].Comms[k].Group]] {
					return true
				}
			}
		}
	}
	return false
}

// least is how long an action of any microbatch takes at least.
func (c *cutter) least(r int32, a plan.Action) int64 {
	l, least := c.l.Ranks[r], int64(never)
	classes, _ := c.classes(r)
	j := &c.job
	j.Kind, j.Action, j.Step = actors.RunSegment, a, c.l.Run.First
	for _, class := range classes {
		segs := l.Lower(a, false, class)
		var short [16]int64
		ends := append(short[:0], make([]int64, len(segs))...)
		at := int64(0)
		for i := range segs {
			for _, x := range segs[i].Await {
				comm := &segs[x.Segment].Comms[x.Comm]
				at = max(at, ends[x.Segment]+c.price(c.in[r][comm.Group], comm))
			}
			j.Class, j.Segment = class, int32(i)
			at += c.p.Job(int(r), j, &segs[i])
			ends[i] = at
		}
		least = min(least, at)
	}
	return least
}
