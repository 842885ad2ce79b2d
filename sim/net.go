package sim

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
)

// send carries a message over the link of its actors' devices.
func (s *Sim) send(to actors.Ref, m *actors.Message) {
	late := int64(0)
	if s.faults.any {
		var gone bool
		if gone, late = s.faults.strike(s, to, m); gone {
			if s.o.Notice > 0 {
				s.post(s.now+s.o.Notice, s.l.Coordinator, &actors.Message{Kind: actors.Broken, From: m.From,
					Epoch: m.Epoch, Text: "a message was lost"})
			}
			s.drop(m)
			return
		}
	}
	if s.o.Mutate != nil {
		s.sendPlanted(to, *m, late)
		return
	}
	at := s.due(s.arrival(int(s.rankOf[m.From]), int(s.rankOf[to]), m)+late, to, m)
	s.post(at, to, m)
	if s.o.Wait && (m.Kind == actors.Activation || m.Kind == actors.Cotangent) {
		free := &s.cells[m.From].free[actors.Compute]
		*free = max(*free, at+synchronize)
	}
	if s.faults.doubles {
		s.faults.echo(s, at, to, m)
	}
}

// synchronize is what a rank that waits for its sends takes besides, in nanoseconds: Megatron-LM has host and
// device wait for each other behind each exchange (batch_p2p_sync, p2p_communication.py). It is what 223
// steps say that vTrain's authors measured on A100s (a message between stages of `lfactor sim predict`).
const synchronize = 66_000

// due is when a message that would be there at a time is there if messages without data may be late.
func (s *Sim) due(at int64, to actors.Ref, m *actors.Message) int64 {
	if s.o.Late <= 0 || m.Payload != nil || to == m.From || to == s.l.Observer {
		return at
	}
	// an epoch has connections of its own
	pair := mix(uint64(m.Epoch), uint64(uint32(m.From))<<32|uint64(uint32(to)))
	at = max(at+s.rng.Int64N(s.o.Late+1), s.orders[pair])
	s.orders[pair] = at
	return at
}

// sendPlanted sends a message that a test may change, lose or double.
func (s *Sim) sendPlanted(to actors.Ref, m actors.Message, late int64) {
	fate := s.o.Mutate(to, &m)
	if fate == Lose {
		s.drop(&m)
		return
	}
	at := s.due(s.arrival(int(s.rankOf[m.From]), int(s.rankOf[to]), &m)+late, to, &m)
	if fate == Twice {
		if m.Payload != nil {
			m.Payload.Retain()
		}
		s.post(at, to, &m)
	}
	s.post(at, to, &m)
}

// noPlace is the rank of an actor that is nowhere, as one that stands for a collective: what takes time
// is the collective.
const noPlace = -2

// arrival is when a message that leaves now is there: data queues for the connections that both ends share with others.
func (s *Sim) arrival(from, to int, m *actors.Message) int64 {
	if s.p.Link == nil || from < 0 && to < 0 || to == noPlace {
		return s.now
	}
	l := s.p.Link(from, to)
	if s.faults.any {
		l = s.faults.link(from, to, l)
	}
	if m.Payload == nil || from < 0 || to < 0 {
		return s.now + l.Latency
	}
	_, there, _ := s.transfer(from, to, m.Payload.Bytes())
	return there
}

// collectives gives every group of ranks an actor that stands for its collectives: each member sends it one
// part, and when all have come it sends each one part back after the collective's modelled time. Behaviours
// see a group of one member.
func (s *Sim) collectives() []*core.RankLayout {
	all := map[*group][]actors.Ref{}
	known := map[*actors.Ref]*group{} // by the list's first element: layouts share lists
	byContent := map[groupKey][]*group{}
	find := func(members []actors.Ref) *group {
		first := &members[0]
		if c := known[first]; c != nil {
			return c
		}
		key := keyOf(members)
		for _, c := range byContent[key] {
			if slices.Equal(all[c], members) {
				known[first] = c
				return c
			}
		}
		c := &group{s: s, members: s.kept(members), alone: [1]actors.Ref{s.add()}}
		s.rankOf[c.alone[0]] = noPlace
		for _, m := range members {
			c.ranks = append(c.ranks, int(s.rankOf[m]))
		}
		s.settle(c)
		s.spawn(c.alone[0], "collective of "+s.nameOfGroup(c.ranks), c)
		known[first], all[c] = c, members
		byContent[key] = append(byContent[key], c)
		return c
	}
	n := 0
	for _, l := range s.l.Ranks {
		n += len(l.Groups)
	}
	copies, groups, out := make([]core.RankLayout, len(s.l.Ranks)), make([]core.Group, 0, n),
		make([]*core.RankLayout, len(s.l.Ranks))
	for i, l := range s.l.Ranks {
		x := &copies[i]
		*x = *l
		if !s.fold.runs(i) {
			continue
		}
		first := len(groups)
		for _, g := range l.Groups {
			if len(g.Members) > 1 {
				g = core.Group{Members: find(g.Members).alone[:]}
			}
			groups = append(groups, g)
		}
		x.Groups, out[i] = groups[first:len(groups):len(groups)], x
	}
	return out
}

// groupKey tells sets of members apart without comparing them all: by size, first, last, and a hash
// of the members in order.
type groupKey struct {
	n           int
	first, last actors.Ref
	hash        uint64
}

func keyOf(members []actors.Ref) groupKey {
	k := groupKey{n: len(members), first: members[0], last: members[len(members)-1]}
	for _, m := range members {
		k.hash = mix(k.hash, uint64(m))
	}
	return k
}

// nameOfGroup names the ranks for a report; of more than four it gives the first and the last.
func (s *Sim) nameOfGroup(ranks []int) string {
	if len(ranks) > 4 {
		return s.nameOfGroup(ranks[:1]) + ", … " + s.nameOfGroup(ranks[len(ranks)-1:])
	}
	text := ""
	for i, r := range ranks {
		if i > 0 {
			text += ", "
		}
		text += s.name(s.l.RankRefs[r])
	}
	return text
}

// group stands for the collectives of a group of ranks. A member is at most one collective ahead of the others.
type group struct {
	s       *Sim
	alone   [1]actors.Ref // its own, the one member that its members see
	epoch   uint32
	members []actors.Ref // that run
	ranks   []int        // all
	open    []gathering
	free    int64                 // when the group's last collective ends
	scripts map[scriptKey]*script // if collectives go send by send
	plays   []*play
}

// gathering is a collective of which some members' parts have come and others not yet.
type gathering struct {
	m     actors.Message // of the member that came first
	n     int
	bytes int64
	apart bool // each member gets a part of its own
	came  []bool
	by    *Origin // of the first part, in a run that somebody watches
}

// of reports whether m belongs to the collective.
func (g *gathering) of(m *actors.Message) bool {
	return g.m.Action == m.Action && g.m.Segment == m.Segment && g.m.Comm == m.Comm && g.m.Step == m.Step
}

// Receive implements actors.Behaviour.
func (c *group) Receive(_ actors.Context, m *actors.Message) {
	switch {
	case m.Kind == actors.Tick:
		c.tick(m)
		return
	case m.Kind != actors.Part:
		return
	case m.Epoch < c.epoch:
		c.s.drop(m)
		return
	case m.Epoch > c.epoch: // collectives of the epoch before will never be complete
		c.epoch = m.Epoch
		c.open, c.plays = c.open[:0], nil
	}
	i := 0
	for i < len(c.open) && !c.open[i].of(m) {
		i++
	}
	if i == len(c.open) {
		if cap(c.open) > i { // the list of a collective that is over serves the next
			c.open = c.open[:i+1]
			g := &c.open[i]
			g.m, g.n, g.bytes, g.apart, g.by = *m, 0, 0, false, nil
		} else {
			c.open = append(c.open, gathering{m: *m})
		}
		if c.open[i].came == nil {
			c.open[i].came = make([]bool, len(c.members))
		} else {
			clear(c.open[i].came)
		}
	}
	g := &c.open[i]
	who := c.place(m.From)
	if g.came[who] {
		panic("sim: a member sent its part twice")
	}
	g.came[who] = true
	g.bytes = max(g.bytes, m.Payload.Bytes())
	b, ok := m.Payload.(*Blob)
	g.apart = g.apart || ok && b.apart
	if ok && b.of != nil {
		if g.n == 0 {
			g.by = b.of
		} else if g.by == nil || g.by.Step != b.of.Step || g.by.Action != b.of.Action || g.by.Segment != b.of.Segment {
			panic(fmt.Sprintf("sim: members bring parts of %v and %v to one collective", g.by, b.of))
		}
	}
	m.Payload.Release()
	if g.n++; g.n == len(c.members) {
		c.finish(i)
	}
}

// place is the position of r among the members, or -1 if it is none. Members mostly lie at even
// distances, so two guesses come before the search through all.
func (c *group) place(r actors.Ref) int {
	if d := int(r - c.members[0]); d >= 0 && d < len(c.members) && c.members[d] == r {
		return d
	}
	if n := len(c.members); n > 1 {
		if step := int(c.members[1] - c.members[0]); step > 0 {
			if d := int(r-c.members[0]) / step; d >= 0 && d < n && c.members[d] == r {
				return d
			}
		}
	}
	return slices.Index(c.members, r)
}

// finish ends the i-th open collective and tells its members.
func (c *group) finish(i int) {
	g := &c.open[i]
	s := c.s
	if s.p.Sends != nil {
		c.start(g)
	} else {
		slow, lost := 1.0, false
		if s.faults.any {
			slow, lost = s.faults.group(c.ranks, s.now)
		}
		if lost {
			return // it stays open, and everyone waits
		}
		c.free = max(s.now, c.free) + int64(slow*float64(s.p.Collective(c.ranks, g.bytes, g.apart)))
		g.m.From, g.m.Member, g.m.Number = s.ctx.self, 0, 0
		for _, to := range c.members {
			p := s.at(to).blobs.get(g.bytes)
			p.(*Blob).of = g.by
			g.m.Payload = p
			s.post(c.free, to, &g.m)
		}
	}
	last := len(c.open) - 1
	c.open[i], c.open[last] = c.open[last], c.open[i]
	c.open[last].m.Payload = nil
	c.open = c.open[:last]
}

// Waits implements actors.Behaviour.
func (c *group) Waits() actors.Wait {
	if len(c.open) > 0 {
		g := c.open[0]
		if i := slices.Index(g.came, false); i >= 0 {
			return actors.Wait{For: c.members[i], What: "its part of " + g.m.Action.String()}
		}
		return actors.Wait{For: actors.None, What: "a message of " + g.m.Action.String() + " that a cut link has lost"}
	}
	for _, p := range c.plays {
		if p != nil {
			return actors.Wait{For: actors.None, What: "a message of " + p.m.Action.String() +
				" that a cut link has lost"}
		}
	}
	return actors.Wait{For: actors.None}
}
