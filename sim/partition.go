package sim

import (
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// A run is cut where ranks hardly ever meet. Ranks that hand activations to one another, have a loader or a
// connection in common, or take part in one collective of a pass, are a part; replicas mostly are one each.
// What is left is the hub: the coordinator, the observer, and the collectives of the optimizer step that
// ranks of several parts take part in. Parts and hub are simulations with queues of their own, over the same
// actors. All parts run up to a horizon, each by itself and on whatever processor, then the hub does, which
// by then has all that comes to it before the horizon; then there is another horizon.
//
// An event comes by its time, by how many events of the same time led to it, by its place among those, which
// its time, its actors and the seed give, and by the number that its sender gave it. None of these depends on
// what other parts do, so that all that an actor is told is the same, in the same order, as in one queue.
//
// The horizon is a guess of how long nobody of the hub will answer (lookahead.go). It need not be right: a message that
// comes to a part or to the hub after it has passed that time tears the run, which is then run once more, in one queue.

// partition is a run that is cut into parts.
// In the words of the field: partition of a simulation.
type partition struct {
	parts    []*Sim
	mail     mailbox
	sight    lookahead
	reports  []actors.Message // for Options.Report
	told     int              // that it has heard
	sequence uint32
}

// part is what a Sim has as a part of a run, or as its hub.
type part struct {
	homes []int32 // by actor: 1 + the number of its part, 0 for the hub; nil in a run with one queue
	home  int32   // its own
	ranks []int32
	out   []posted // for the hub
	until int64    // it has gone through all events before
	next  int64    // time of its next
	depth int32    // of the hub: how many events of the present time led to this one
	torn  bool     // it was told something too late
	cut   bool     // Options.Stop
}

// posted is a message on its way to the hub.
type posted struct {
	at    int64
	depth int32
	to    actors.Ref
	m     actors.Message
}

// divide cuts the run into parts if it may be, and there are several.
func (s *Sim) divide() {
	o := &s.o
	if o.Each == nil || s.fold != nil || unfoldable(s.l, &s.p, o) != "" || o.Span != nil || o.Events > 0 ||
		s.p.Link == nil {
		return
	}
	c := newCutter(s)
	c.join()
	x := &partition{sight: lookahead{offset: make([]int64, len(s.l.Ranks)), said: make([]bool, len(s.l.Ranks))}}
	s.homes = make([]int32, len(s.cells))
	home := make([]int32, len(s.l.Ranks))
	for r, ref := range s.l.RankRefs {
		root := c.find(int32(r))
		if home[root] == 0 {
			p := &Sim{l: s.l, p: s.p, o: s.o, timers: map[actors.Timer]bool{}, apart: x}
			p.q.s, p.ctx.s, p.q.depth = p, p, -1
			x.parts = append(x.parts, p)
			p.home = int32(len(x.parts))
			home[root] = p.home
		}
		p := x.parts[home[root]-1]
		p.ranks, s.homes[ref] = append(p.ranks, int32(r)), p.home
	}
	for i, l := range s.l.Loaders {
		s.homes[s.l.LoaderRefs[i]] = s.homes[l.Ranks[0]]
	}
	x.sight.reply = never
	for _, r := range s.l.RankRefs {
		x.sight.reply = min(x.sight.reply, s.p.Link(-1, int(s.rankOf[r])).Latency)
	}
	if len(x.parts) < 2 || x.sight.reply < 1 {
		s.homes = nil
		return
	}
	s.apart = x
	x.sight.courses = c.courses(s.homes)
	x.mail.s = s
	for _, p := range x.parts {
		p.homes = s.homes
	}
}

// settle says where a collective is: with its members, or with the hub.
func (s *Sim) settle(c *group) {
	if s.apart == nil {
		return
	}
	home := s.homes[c.members[0]]
	for _, m := range c.members {
		if s.homes[m] != home {
			home = 0
		}
	}
	if s.homes[c.alone[0]] = home; home != 0 {
		c.s = s.apart.parts[home-1]
		return
	}
	l, took := s.l.Ranks[c.ranks[0]], int64(never)
	for i := range l.Update {
		for _, x := range l.Update[i].Comms {
			if slices.Equal(l.Groups[x.Group].Members, c.members) {
				took = min(took, s.p.Collective(c.ranks, x.Bytes, x.Apart))
			}
		}
	}
	if took < never {
		s.apart.sight.meetings = append(s.apart.sight.meetings, meeting{c, took})
	}
}

// share lets parts know the actors.
func (s *Sim) share() {
	if s.apart == nil {
		return
	}
	for _, p := range s.apart.parts {
		p.cells, p.extras, p.rankOf, p.hashes, p.homes = s.cells, s.extras, s.rankOf, s.hashes, s.homes
		p.nodes, p.ports, p.run = s.nodes, s.ports, s.run
	}
}

// at is the simulation that an actor is in.
func (s *Sim) at(r actors.Ref) *Sim {
	if s.homes == nil || s.homes[r] == s.home {
		return s
	}
	return s.apart.parts[s.homes[r]-1]
}

// abroad posts a message that comes from the hub, or from a part to elsewhere.
func (s *Sim) abroad(at int64, to actors.Ref, m *actors.Message) {
	x, home := s.apart, s.homes[to]
	switch {
	case s.home != 0 && home != 0:
		panic("sim: parts of a run that is apart have met")
	case s.home != 0:
		depth := int32(0)
		if at == s.now {
			depth = s.q.depth + 1
		}
		s.out = append(s.out, posted{at, depth, to, *m})
	case home != 0:
		p := x.parts[home-1]
		p.torn = p.torn || at < p.until
		p.next = min(p.next, at)
		p.enter(at, to, m)
	default:
		depth := int32(0)
		if at == s.now {
			depth = s.depth + 1
		}
		x.take(s, at, depth, to, m)
	}
}

// take puts a message into the hub's mail.
func (x *partition) take(hub *Sim, at int64, depth int32, to actors.Ref, m *actors.Message) {
	hub.torn = hub.torn || at < hub.until
	x.sequence++
	x.mail.push(letter{item{at, hub.order(at, m.From, to), hub.pack(to, m)}, depth, x.sequence})
}

// runPartitioned carries the run to its end in parts; false if the run is torn.
func (s *Sim) runPartitioned() bool {
	x := s.apart
	for end := int64(1); ; {
		s.o.Each(len(x.parts), func(i int) { x.parts[i].through(end) })
		for _, p := range x.parts {
			for i := range p.out {
				m := &p.out[i]
				x.take(s, m.at, m.depth, m.to, &m.m)
			}
			clear(p.out)
			p.out = p.out[:0]
			s.torn, s.res.Cut = s.torn || p.torn, s.res.Cut || p.cut
		}
		s.deliverMail(end)
		if s.torn || slices.ContainsFunc(x.parts, func(p *Sim) bool { return p.torn }) {
			return false
		}
		x.told += len(x.reports) // what is left of the run changes nothing of them
		for _, m := range x.reports {
			s.o.Report(m)
		}
		x.reports = x.reports[:0]
		if end = x.horizon(s); end == never || s.res.Cut {
			return true
		}
	}
}

// again runs a run that was torn once more, in one queue.
func (s *Sim) again() *Result {
	if forget := s.l.Memory.Forget; forget != nil {
		for r := range s.l.Ranks {
			forget(r)
		}
	}
	o, told := s.o, s.apart.told
	o.Each = nil
	if report := o.Report; report != nil {
		o.Report = func(m actors.Message) {
			if told--; told < 0 {
				report(m)
			}
		}
	}
	r := New(s.l, s.p, o).Run()
	r.Torn = true
	return r
}

// through goes through a part's events before a time.
func (s *Sim) through(end int64) {
	defer func() {
		if x := recover(); x != nil {
			s.torn = true
		}
	}()
	if s.until = end; s.next >= end {
		return
	}
	if s.cut = s.o.Stop != nil && s.o.Stop(); s.cut {
		return
	}
	for s.q.next < len(s.q.batch) || s.q.before(end) {
		s.deliver(s.q.pop())
	}
	s.next = s.q.least()
	s.apart.sight.look(s)
}

// deliverMail goes through the hub's events before a time.
func (s *Sim) deliverMail(end int64) {
	defer func() {
		if x := recover(); x != nil {
			s.torn = true
		}
	}()
	for mail := &s.apart.mail; len(mail.heap) > 0 && mail.heap[0].at < end; {
		l := mail.pop()
		s.depth = l.depth
		s.deliver(l.item)
	}
	s.until = end
}

// sum adds what parts counted.
func (x *partition) sum(r *Result) {
	r.Parts = len(x.parts)
	for _, p := range x.parts {
		r.Time = max(r.Time, actors.Time(p.now))
		r.Events += p.events
		r.Leaked += p.blobs.live
	}
}

// makeNodes makes room for ranks, those that run together side by side.
func (s *Sim) makeNodes() {
	s.nodes = make([]*node, len(s.l.Ranks))
	order := make([]int32, len(s.l.Ranks))
	for i := range order {
		order[i] = int32(i)
	}
	if s.apart != nil {
		order = order[:0]
		for _, p := range s.apart.parts {
			order = append(order, p.ranks...)
		}
	}
	nodes := make([]node, len(order))
	for at, i := range order {
		s.nodes[i] = &nodes[at]
		s.cells[s.l.RankRefs[i]].dev = &nodes[at].dev
	}
}
