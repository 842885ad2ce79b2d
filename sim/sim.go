// Package sim runs the behaviours of actors/core on one event loop under a virtual clock: the same programs, messages and
// protocols as training, with durations in place of kernels. A run is a function of its layout, prices and seed: no goroutine,
// wall clock or map order takes part, and the hash over every delivered event shows it.
package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
)

// Layout is what is simulated: the layouts of the behaviours as the host makes them, and what their work does to memory.
type Layout struct {
	Ranks       []*core.RankLayout
	RankRefs    []actors.Ref
	Loaders     []*core.LoaderLayout
	LoaderRefs  []actors.Ref
	Coordinator actors.Ref
	Observer    actors.Ref
	Run         core.RunLayout // Ranks and Observer are set by New
	Memory      Memory
	BatchBytes  int64 // data of one microbatch or chunk
	Names       func(rank int) string
}

// Memory is what actions do to a rank's memory. Foot gives the bytes of an action's frame at its worst and after it; both are zero
// where nothing is known. Base is what a rank holds all the time; Limit ends the run with an error where it is exceeded, 0 is none.
type Memory struct {
	Foot  func(rank int, job *actors.Job) (peak, after int64)
	Base  func(rank int) int64
	Limit int64
}

// Prices gives durations in nanoseconds and never a negative one. Ranks are numbers; -1 is an actor without a device of its own.
type Prices struct {
	Job        func(rank int, j *actors.Job, s *core.Segment) int64
	Link       func(from, to int) Link
	Collective func(ranks []int, bytes int64) int64 // of one collective in which each rank sends bytes
}

// Link is a connection of two ranks. Messages with data wait for the sender's and the receiver's Port (numbers of shared
// connections, -1 for none); small messages only take the latency.
type Link struct {
	Latency int64   // nanoseconds
	PerByte float64 // nanoseconds
	Out, In int32
}

// Options choose how a layout is run.
type Options struct {
	Seed   uint64  // of the order of simultaneous events, of jitter and of faults
	Whole  bool    // a collective is one event a member instead of one message a pair of members
	Jitter float64 // jobs take up to this share longer, at random
	Faults []Fault
	Mutate func(to actors.Ref, m *actors.Message) Fate // tests plant protocol bugs here; nil for none
	See    func(Event)                                 // every delivered message, nil for none
	Span   func(Span)                                  // every job, nil for none
	Report func(actors.Message)                        // what the coordinator tells the observer
	Events uint64                                      // most events before the run is cut short, 0 for no bound
	Stop   func() bool                                 // asked now and then; true ends the run with what there is
}

// Event is a delivered message.
type Event struct {
	At actors.Time
	To actors.Ref
	M  *actors.Message // valid during the call
}

// Span is a job as it ran.
type Span struct {
	Rank       int // -1 for loaders and the coordinator
	Ref        actors.Ref
	Job        *actors.Job // valid during the call
	Start, End actors.Time
}

// cell is one actor.
type cell struct {
	b       actors.Behaviour
	name    string
	rank    int32 // -1 for none
	loader  int32
	dead    bool
	rand    *rand.Rand
	free    [4]int64 // when each engine of its device is
	watched []actors.Ref
}

// Sim is one simulation.
type Sim struct {
	l      *Layout
	p      Prices
	o      Options
	cells  []cell
	q      queue
	msgs   []actors.Message
	cur    actors.Message // the one being delivered
	to     []actors.Ref
	unused []int32
	now    int64
	seq    uint64
	hash   uint64
	events uint64
	ctx    context
	ports  []int64 // when each shared connection is free
	dev    []device
	blobs  blobs
	timers map[actors.Timer]bool // pending
	timer  actors.Timer
	outs   [][]actors.Output
	vals   [][]float64
	faults faultState
	res    Result
	ended  bool
	rng    *rand.Rand
}

// New prepares a run. The layout may be used by several runs one after the other.
func New(l *Layout, p Prices, o Options) *Sim {
	s := &Sim{l: l, p: p, o: o, timers: map[actors.Timer]bool{}, hash: o.Seed ^ 0x9e3779b97f4a7c15, rng: rand.New(rand.NewPCG(o.Seed, 0xda7a))}
	s.ctx.s = s
	most := max(l.Coordinator, l.Observer)
	for _, r := range append(append([]actors.Ref{}, l.RankRefs...), l.LoaderRefs...) {
		most = max(most, r)
	}
	s.cells = make([]cell, most+1)
	for i := range s.cells {
		s.cells[i].rank, s.cells[i].loader = -1, -1
	}
	s.faults.init(s)
	layouts := l.Ranks
	if o.Whole {
		layouts = s.collectives()
	}
	s.dev = make([]device, len(l.Ranks))
	run := l.Run
	run.Ranks, run.Observer = l.RankRefs, l.Observer
	s.spawn(l.Observer, "observer", (*observer)(s), -1, -1)
	for i, ll := range l.Loaders {
		s.spawn(l.LoaderRefs[i], fmt.Sprintf("loader %d", i), core.NewLoader(ll), -1, i)
	}
	for i, rl := range layouts {
		s.dev[i].init(s, rl)
		s.spawn(l.RankRefs[i], "", core.NewRank(rl), i, -1)
	}
	s.spawn(l.Coordinator, "coordinator", core.NewCoordinator(&run), -1, -1)
	return s
}

func (s *Sim) spawn(ref actors.Ref, name string, b actors.Behaviour, rank, loader int) {
	c := &s.cells[ref]
	c.b, c.name, c.rank, c.loader = b, name, int32(rank), int32(loader)
	s.post(s.now, ref, actors.Message{Kind: actors.Started, From: ref})
}

// name is how messages name an actor.
func (s *Sim) name(r actors.Ref) string {
	c := &s.cells[r]
	switch {
	case c.rank >= 0 && s.l.Names != nil:
		return s.l.Names(int(c.rank))
	case c.rank >= 0:
		return fmt.Sprintf("rank %d", c.rank)
	}
	return c.name
}

// post puts a message into the queue. Simultaneous events come in an order drawn from the seed, but two of one pair of actors
// in the order of sending.
func (s *Sim) post(at int64, to actors.Ref, m actors.Message) {
	s.seq++
	i := int32(len(s.msgs))
	if n := len(s.unused); n > 0 {
		i, s.unused = s.unused[n-1], s.unused[:n-1]
		s.msgs[i], s.to[i] = m, to
	} else {
		s.msgs, s.to = append(s.msgs, m), append(s.to, to)
	}
	s.q.push(item{at, mix(s.o.Seed^uint64(at), uint64(uint32(m.From))<<32|uint64(uint32(to))), s.seq, i})
}

// mix is one round of a multiply-and-shift hash (splitmix64's finalizer on a sum).
func mix(h, x uint64) uint64 {
	h = (h ^ x) * 0xbf58476d1ce4e5b9
	h ^= h >> 29
	h *= 0x94d049bb133111eb
	return h ^ h>>32
}

// Run carries the run to its end, to a stall, or to the bound on events.
func (s *Sim) Run() *Result {
	for s.burst() {
	}
	if !s.ended && !s.res.Cut && s.res.Failed == "" {
		s.res.Stall = s.stall()
	}
	return s.result()
}

// burst delivers events until none is left, and reports whether it was cut short by a behaviour's panic: our bug, or a fault that
// nothing below absorbs. Either ends the run by name, and the other actors go on to their end.
func (s *Sim) burst() (again bool) {
	defer func() {
		if x := recover(); x != nil {
			s.cells[s.ctx.self].dead = true
			s.fail(fmt.Sprintf("%s: internal error: %v", s.name(s.ctx.self), x))
			again = true
		}
	}()
	for len(s.q.a) > 0 {
		if s.o.Events > 0 && s.events >= s.o.Events || s.o.Stop != nil && s.events&0xffff == 0 && s.o.Stop() {
			s.res.Cut = true
			break
		}
		s.step()
	}
	return false
}

// step delivers the next event.
func (s *Sim) step() {
	e := s.q.pop()
	s.now = e.at
	m, to := &s.cur, s.to[e.msg]
	*m = s.msgs[e.msg]
	s.msgs[e.msg].Payload, s.msgs[e.msg].Out = nil, nil
	s.unused = append(s.unused, e.msg)
	if m.Kind == actors.Tick && m.Job != 0 {
		if !s.timers[actors.Timer(m.Job)] {
			return
		}
		delete(s.timers, actors.Timer(m.Job))
	}
	c := &s.cells[to]
	s.events++
	s.count(e.at, to, m)
	if s.o.See != nil {
		s.o.See(Event{actors.Time(e.at), to, m})
	}
	if c.dead || c.b == nil {
		s.drop(m)
	} else {
		s.ctx.self = to
		c.b.Receive(&s.ctx, *m)
	}
	if m.Kind == actors.Done {
		s.recycle(m)
	}
}

func (s *Sim) fail(why string) {
	if s.res.Failed == "" {
		s.res.Failed, s.ended = why, true
	}
}

// count adds an event to the trace hash.
func (s *Sim) count(at int64, to actors.Ref, m *actors.Message) {
	h := s.hash
	h = mix(h, uint64(at))
	h = mix(h, uint64(uint32(to))|uint64(m.Kind)<<32|uint64(uint32(m.From))<<40)
	h = mix(h, uint64(m.Action.Kind)|uint64(uint16(m.Action.Stage))<<8|uint64(uint16(m.Action.Chunk))<<24|uint64(uint32(m.Action.Micro))<<40)
	s.hash = mix(h, uint64(uint32(m.Segment))|uint64(uint32(m.Member))<<16|uint64(uint32(m.Port+m.Comm))<<32|uint64(m.Step)<<48^uint64(m.Job))
}

// drop releases what a message owns.
func (s *Sim) drop(m *actors.Message) {
	if m.Payload != nil {
		m.Payload.Release()
	}
	for _, o := range m.Out {
		if o.Payload != nil {
			o.Payload.Release()
		}
	}
}

// recycle takes back the lists of a Done that its actor has read.
func (s *Sim) recycle(m *actors.Message) {
	if cap(m.Out) > 0 {
		clear(m.Out)
		s.outs = append(s.outs, m.Out[:0])
	}
	if m.Values != nil {
		s.vals = append(s.vals, m.Values)
	}
}

// context implements actors.Context for whichever actor receives.
type context struct {
	s    *Sim
	self actors.Ref
}

func (c *context) Self() actors.Ref { return c.self }
func (c *context) Now() actors.Time { return actors.Time(c.s.now) }

func (c *context) Rand() *rand.Rand {
	x := &c.s.cells[c.self]
	if x.rand == nil {
		x.rand = rand.New(rand.NewPCG(c.s.o.Seed, uint64(c.self)))
	}
	return x.rand
}

func (c *context) Send(to actors.Ref, m actors.Message) {
	m.From = c.self
	c.s.send(to, m)
}

func (c *context) After(d actors.Duration, m actors.Message) actors.Timer {
	c.s.timer++
	c.s.timers[c.s.timer] = true
	m.Kind, m.Job = actors.Tick, actors.JobID(c.s.timer)
	c.s.post(c.s.now+max(0, int64(d)), c.self, m)
	return c.s.timer
}

func (c *context) Cancel(t actors.Timer) { delete(c.s.timers, t) }

func (c *context) Spawn(name string, b actors.Behaviour) actors.Ref {
	c.s.cells = append(c.s.cells, cell{rank: -1, loader: -1})
	ref := actors.Ref(len(c.s.cells) - 1)
	c.s.spawn(ref, name, b, -1, -1)
	return ref
}

func (c *context) Watch(r actors.Ref) {
	x := &c.s.cells[r]
	x.watched = append(x.watched, c.self)
}

func (c *context) Stop(r actors.Ref) { c.s.cells[r].dead = true }
func (c *context) Do(j actors.Job)   { c.s.do(c.self, j) }

// observer ends the run when the coordinator says so.
type observer Sim

// Receive implements actors.Behaviour.
func (o *observer) Receive(_ actors.Context, m actors.Message) {
	s := (*Sim)(o)
	if m.Kind != actors.Report {
		return
	}
	if s.o.Report != nil {
		s.o.Report(m)
	}
	switch m.Text {
	case core.TopicStep:
		s.res.Steps = append(s.res.Steps, StepReport{m.Step, m.Values[core.StepTime], m.Values[core.StepPeak]})
	case core.TopicEnd:
		s.ended = true
	case core.TopicFailed:
		s.fail(m.Err.Error())
	}
}

// Waits implements actors.Behaviour.
func (o *observer) Waits() actors.Wait { return actors.Wait{For: actors.None} }
