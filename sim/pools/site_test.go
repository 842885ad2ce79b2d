package pools

import (
	"errors"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/actors/rounds"
)

// Times of members. An honest one beats more often than a pool's silence, and has results sooner than Longest.
const (
	silence = 200 * ms
	start   = 100 * ms
	longest = 2000 * ms
	beats   = 100 * ms
	takes   = 300 * ms
	// travels bounds a message's way, there and back, with what a driver takes to end a member.
	travels = 50 * ms
)

// how says how a member is.
type how int

const (
	honest  how = iota
	slow        // it takes long, and says that it lives
	repeats     // it says all results several times
	dies        // in the middle of a task, if not of the first
	hangs       // it says nothing any more
	lies        // it answers what it was not asked, in others' names too, and says for ever that it lives
	late        // it has its result when it was taken for dead
	gone        // it had ended before it was told
	never       // it does not begin
	kinds
)

// site is a place with its driver: at most one member is there.
type site struct {
	w      *world
	how    how
	broken bool   // no member begins
	member uint32 // the one that began last
	life   int32  // counts those that were here
	loaded int64
	tasks  []actors.Message
	lies   int
	began  bool
	vain   int // members that ended without a result, as far as the pool knows
	leaves bool
	beats  bool // or it has nothing to do
}

func (*site) Waits() actors.Wait { return actors.Wait{For: actors.None} }

// What a site's timers say in Port.
const (
	doneNow = iota
	beatNow
	endNow
	lateNow
	heldNow
)

func (s *site) Receive(ctx actors.Context, m *actors.Message) {
	c := &s.w.watch
	switch m.Kind {
	case actors.Started:
		s.member = 0
	case pool.Begin:
		if s.began {
			c.fail("P-3", "member %d begins, and %d has not ended", m.Epoch, s.member)
		}
		if t := s.w.o.Tries; t > 0 && s.vain >= t {
			c.fail("P-6", "member %d begins behind %d in vain", m.Epoch, s.vain)
		}
		s.begin(ctx, m)
	case pool.Load:
		if len(s.tasks) > 0 && s.began && s.member == m.Epoch {
			c.fail("P-8", "weights of publication %d come while %d tasks are drawn", rounds.PublicationOf(m), len(s.tasks))
		}
		p := rounds.PublicationOf(m)
		if k := s.w.plan.Staleness; c.trained-p > k+1 {
			c.fail("P-8", "publication %d is asked for, and round %d is to be trained on", p, c.trained)
		}
		s.loaded = rounds.PublicationOf(m)
	case pool.Task:
		s.task(ctx, m)
	case pool.Leave:
		if m.Epoch != s.member || !s.began {
			return
		}
		if s.how == honest || s.how == slow || s.how == repeats {
			c.fail("P-7", "member %d keeps its times and is ended: it %s", m.Epoch, m.Text)
		}
		s.leaves = true
		if s.how == late {
			s.say(ctx, s.tasks)
		}
		s.timer(ctx, 10*ms, endNow)
	case actors.Tick:
		if m.Segment == s.life && s.began {
			s.tick(ctx, m)
		}
	}
}

func (s *site) timer(ctx actors.Context, d actors.Duration, port int32) {
	ctx.After(d, actors.Message{Port: port, Segment: s.life})
}

func (s *site) begin(ctx actors.Context, m *actors.Message) {
	w := s.w
	s.member, s.began, s.how, s.tasks, s.loaded, s.leaves = m.Epoch, true, honest, nil, -1, false
	s.life++
	w.members++
	if w.rng.Float64() < w.faulty {
		s.how = how(w.rng.IntN(int(kinds)))
		if s.how == gone && w.queue == nil {
			s.how = never
		}
	}
	if s.w.deadly && s.how != honest {
		s.how = dies
	}
	if s.broken {
		s.how = never
	}
	switch {
	case w.room > 0 && w.members > w.room:
		s.end(ctx, pool.Full, errFull)
	case s.how == never:
		s.timer(ctx, actors.Duration(w.rng.Int64N(int64(20*ms))), endNow)
	default:
		s.beats = true
		s.timer(ctx, beats/2, beatNow)
	}
}

// end says that the member has ended.
func (s *site) end(ctx actors.Context, port int32, err error) {
	s.w.members--
	s.began = false
	if port == 0 {
		s.vain++
		s.w.watch.vain[s.member] = s.vain
	}
	ctx.Send(0, actors.Message{Kind: pool.Ended, Epoch: s.member, Port: port, Err: err})
}

// say sends something of tasks.
func (s *site) say(ctx actors.Context, of []actors.Message) {
	for _, t := range of {
		ctx.Send(0, actors.Message{Kind: pool.Result, Epoch: s.member, Step: t.Step, Values: t.Values, Segment: int32(t.Step)})
	}
}

func (s *site) task(ctx actors.Context, m *actors.Message) {
	c := &s.w.watch
	if m.Epoch != s.member || !s.began {
		return // it ended meanwhile
	}
	if c.given[m.Step] == nil {
		c.given[m.Step] = map[uint32]bool{}
	}
	c.given[m.Step][m.Epoch] = true
	if s.w.queue == nil && s.loaded != rounds.PublicationOf(m) {
		c.fail("P-8", "member %d draws with publication %d, and was given %d", m.Epoch, rounds.PublicationOf(m), s.loaded)
	}
	if s.tasks = append(s.tasks, *m); !s.beats {
		s.beats = true
		s.timer(ctx, beats, beatNow)
	}
	d := actors.Duration(1 + s.w.rng.Int64N(int64(takes)))
	switch s.how {
	case honest, repeats:
		s.timer(ctx, d, doneNow)
	case slow:
		s.timer(ctx, d+longest/4, doneNow)
	case dies:
		s.timer(ctx, d, []int32{doneNow, endNow}[s.w.rng.IntN(2)])
	case gone:
		s.end(ctx, pool.Untried, errors.New("it had ended"))
	case hangs, late:
		s.timer(ctx, silence+start+travels, lateNow)
	case lies:
		s.timer(ctx, longest+travels, heldNow)
	}
}

func (s *site) tick(ctx actors.Context, m *actors.Message) {
	c := &s.w.watch
	switch m.Port {
	case beatNow:
		switch s.how {
		case hangs, late, never:
			return
		}
		if s.beats = len(s.tasks) > 0; !s.beats {
			return
		}
		if s.how == lies {
			s.lie(ctx)
		}
		ctx.Send(0, actors.Message{Kind: pool.Beat, Epoch: s.member})
		s.timer(ctx, beats, beatNow)
	case doneNow:
		if len(s.tasks) == 0 {
			return
		}
		n := 1
		if s.how == repeats {
			n += s.w.rng.IntN(3)
		}
		for range n {
			s.say(ctx, s.tasks[:1])
		}
		s.vain = 0
		s.tasks = slices.Delete(s.tasks, 0, 1)
	case endNow:
		s.end(ctx, 0, errors.New("it was killed"))
	case lateNow, heldNow:
		if !s.leaves && len(s.tasks) > 0 {
			c.fail("P-4", "member %d holds %d tasks and is not ended", s.member, len(s.tasks))
		}
	}
}

// lie answers what others are asked, in its own name and in theirs.
func (s *site) lie(ctx actors.Context) {
	s.lies++
	for _, t := range s.w.watch.open {
		if slices.ContainsFunc(s.tasks, func(m actors.Message) bool { return m.Step == t }) {
			continue
		}
		for _, member := range []uint32{s.member, s.member - 1, s.member + 1} {
			ctx.Send(0, actors.Message{Kind: pool.Result, Epoch: member, Step: t, Segment: -1})
		}
		break
	}
	for _, member := range []uint32{s.member - 1, s.member + 1} {
		ctx.Send(0, actors.Message{Kind: pool.Ended, Epoch: member, Err: errors.New("a lie")})
	}
	ctx.Send(0, actors.Message{Kind: pool.Result, Epoch: s.member, Values: []float64{0, 0, 0, 0, 99}})
}
