// Package pools runs actors/pool in virtual time: places whose members are slow, die, hang, lie, say things twice and come
// late, and an owner that asks. It holds every run to the promises P-1 to P-10 of package pool.
package pools

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/sim"
)

const ms = actors.Duration(1e6)

// world is what is simulated.
type world struct {
	seed    uint64
	places  int
	faulty  float64 // share of members that are not honest
	o       pool.Options
	queue   *pool.Queue // nil where tasks are a run's rounds
	rounds  *rounds.Desk
	plan    rounds.Schedule
	groups  int
	last    int64 // round
	chains  int   // of tasks that belong together
	turns   int   // tasks of a chain
	broken  int   // places in which no member begins
	batch   bool  // all tasks are of one Comm
	deadly  bool  // faulty members die, and are nothing else
	room    int   // members that there is room for, 0 for any number
	rng     *rand.Rand
	members int // that live
	watch   watch
}

// watch is what the promises are held to.
type watch struct {
	w        *world
	err      error
	given    map[int64]map[uint32]bool // members that were told of a task
	answered map[int64]int
	losses   map[int64]int
	on       map[uint32][]string // by the desk's orders: what a member has
	open     []int64             // asked and not answered, by when they were asked
	holder   map[int64]uint32
	busy     map[uint32]bool // has had a task
	vain     map[uint32]int  // by the last of a place that ended so
	over     error
	shut     int
	lost     int
	trained  int64
	drawn    map[[2]int64][]rounds.Part
}

func (c *watch) fail(promise, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("seed %d: %s: %s", c.w.seed, promise, fmt.Sprintf(format, args...))
	}
}

// spy is a desk that is looked at.
type spy struct {
	pool.Desk
	c *watch
}

func key(m *actors.Message) string { return fmt.Sprint(m.Step, m.Values) }

// orders takes what the desk has somebody told.
func (s spy) orders(out []actors.Message) []actors.Message {
	c, w, given := s.c, s.c.w.queue, map[uint32]bool{}
	for i := range out {
		m := &out[i]
		if m.Kind != pool.Task {
			continue
		}
		if c.w.queue != nil {
			if _, twice := c.holder[m.Step]; twice {
				c.fail("P-2", "task %d is with two members", m.Step)
			}
			if c.marked(m.Step) && c.busy[m.Epoch] && len(c.on) < c.w.places-c.shut {
				c.fail("P-9", "task %d that was lost goes to a member that is not fresh", m.Step)
			}
			if has := len(c.on[m.Epoch]); has >= max(1, w.Hold) || has > 0 && !given[m.Epoch] {
				c.fail("P-9", "member %d has %d tasks, and is given another", m.Epoch, has)
			}
			given[m.Epoch] = true
			for _, older := range c.open {
				if _, held := c.holder[older]; older < m.Step && !held && !c.marked(older) && !c.marked(m.Step) {
					c.fail("P-9", "task %d overtakes %d", m.Step, older)
				}
			}
			c.holder[m.Step] = m.Epoch
		}
		c.busy[m.Epoch] = true
		c.on[m.Epoch] = append(c.on[m.Epoch], key(m))
	}
	if c.w.queue != nil && c.over == nil {
		s.idle()
	}
	return out
}

// marked tells whether a task is for a fresh member.
func (c *watch) marked(job int64) bool { return c.w.queue.Most > 0 && c.losses[job] > 0 }

// idle looks for a task that waits while a member is free.
func (s spy) idle() {
	c := s.c
	for _, has := range c.on { // any one decides
		if len(has) > 0 {
			continue
		}
		for _, job := range c.open {
			if _, held := c.holder[job]; !held && !c.marked(job) {
				c.fail("P-9", "task %d waits while a member is free", job)
			}
		}
	}
}

func (s spy) Join(member uint32) []actors.Message {
	s.c.on[member] = nil
	return s.orders(s.Desk.Join(member))
}

func (s spy) Lose(member uint32, now actors.Time, how *actors.Message) []actors.Message {
	s.c.lost++
	for job, m := range s.c.holder {
		if m == member {
			delete(s.c.holder, job)
			if how.Kind != pool.Ended || how.Port == 0 {
				s.c.losses[job]++
			}
		}
	}
	delete(s.c.on, member)
	return s.orders(s.drop(s.Desk.Lose(member, now, how)))
}

// drop takes answered tasks from those that are open before others are looked at.
func (s spy) drop(out []actors.Message) []actors.Message {
	for i := range out {
		if m := &out[i]; m.Kind == pool.Answer {
			s.c.open = slices.DeleteFunc(s.c.open, func(j int64) bool { return j == m.Step })
		}
	}
	return out
}

func (s spy) Result(member uint32, m *actors.Message) (bool, []actors.Message) {
	counts, out := s.Desk.Result(member, m)
	if counts {
		at := slices.Index(s.c.on[member], key(m))
		if at < 0 {
			s.c.fail("P-2", "member %d answers %s, and has %v", member, key(m), s.c.on[member])
			return counts, out
		}
		s.c.on[member] = slices.Delete(s.c.on[member], at, at+1)
		delete(s.c.holder, m.Step)
		s.c.open = slices.DeleteFunc(s.c.open, func(j int64) bool { return j == m.Step })
		if s.c.w.queue == nil {
			s.c.part(rounds.TaskOf(m))
		}
	}
	return counts, s.orders(out)
}

func (s spy) Tell(now actors.Time, m *actors.Message) []actors.Message {
	if m.Kind == pool.Ask && s.c.w.queue != nil && s.c.over == nil {
		s.c.open = append(s.c.open, m.Step)
	}
	out := s.Desk.Tell(now, m)
	if s.c.w.queue != nil && m.Kind == pool.Ask {
		s.limit(m, out, slices.ContainsFunc(out, func(m actors.Message) bool { return errors.Is(m.Err, pool.ErrFull) }))
	}
	return s.orders(s.drop(out))
}

func (s spy) Shut(err error) []actors.Message {
	if s.c.shut++; (s.c.shut == s.c.w.places) != (err != nil) {
		s.c.fail("P-6", "%d of %d places are closed, and the pool is over: %v", s.c.shut, s.c.w.places, err)
	}
	s.c.over = err
	return s.orders(s.drop(s.Desk.Shut(err)))
}

// limit looks at how many wait where one more is asked.
func (s spy) limit(m *actors.Message, out []actors.Message, refused bool) {
	waiting := 0
	taken := slices.ContainsFunc(out, func(x actors.Message) bool { return x.Kind == pool.Task && x.Step == m.Step })
	for _, job := range s.c.open {
		if _, held := s.c.holder[job]; !held && job != m.Step {
			waiting++
		}
	}
	most := s.c.w.queue.Limit
	if !refused && !taken && most > 0 && waiting >= most && s.c.over == nil {
		s.c.fail("P-11", "task %d waits where %d do, and %d may", m.Step, waiting, most)
	}
	if refused && (most == 0 || waiting < most) {
		s.c.fail("P-11", "task %d is refused where %d wait, and %d may", m.Step, waiting, most)
	}
}

// part takes a part of a group's answers that counts.
func (c *watch) part(t rounds.Task) {
	g := [2]int64{t.Round, int64(t.Group)}
	have := c.drawn[g]
	from := int64(0)
	if len(have) > 0 {
		from = have[len(have)-1].To
	}
	if t.From != from || len(have) > 0 && from == 0 {
		c.fail("P-2", "%+v comes behind %+v", t, have)
	}
	if age := t.Round - t.Publication; age < 0 || age > c.w.plan.Staleness {
		c.fail("P-8", "%+v has the age %d, and %d is allowed", t, age, c.w.plan.Staleness)
	}
	c.drawn[g] = append(have, t.Part)
}

// run simulates a world to its end.
func (w *world) run() (*sim.Result, error) {
	w.rng = rand.New(rand.NewPCG(w.seed, 5))
	w.watch = watch{w: w, given: map[int64]map[uint32]bool{}, answered: map[int64]int{}, losses: map[int64]int{},
		on: map[uint32][]string{}, holder: map[int64]uint32{}, busy: map[uint32]bool{}, vain: map[uint32]int{},
		drawn: map[[2]int64][]rounds.Part{}}
	s := sim.Open(sim.Options{Seed: w.seed, Late: int64(5 * ms), Events: 1 << 20})
	w.o.Owner = 1
	w.o.Places = nil
	for i := range w.places {
		w.o.Places = append(w.o.Places, actors.Ref(2+i))
	}
	w.o.Desk = spy{w.desk(), &w.watch}
	p := pool.New(w.o)
	s.Add("pool", p)
	s.Add("owner", &owner{w: w})
	for i := range w.places {
		s.Add(fmt.Sprint("place ", i), &site{w: w, broken: i < w.broken})
	}
	r := s.Run()
	switch c := &w.watch; {
	case r.Failed != "":
		c.fail("panic", "%s", r.Failed)
	case r.Cut:
		c.fail("P-10", "no end after %d events", r.Events)
	case w.queue == nil && c.over == nil && c.trained < w.last:
		c.fail("P-10", "%d of %d rounds are trained on: %+v", c.trained, w.last, r.Stall)
	case w.queue != nil && len(c.answered) < w.chains*w.turns:
		c.fail("P-1", "%d of %d tasks are answered: %+v", len(c.answered), w.chains*w.turns, r.Stall)
	}
	return r, w.watch.err
}

func (w *world) desk() pool.Desk {
	if w.queue != nil {
		q := *w.queue
		return &q
	}
	w.rounds = rounds.NewDesk(w.plan, w.groups, 2, w.last)
	return w.rounds
}

// owner asks, and takes the answers.
type owner struct {
	w      *world
	chain  map[int64]int
	left   []int // turns by chain
	next   int64
	trains bool
}

func (*owner) Waits() actors.Wait { return actors.Wait{For: actors.None} }

func (o *owner) Receive(ctx actors.Context, m *actors.Message) {
	w := o.w
	c := &w.watch
	switch m.Kind {
	case actors.Started:
		if w.queue == nil {
			ctx.Send(0, actors.Message{Kind: pool.Ask, Step: 0})
			return
		}
		o.chain = map[int64]int{}
		for k := range w.chains {
			o.left = append(o.left, w.turns)
			ctx.After(actors.Duration(w.rng.Int64N(int64(300*ms))), actors.Message{Step: int64(k)})
		}
	case actors.Tick:
		if w.queue == nil {
			w.rounds.Trained(c.trained)
			o.trains = false
			if c.trained++; c.trained < w.last {
				ctx.Send(0, actors.Message{Kind: pool.Ask, Step: c.trained})
				o.train(ctx)
			}
			return
		}
		o.next++
		o.chain[o.next] = int(m.Step)
		chain := int32(m.Step) + 1
		if w.batch {
			chain = 1
		} else if chain%3 == 0 {
			chain = 0 // of none
		}
		ctx.Send(0, actors.Message{Kind: pool.Ask, Step: o.next, Comm: chain})
	case pool.Answer:
		o.answer(ctx, m)
	case pool.Closed:
		if w.room == 0 && c.vain[m.Epoch] != w.o.Tries {
			c.fail("P-6", "a place is closed behind %d in vain, and %d may be", c.vain[m.Epoch], w.o.Tries)
		}
	}
}

func (o *owner) answer(ctx actors.Context, m *actors.Message) {
	w := o.w
	c := &w.watch
	if w.queue == nil {
		o.train(ctx)
		return
	}
	if c.answered[m.Step]++; c.answered[m.Step] > 1 {
		c.fail("P-1", "task %d is answered twice", m.Step)
	}
	switch {
	case m.Err == nil && !c.given[m.Step][m.Epoch]:
		c.fail("P-2", "task %d is answered by member %d, who was not told of it", m.Step, m.Epoch)
	case m.Err == nil && (len(m.Out) > 0 || m.Segment != int32(m.Step)):
		c.fail("P-2", "task %d has the answer of %d", m.Step, m.Segment)
	case errors.Is(m.Err, errFull) && w.room > 0, c.over != nil:
	case errors.Is(m.Err, pool.ErrFull):
	case m.Err != nil && (w.queue.Most == 0 || c.losses[m.Step] != w.queue.Most):
		c.fail("P-5", "task %d is given up (%v) with %d members lost", m.Step, m.Err, c.losses[m.Step])
	case m.Err == nil && w.queue.Most > 0 && c.losses[m.Step] >= w.queue.Most:
		c.fail("P-5", "task %d is tried after %d members were lost with it", m.Step, c.losses[m.Step])
	}
	k := o.chain[m.Step]
	if o.left[k]--; o.left[k] > 0 {
		ctx.After(actors.Duration(w.rng.Int64N(int64(50*ms))), actors.Message{Step: int64(k)})
	} else {
		ctx.Send(0, actors.Message{Kind: pool.Free, Comm: int32(k) + 1})
	}
}

// train begins the steps of a round that is drawn.
func (o *owner) train(ctx actors.Context) {
	c := &o.w.watch
	if o.trains || c.trained >= o.w.last || !o.w.rounds.Complete(c.trained) {
		return
	}
	o.trains = true
	for g := range o.w.groups {
		parts := c.drawn[[2]int64{c.trained, int64(g)}]
		if len(parts) == 0 || parts[len(parts)-1].To != 0 {
			c.fail("P-1", "round %d is trained on, and drawn of group %d are %+v", c.trained, g, parts)
		}
	}
	ctx.After(actors.Duration(1+o.w.rng.Int64N(int64(400*ms))), actors.Message{})
}

var errFull = errors.New("there is no room")
