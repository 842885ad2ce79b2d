package core

import (
	"fmt"
	"slices"
	"sort"

	"github.com/lfactor/lfactor/actors"
)

// What always holds here (doc.go says how the lines read):
//
//   I-4: A message that comes a second time counts once, whatever it says and however late it comes. Shown by
//     25_twice, watched by Monitor.End, broken by "what comes again is taken".

// Once is a behaviour in a world that may bring a message twice: its sender did not know that the first had come.
// It numbers what it sends to each receiver, and takes each number of a sender once; Of hears of no second one.
// Where all actors of a run are Once, no protocol has to know its messages again, be they data, orders or answers.
//
// It is an actor's outermost part, and not one of each protocol, because the worlds that bring nothing twice then pay
// nothing: the simulator uses it where its faults double messages, and a run on hosts does not, since each connection
// of actors/host/links is of one pair and one epoch, and brings what it brings in order and once.
type Once struct {
	Of   actors.Behaviour
	life uint32 // how often the actor has ended before
	sent map[actors.Ref]uint32
	came map[origin]arrivals
	ctx  numbering
}

// origin is a sender in one of its lives. Who is back counts from the beginning.
type origin struct {
	from actors.Ref
	life uint32
}

// NewOnce makes of a behaviour one that stands messages that come twice.
func NewOnce(b actors.Behaviour) *Once {
	o := &Once{Of: b}
	o.begin(0)
	return o
}

// begin is the beginning of a life.
func (o *Once) begin(life uint32) {
	o.life, o.sent, o.came = life, map[actors.Ref]uint32{}, map[origin]arrivals{}
}

// Receive implements actors.Behaviour. Messages without a number are the driver's, which come once.
func (o *Once) Receive(ctx actors.Context, m *actors.Message) {
	if m.Kind == actors.Started {
		o.begin(uint32(m.Step))
	}
	if m.Number != 0 {
		from := origin{m.From, uint32(m.Number >> 32)}
		came := o.came[from]
		if came.add(uint32(m.Number)) {
			drop(m)
			return
		}
		o.came[from] = came
	}
	o.ctx = numbering{ctx, o}
	o.Of.Receive(&o.ctx, m)
}

// Waits implements actors.Behaviour.
func (o *Once) Waits() actors.Wait { return o.Of.Waits() }

// numbering is a Context that numbers what is sent.
type numbering struct {
	actors.Context
	o *Once
}

// Send implements actors.Context.
func (c *numbering) Send(to actors.Ref, m actors.Message) {
	n := c.o.sent[to] + 1
	if n == 0 {
		panic(fmt.Sprintf("core: actor %d has sent 2^32 messages to actor %d", c.Self(), to))
	}
	c.o.sent[to] = n
	m.Number = uint64(c.o.life)<<32 | uint64(n)
	c.Context.Send(to, m)
}

// arrivals are the numbers of the messages that have come, as spans in order that do not touch. There is one,
// but for what is under way: a message that was overtaken leaves a gap until it comes, and one that was lost for good.
type arrivals []span

// span is the numbers from first to before end.
type span struct{ first, end uint32 }

// add notes a message, and reports whether it had come before.
func (a *arrivals) add(n uint32) (again bool) {
	s := *a
	i := sort.Search(len(s), func(i int) bool { return s[i].end >= n })
	switch {
	case i < len(s) && s[i].first <= n && n < s[i].end:
		return true
	case i < len(s) && s[i].end == n:
		s[i].end++
		if i+1 < len(s) && s[i+1].first == n+1 {
			s[i].end = s[i+1].end
			*a = slices.Delete(s, i+1, i+2)
		}
	case i < len(s) && s[i].first == n+1:
		s[i].first--
	default:
		*a = slices.Insert(s, i, span{n, n + 1})
	}
	return false
}
