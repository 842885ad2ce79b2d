package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/topology/collective"
)

// Layout is what is simulated: the layouts of the behaviours as the host makes them, and what their work
// does to memory.
// In the words of the field: discrete-event simulation.
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
	// Class is the class of shape of a microbatch of the replica that a rank belongs to; nil is 0 for all.
	Class func(step int64, rank actors.Ref, micro int) int32
	// Overflow reports whether the gradients of a step, made with a loss scale, are not finite, on one of
	// the ranks; nil is never. Run.Norms must be there.
	Overflow func(step int64, scale float64) bool
	// Norm is the squared gradient norm of each parameter in a step, as the coordinator is told; nil is 1.
	Norm  func(step int64) float64
	Names func(rank int) string
}

// Memory is what actions do to a rank's memory. Foot gives the bytes of an action's frame at its worst and
// after it; both are zero where nothing is known. Base is what a rank holds all the time; Limit ends the run
// with an error where it is exceeded, 0 is none.
//
// Where ranks hand memory to one another, Begin and End account it instead of Foot: Begin gives what a rank
// holds at the worst of an action, End the most that it has held so far, both beside Base. Forget is for a
// rank that goes back to a saved state.
type Memory struct {
	Foot   func(rank int, job *actors.Job) (peak, after int64)
	Begin  func(rank int, job *actors.Job) int64
	End    func(rank int, job *actors.Job) int64
	Forget func(rank int)
	Base   func(rank int) int64
	Update func(rank int) int64 // in the optimizer step at its worst, beside Base; nil for nothing
	Limit  int64
}

// Prices gives durations in nanoseconds and never a negative one. Ranks are numbers; -1 is an actor without
// a device of its own.
type Prices struct {
	Job  func(rank int, j *actors.Job, s *core.Segment) int64
	Link func(from, to int) Link
	// of one collective in which each rank sends bytes; apart says that each member gets a part of its own
	Collective func(ranks []int, bytes int64, apart bool) int64
	// nanoseconds a byte between a device and host memory, on the copy engine
	Copy float64
	Read float64 // nanoseconds a byte of the data that a loader makes ready, beside its job's own
	// Sends lists such a collective's messages; if it is set, and Options.Whole, collectives are carried out
	// send by send.
	Sends func(ranks []int, bytes int64, apart bool) []collective.Send
}

// Link is a connection of two ranks. Messages with data wait for the sender's and the receiver's Port
// (numbers of shared connections, -1 for none); small messages only take the latency.
type Link struct {
	Latency int64   // nanoseconds
	PerByte float64 // nanoseconds
	Out, In int32
}

// Options choose how a layout is run.
type Options struct {
	Seed uint64 // of the order of simultaneous events, of jitter and of faults
	// a collective is one event a member, or Prices.Sends, instead of one message a pair of members
	Whole bool
	// Ranks that do the same run once: figures are those of all ranks, and the hash is that of the events that
	// were carried out. Result.Unfolded says where it may not be. It is of prices, and of Memory.Begin and
	// End, by which two ranks differ only if they differ in the work, links, Base and Update.
	Fold bool
	// a rank does nothing until what it has sent to another stage is there and its device was waited for, as
	// Megatron-LM without overlap_p2p_comm; if not, data travels beside its work
	Wait bool
	// Each calls do(0) to do(n-1), in any order and perhaps several at once, and returns when all have ended.
	// With it, replicas that meet others only between steps and in collectives of the optimizer step run by themselves
	// from one such meeting to the next; what comes of it is the same in every bit. The functions of Layout and Prices,
	// and Stop, are then called from several goroutines, for other ranks each. Runs that are folded, watched,
	// disturbed by faults or chance, or that save or evaluate, go through all events in turn.
	Each   func(n int, do func(i int))
	Jitter float64 // jobs take up to this share longer, at random
	// messages without data take up to this many nanoseconds longer, at random; two of one pair of actors
	// and one epoch stay in order
	Late   int64
	Faults []Fault
	// nanoseconds after which the transport tells the coordinator that a message was lost; 0 if it never does
	Notice int64
	Mutate func(to actors.Ref, m *actors.Message) Fate // tests plant protocol bugs here; nil for none
	See    func(Event)                                 // every delivered message, nil for none
	Again  func(Event)                                 // instead of See, where it has come before; nil for none
	Span   func(Span)                                  // every job, nil for none
	Report func(actors.Message)                        // what the coordinator tells the observer
	// most events before the run is cut short, 0 for no bound
	Events uint64
	// asked now and then; true ends the run with what there is
	Stop func() bool
}

// watcher is who hears of a message that has come before, or of another.
func (o *Options) watcher(again bool) func(Event) {
	if again {
		return o.Again
	}
	return o.See
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
	Made       []*Origin // of its results; the watcher may fill in their epochs
}

// cell is one actor: what every event touches, in one line of a cache.
type cell struct {
	b    actors.Behaviour
	dev  *device  // nil for none
	free [4]int64 // when each engine of its device is
	life uint32   // how often the actor has ended before
	dead bool
	gone bool // it will not come back
	back bool // it will as soon as it is told that it has started: before, nothing reaches it
}

// extra is what few events touch of an actor.
type extra struct {
	name    string
	loader  int // -1 for none
	rand    *rand.Rand
	watched []actors.Ref
}

// node is a rank: its behaviour and its device lie together.
type node struct {
	rank core.Rank
	dev  device
}

// Sim is one simulation.
type Sim struct {
	l           *Layout
	p           Prices
	o           Options
	cells       []cell
	extras      []extra
	nodes       []*node
	rankOf      []int32 // by actor, -1 for none
	q           queue
	cur         actors.Message // the one being delivered
	credit      [1]float64     // its values, if it is a Credit
	flights     [][]inFlight
	unused      []int32
	rests       []rest
	restsUnused []int32
	now         int64
	hashes      []uint64 // by actor: over what it was told
	events      uint64
	ctx         context
	job         actors.Job // the one being started
	ports       []int64    // when each shared connection is free
	blobs       blobs
	wires       map[wiresKey]*wires
	timers      map[actors.Timer]bool // pending
	// when the last message without data between two actors comes, with Options.Late
	orders  map[uint64]int64
	timer   actors.Timer
	outs    [][]actors.Output
	faults  faultState
	res     Result
	ended   bool
	rng     *rand.Rand
	touched int64 // keeps touch from being optimized away
	run     core.RunLayout
	durable durable
	fold    *folding   // nil if every rank runs
	apart   *partition // nil if all events go through one queue
	part               // of a run that is apart
	stood   uint64     // deliveries that those carried out stand for, beside themselves
}

// bare is a simulation without actors.
func bare(l *Layout, p Prices, o Options) *Sim {
	s := &Sim{l: l, p: p, o: o, timers: map[actors.Timer]bool{}, orders: map[uint64]int64{},
		wires: map[wiresKey]*wires{}, rng: rand.New(rand.NewPCG(o.Seed, 0xda7a))}
	s.ctx.s, s.q.s = s, s
	return s
}

// Open prepares a world of actors of any protocol, which Add brings in: without a layout, ranks and devices. Of the
// options those of ranks and Faults have no effect; Mutate and Late do. Result.Stall is nil where the first actor
// waits for nobody when nothing more happens.
func Open(o Options) *Sim { return bare(&Layout{Observer: actors.None}, Prices{}, o) }

// Add brings an actor into a world that is not run yet, under the number that is the next from 0 on.
func (s *Sim) Add(name string, b actors.Behaviour) actors.Ref {
	ref := s.add()
	s.spawn(ref, name, b)
	return ref
}

// New prepares a run. The layout may be used by several runs one after the other.
func New(l *Layout, p Prices, o Options) *Sim {
	s := bare(l, p, o)
	most := max(l.Coordinator, l.Observer)
	for _, r := range append(append([]actors.Ref{}, l.RankRefs...), l.LoaderRefs...) {
		most = max(most, r)
	}
	for range most + 1 {
		s.add()
	}
	if o.Fold {
		s.fold, s.res.Unfolded = fold(l, &s.p, &s.o)
	}
	for i, r := range l.RankRefs {
		s.rankOf[r] = int32(i)
	}
	s.divide()
	s.makeNodes()
	s.faults.init(s)
	layouts := l.Ranks
	if o.Whole {
		layouts = s.collectives()
	}
	run := l.Run
	run.Ranks, run.Observer = s.kept(l.RankRefs), l.Observer
	for _, f := range o.Faults {
		run.Recover = run.Recover || f.Kind == Restart || f.Kind == Succession || f.Kind == Gone || o.Notice > 0
	}
	s.run = run
	s.spawn(l.Observer, "observer", (*observer)(s))
	for i, ll := range l.Loaders {
		if ll = s.load(ll); ll != nil {
			s.extras[l.LoaderRefs[i]].loader = i
			s.spawn(l.LoaderRefs[i], fmt.Sprintf("loader %d", i), core.NewLoader(ll))
		}
	}
	for i, rl := range layouts {
		if !s.fold.runs(i) {
			continue
		}
		n := s.nodes[i]
		n.dev.init(s, rl, &n.rank)
		n.rank.Init(rl)
		s.spawn(l.RankRefs[i], "", &n.rank)
	}
	s.spawn(l.Coordinator, "coordinator", core.NewCoordinator(&run))
	s.share()
	return s
}

// add makes room for one more actor.
func (s *Sim) add() actors.Ref {
	s.cells, s.extras, s.rankOf = append(s.cells, cell{}), append(s.extras, extra{loader: -1}), append(s.rankOf, -1)
	if s.hashes = append(s.hashes, 0); s.homes != nil {
		s.homes = append(s.homes, 0)
	}
	return actors.Ref(len(s.cells) - 1)
}

// spawn gives the actor at ref its name and behaviour, and lets it start through a message, in turn
// with all other events.
func (s *Sim) spawn(ref actors.Ref, name string, b actors.Behaviour) {
	if s.faults.doubles {
		b = core.NewOnce(b)
	}
	s.cells[ref].b, s.extras[ref].name = b, name
	s.post(s.now, ref, &actors.Message{Kind: actors.Started, From: ref})
}

// name is how messages name an actor.
func (s *Sim) name(r actors.Ref) string {
	rank := int(s.rankOf[r])
	switch {
	case rank >= 0 && s.l.Names != nil:
		return s.l.Names(rank)
	case rank >= 0:
		return fmt.Sprintf("rank %d", rank)
	}
	return s.extras[r].name
}

// post puts a message into the queue. Simultaneous events come in an order drawn from the seed, but two of
// one pair of actors in the order of sending.
func (s *Sim) post(at int64, to actors.Ref, m *actors.Message) {
	if s.homes != nil && (s.home == 0 || s.homes[to] != s.home) {
		s.abroad(at, to, m)
		return
	}
	s.enter(at, to, m)
}

// enter puts it into the actor's own queue.
func (s *Sim) enter(at int64, to actors.Ref, m *actors.Message) {
	s.q.push(item{at, s.order(at, m.From, to), s.pack(to, m)})
}

// order is where an event comes among those of its time.
func (s *Sim) order(at int64, from, to actors.Ref) uint32 {
	return uint32(mix(s.o.Seed^uint64(at), uint64(uint32(from))<<32|uint64(uint32(to))))
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
	if s.apart != nil && !s.runPartitioned() {
		return s.again()
	}
	for s.burst() {
	}
	if !s.ended && !s.res.Cut && s.res.Failed == "" {
		s.res.Stall = s.stall()
	}
	return s.result()
}

// burst delivers events until none is left, and reports whether it was cut short by a behaviour's panic:
// our bug, or a fault that nothing below absorbs. Either ends the run by name, and the other actors go on to their end.
func (s *Sim) burst() (again bool) {
	defer func() {
		if x := recover(); x != nil {
			s.cells[s.ctx.self].dead = true
			s.fail(fmt.Sprintf("%s: internal error: %v", s.name(s.ctx.self), x))
			again = true
		}
	}()
	for !s.q.empty() {
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
	if next := s.q.peek(); s.q.next%ahead == 0 && len(next) > 1 {
		s.prefetch(next[:min(ahead, len(next))])
	}
	s.deliver(s.q.pop())
}

// deliver hands an event to its actor.
func (s *Sim) deliver(e item) {
	s.now = e.at
	m := &s.cur
	to := s.unpack(e.msg, m)
	if m.Kind == actors.Tick && m.Job != 0 {
		if !s.timers[actors.Timer(m.Job)] {
			return
		}
		delete(s.timers, actors.Timer(m.Job))
	}
	c := &s.cells[to]
	s.events++
	if s.fold != nil {
		s.stood += s.fold.stands(to, m.From) - 1
	}
	if m.Kind == actors.Done && !s.landed(c, m) {
		s.count(e.at, to, m)
		return
	}
	s.count(e.at, to, m)
	again := s.faults.any && s.faults.again(to, m) // its actor is to stand it; who watches counts it once
	if see := s.o.watcher(again); see != nil {
		see(Event{actors.Time(e.at), to, m})
	}
	if m.Kind == actors.Started && c.back {
		c.dead, c.back = false, false
	}
	if c.dead || c.b == nil {
		s.drop(m)
	} else {
		s.ctx.self = to
		c.b.Receive(&s.ctx, m)
	}
	if m.Kind == actors.Done {
		s.recycle(to, m)
	}
}

// landed notes that a job has ended, and reports whether its actor is still the one that started it.
func (s *Sim) landed(c *cell, m *actors.Message) bool {
	if m.Epoch != c.life {
		s.drop(m)
		return false
	}
	if c.dev != nil && len(m.Values) > 0 {
		c.dev.flying = false
	}
	m.Epoch = 0
	if len(s.durable.under) == 0 {
		return true
	}
	if d, ok := s.durable.under[m.Job]; ok && c == &s.cells[s.l.Coordinator] {
		delete(s.durable.under, m.Job)
		s.durable.step, s.durable.values = d.step, d.values
	}
	return true
}

// fail ends the simulation with a reason; only the first reason is kept.
func (s *Sim) fail(why string) {
	if s.res.Failed == "" {
		s.res.Failed, s.ended = why, true
	}
}

// context implements actors.Context for whichever actor receives.
type context struct {
	s    *Sim
	self actors.Ref
}

func (c *context) Self() actors.Ref { return c.self }
func (c *context) Now() actors.Time { return actors.Time(c.s.now) }

// Rand is the actor's own source of random numbers. It is seeded by the run and the actor, so that
// the order in which actors draw does not matter.
func (c *context) Rand() *rand.Rand {
	x := &c.s.extras[c.self]
	if x.rand == nil {
		x.rand = rand.New(rand.NewPCG(c.s.o.Seed, uint64(c.self)))
	}
	return x.rand
}

// Send sends m at the simulated present; how long it travels is the network's matter.
func (c *context) Send(to actors.Ref, m actors.Message) {
	m.From = c.self
	c.s.send(to, &m)
}

// After sends the actor m after d of simulated time. A negative d counts as none.
func (c *context) After(d actors.Duration, m actors.Message) actors.Timer {
	c.s.timer++
	c.s.timers[c.s.timer] = true
	m.Kind, m.Job = actors.Tick, actors.JobID(c.s.timer)
	c.s.post(c.s.now+max(0, int64(d)), c.self, &m)
	return c.s.timer
}

func (c *context) Cancel(t actors.Timer) { delete(c.s.timers, t) }

// Spawn adds an actor whose first message arrives at the present time.
func (c *context) Spawn(name string, b actors.Behaviour) actors.Ref {
	if c.s.apart != nil {
		panic("sim: a run that is apart has all its actors from the beginning")
	}
	ref := c.s.add()
	c.s.spawn(ref, name, b)
	return ref
}

// Watch asks to be told when r ends.
func (c *context) Watch(r actors.Ref) {
	x := &c.s.extras[r]
	x.watched = append(x.watched, c.self)
}

func (c *context) Stop(r actors.Ref) { c.s.cells[r].dead = true }

// Do starts a job on the actor's simulated device; its end comes as a message.
func (c *context) Do(j actors.Job) {
	c.s.job = j
	c.s.do(c.self, &c.s.job)
}
