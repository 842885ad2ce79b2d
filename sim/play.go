package sim

import (
	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/topology/collective"
)

// script is the sends of one collective, by member and round.
type script struct {
	rounds int
	sends  [][][]collective.Send // by member and round
	wants  [][]int               // messages that a member gets in a round
}

// play is one collective under way, send by send: a member begins a round when its own sends and receives of
// the rounds before have ended, so that stragglers, slow links and full connections hold up those that wait
// for them, and nobody else.
type play struct {
	m       actors.Message // what its members get at the end
	of      *Origin
	s       *script
	players []player
	left    int // members that are not through
}

// player is how far one member is with the rounds of a collective that is simulated send by send.
type player struct {
	round int
	busy  int   // own sends of the round that have not left
	got   []int // messages by round
}

// newScript sorts the sends of a collective by member and round, and counts what each member is to receive per round.
func newScript(n int, sends []collective.Send) *script {
	x := &script{sends: make([][][]collective.Send, n), wants: make([][]int, n)}
	for _, s := range sends {
		x.rounds = max(x.rounds, s.Round+1)
	}
	for i := range n {
		x.sends[i], x.wants[i] = make([][]collective.Send, x.rounds), make([]int, x.rounds)
	}
	for _, s := range sends {
		x.sends[s.From][s.Round] = append(x.sends[s.From][s.Round], s)
		x.wants[s.To][s.Round]++
	}
	return x
}

// scriptKey tells the collectives of a group apart.
type scriptKey struct {
	bytes int64
	apart bool
}

// start begins a collective send by send.
func (c *group) start(g *gathering) {
	key := scriptKey{g.bytes, g.apart}
	x := c.scripts[key]
	if x == nil {
		x = newScript(len(c.members), c.s.p.Sends(c.ranks, g.bytes, g.apart))
		if c.scripts == nil {
			c.scripts = map[scriptKey]*script{}
		}
		c.scripts[key] = x
	}
	p := &play{m: g.m, of: g.by, s: x, players: make([]player, len(c.members)), left: len(c.members)}
	p.m.From, p.m.Member, p.m.Number, p.m.Payload = c.alone[0], 0, 0, nil
	at := len(c.plays)
	for i, old := range c.plays {
		if old == nil {
			at = i
		}
	}
	if at == len(c.plays) {
		c.plays = append(c.plays, nil)
	}
	c.plays[at] = p
	for i := range p.players {
		p.players[i].got = make([]int, x.rounds)
	}
	for i := range p.players {
		c.enter(at, i)
	}
}

// enter lets a member begin its round, or leave after the last.
func (c *group) enter(at, member int) {
	p, s := c.plays[at], c.s
	who := &p.players[member]
	for who.round < p.s.rounds && len(p.s.sends[member][who.round]) == 0 &&
		p.s.wants[member][who.round] == who.got[who.round] {
		who.round++
	}
	if who.round == p.s.rounds {
		who.round++
		m := p.m
		whole := s.blobs.get(1)
		whole.(*Blob).of = p.of
		m.Payload = whole
		s.post(s.now, c.members[member], &m)
		if p.left--; p.left == 0 {
			c.plays[at] = nil
		}
		return
	}
	for _, x := range p.s.sends[member][who.round] {
		who.busy++
		left, there, lost := s.transfer(c.ranks[x.From], c.ranks[x.To], x.Bytes)
		m := actors.Message{Kind: actors.Tick, From: c.alone[0], Epoch: c.epoch, Comm: int32(at),
			Segment: int32(x.Round), Member: int32(x.From)}
		s.post(left, c.alone[0], &m)
		if m.Member, m.Port = int32(x.To), 1; !lost {
			s.post(there, c.alone[0], &m)
		}
	}
}

// tick notes that a send has left (Port 0) or arrived (1).
func (c *group) tick(m *actors.Message) {
	at, member := int(m.Comm), int(m.Member)
	if m.Epoch < c.epoch || at >= len(c.plays) || c.plays[at] == nil {
		return
	}
	p := c.plays[at]
	who := &p.players[member]
	if m.Port == 1 {
		who.got[m.Segment]++
	} else {
		who.busy--
	}
	if r := who.round; r < p.s.rounds && who.busy == 0 && who.got[r] == p.s.wants[member][r] {
		who.round++
		c.enter(at, member)
	}
}

// transfer sends bytes from one rank to another: when they have left, when they are there, and whether a cut
// link loses them.
func (s *Sim) transfer(from, to int, bytes int64) (left, there int64, lost bool) {
	if s.p.Link == nil {
		return s.now, s.now, false
	}
	l := s.p.Link(from, to)
	if s.faults.any {
		l, lost = s.faults.link(from, to, l), s.faults.cut(from, to, s.now)
	}
	left = s.now
	ends := [2]int32{l.Out, l.In}
	for _, p := range ends {
		if p >= 0 {
			for int(p) >= len(s.ports) {
				s.ports = append(s.ports, 0)
			}
			left = max(left, s.ports[p])
		}
	}
	left += int64(l.PerByte * float64(bytes))
	for _, p := range ends {
		if p >= 0 {
			s.ports[p] = left
		}
	}
	if s.fold != nil {
		s.fold.use(ends, int32(from), s.now)
	}
	return left, left + l.Latency, lost
}
