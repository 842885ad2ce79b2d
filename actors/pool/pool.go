package pool

import (
	"fmt"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors"
)

// The messages of a pool, its owner and the drivers of its places. Epoch is the number of a member,
// which no other had.
const (
	Begin  = actors.PoolFirst + iota // pool → place: begin the member
	Load                             // pool → place: the member takes what later tasks are done with: Step
	Task                             // pool → place: the member is to do the task Step
	Leave                            // pool → place: end the member; Text says why
	Beat                             // place → pool: the member lives
	Result                           // place → pool: the member has done Step, or Err says why nobody can; Port is Freed
	Ended                            // place → pool: the member is no more, Err says how; Port is how it counts
	Ask                              // owner → desk: do Step; tasks of one Comm other than 0 belong together
	Free                             // owner → desk: no task of Comm follows
	Answer                           // pool → owner: the result of Step, once
	Lost                             // pool → owner: a member was lost, Err says how, and another takes its place
	Closed                           // pool → owner: nobody takes the place any more; Port is 1 for the last one
)

var _ = actors.Protocol(Begin, "begin", "load weights", "task", "leave", "beat", "result", "ended", "ask", "free",
	"answer", "lost", "closed")

// What Port says of a Result, and of an Ended.
const (
	Freed   = 1 // no task of the same Comm follows
	Untried = 1 // the member had ended before it was told of its tasks
	Full    = 2 // there is no room for it: a place is closed as long as others have members
)

// Desk hands tasks to members. Its methods tell what is to be done, in order: Load and Task of a member, or an Answer.
type Desk interface {
	// Join brings a member in, which begins with the first order for it.
	Join(member uint32) []actors.Message
	// Lose takes one out: others have its tasks. How is the word of its end, or has no kind where it was too late.
	Lose(member uint32, now actors.Time, how *actors.Message) []actors.Message
	// Result reports whether the result of a member's task counts.
	Result(member uint32, m *actors.Message) (counts bool, out []actors.Message)
	// Tell passes on what the owner says.
	Tell(now actors.Time, m *actors.Message) []actors.Message
	// Shut says that a place is closed for good; with the last one, err says why no task will be done.
	Shut(err error) []actors.Message
}

// Options of a pool. Durations of 0 are none.
type Options struct {
	Owner   actors.Ref
	Places  []actors.Ref
	Desk    Desk
	Eager   bool                           // members begin before there is something to do for them
	Silence actors.Duration                // of a member with tasks, after which it is ended
	Start   actors.Duration                // beside it for one that has not said anything
	Longest actors.Duration                // of one with tasks without a result, whatever else it says
	Tries   int                            // members of a place that may end in a row without a result, 0 for any number
	Pause   func(vain int) actors.Duration // before the next one; nil for none
}

// stage is where a place is in its life:
//
//	resting ─► vacant ─► alive ─► leaving ─► resting, or closed
//	                       └─ Ended ────────► the same
type stage uint8

const (
	resting stage = iota // until a timer ends
	vacant               // its member joins the desk, and begins with the first order, if not at once
	alive
	leaving // its member is to end; others have its tasks
	closed
)

// place is one for a member.
type place struct {
	ref    actors.Ref
	stage  stage
	member uint32
	open   int // tasks that it has
	heard  bool
	vain   int         // members in a row that ended without a result
	said   actors.Time // when it last said something, or was given tasks
	result actors.Time // when it last had a result, or was given tasks
	armed  bool        // a timer will look at it
}

// Pool is the behaviour.
type Pool struct {
	o      Options
	places []*place
	next   uint32
}

// New is a pool at its beginning.
func New(o Options) *Pool {
	p := &Pool{o: o}
	for _, r := range o.Places {
		p.places = append(p.places, &place{ref: r})
	}
	return p
}

// Receive implements actors.Behaviour.
func (p *Pool) Receive(ctx actors.Context, m *actors.Message) {
	switch m.Kind {
	case actors.Started:
		for _, x := range p.places {
			p.join(ctx, x)
		}
	case actors.Tick:
		p.tick(ctx, p.places[m.Port])
	case actors.Failed: // our own bug
		ctx.Send(p.o.Owner, actors.Message{Kind: Closed, Port: 1, Err: m.Err})
	case Beat, Result, Ended:
		for _, x := range p.places {
			if x.ref == m.From && x.member == m.Epoch && (x.stage == alive || x.stage == leaving && m.Kind == Ended) {
				p.hear(ctx, x, m)
				return
			}
		}
		drop(m)
	default:
		p.obey(ctx, p.o.Desk.Tell(ctx.Now(), m))
	}
}

// drop releases what nobody takes.
func drop(m *actors.Message) {
	if m.Payload != nil {
		m.Payload.Release()
	}
}

// join has a place take part again.
func (p *Pool) join(ctx actors.Context, x *place) {
	p.next++
	x.stage, x.member, x.open, x.heard = vacant, p.next, 0, false
	if p.o.Eager {
		p.begin(ctx, x)
	}
	p.obey(ctx, p.o.Desk.Join(x.member))
}

// begin has a place's driver begin its member.
func (p *Pool) begin(ctx actors.Context, x *place) {
	x.stage = alive
	ctx.Send(x.ref, actors.Message{Kind: Begin, Epoch: x.member})
}

// hear takes what a place's member says.
func (p *Pool) hear(ctx actors.Context, x *place, m *actors.Message) {
	if m.Kind == Ended {
		p.ended(ctx, x, m)
		return
	}
	if x.said, x.heard = ctx.Now(), true; m.Kind != Result {
		return
	}
	counts, out := p.o.Desk.Result(x.member, m)
	if counts {
		x.open--
		x.vain, x.result = 0, ctx.Now()
		a := *m
		a.Kind = Answer
		ctx.Send(p.o.Owner, a)
	} else {
		drop(m)
	}
	p.obey(ctx, out)
}

// ended has another member take a place, or nobody.
func (p *Pool) ended(ctx actors.Context, x *place, m *actors.Message) {
	var out []actors.Message
	if x.stage == alive {
		out = p.o.Desk.Lose(x.member, ctx.Now(), m)
	}
	x.stage = resting
	pause, says := actors.Duration(0), actors.Message{Kind: Lost, Epoch: x.member, Err: m.Err}
	switch {
	case m.Port == Full && p.some(alive):
		x.stage = closed
	case m.Port == Full:
		pause, says.Kind = fullPause, 0
	case m.Port == Untried:
		says.Kind = 0
	default:
		if x.vain++; p.o.Tries > 0 && x.vain >= p.o.Tries {
			x.stage = closed
		} else if p.o.Pause != nil {
			pause = p.o.Pause(x.vain)
		}
	}
	if x.stage == closed {
		says.Kind = Closed
		var err error
		if !p.some(resting, vacant, alive, leaving) {
			says.Port, err = 1, m.Err
		}
		out = append(out, p.o.Desk.Shut(err)...)
	}
	if says.Kind != 0 {
		ctx.Send(p.o.Owner, says)
	}
	p.obey(ctx, out)
	if x.stage == resting && pause > 0 {
		ctx.After(pause, p.at(x))
	} else if x.stage == resting {
		p.join(ctx, x)
	}
}

// some tells whether a place is in one of some stages.
func (p *Pool) some(of ...stage) bool {
	return slices.ContainsFunc(p.places, func(x *place) bool { return slices.Contains(of, x.stage) })
}

// fullPause lies between two looks for room.
const fullPause = actors.Duration(20 * time.Millisecond)

// at is a timer's word about a place.
func (p *Pool) at(x *place) actors.Message {
	return actors.Message{Kind: actors.Tick, Port: int32(slices.Index(p.places, x))}
}

// tick looks at a place: whether its rest is over, or its member has said nothing for too long.
func (p *Pool) tick(ctx actors.Context, x *place) {
	if x.stage == resting {
		p.join(ctx, x)
		return
	}
	if x.armed = false; x.stage != alive || x.open == 0 {
		return
	}
	due, why := p.due(x)
	if ctx.Now() < due {
		p.arm(ctx, x)
		return
	}
	x.stage = leaving
	ctx.Send(x.ref, actors.Message{Kind: Leave, Epoch: x.member, Text: why})
	p.obey(ctx, p.o.Desk.Lose(x.member, ctx.Now(), &actors.Message{Err: fmt.Errorf("it %s", why)}))
}

// due is when a member with tasks is ended if it goes on as it does, and why.
func (p *Pool) due(x *place) (at actors.Time, why string) {
	at = never
	if p.o.Silence > 0 {
		at, why = x.said+actors.Time(p.o.Silence), fmt.Sprintf("said nothing for %v", time.Duration(p.o.Silence))
		if !x.heard {
			at += actors.Time(p.o.Start)
		}
	}
	if t := x.result + actors.Time(p.o.Longest); p.o.Longest > 0 && t < at {
		return t, fmt.Sprintf("had no result for %v", time.Duration(p.o.Longest))
	}
	return at, why
}

const never = actors.Time(1<<63 - 1)

// arm has a timer look at a place when its member is due.
func (p *Pool) arm(ctx actors.Context, x *place) {
	if at, _ := p.due(x); at < never && !x.armed {
		x.armed = true
		ctx.After(actors.Duration(at-ctx.Now()), p.at(x))
	}
}

// obey has members and the owner told what the desk orders.
func (p *Pool) obey(ctx actors.Context, orders []actors.Message) {
	for _, m := range orders {
		if m.Kind == Answer {
			ctx.Send(p.o.Owner, m)
			continue
		}
		i := slices.IndexFunc(p.places, func(x *place) bool { return x.member == m.Epoch })
		x := p.places[i]
		if x.stage == vacant {
			p.begin(ctx, x)
		}
		if ctx.Send(x.ref, m); m.Kind != Task {
			continue
		}
		if x.open++; x.open == 1 {
			x.said, x.result = ctx.Now(), ctx.Now()
			p.arm(ctx, x)
		}
	}
}

// Over is the word for a place that nobody takes any more, as the others are for the stages before it.
const Over = "is closed for good"

var stages = [...]string{"rests before another one begins", "has no member yet", "", "ends", Over}

// Waits implements actors.Behaviour: what is held are all places, with the word for their stage.
func (p *Pool) Waits() actors.Wait {
	w := actors.Wait{For: actors.None}
	for _, x := range p.places {
		w.Held = append(w.Held, actors.Held{To: x.ref, Edge: stages[x.stage], Count: x.open, Since: x.said})
	}
	return w
}
