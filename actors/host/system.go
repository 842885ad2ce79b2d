package host

import (
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/kernels"
)

// Device runs an actor's jobs. Run is called from one goroutine an engine; jobs of one engine come in order.
type Device interface {
	Run(j actors.Job) (Result, error)
}

// Result is what a job leaves.
type Result struct {
	Out    []actors.Output
	Values []float64
	Text   string
}

// Remote carries messages to actors of other processes.
type Remote interface {
	Send(to actors.Ref, m actors.Message)
}

// System is the actors of one process.
type System struct {
	sys     *actor.ActorSystem
	turns   turns
	began   time.Time
	seed    uint64
	remote  Remote
	mu      sync.RWMutex
	pids    map[actors.Ref]*actor.PID
	cells   map[actors.Ref]*cell
	next    actors.Ref
	workers sync.WaitGroup
	stop    sync.Once
	filter  func(to actors.Ref, m actors.Message) bool
	life    int    // how often the process was started before
	on      string // the host that it lives on, "" where that is not known
	proc    int
	names   func(actors.Ref) string // of actors, short
	took    func() int64            // bytes of messages of other processes, or nil
	members func() []Status         // of pools that batches wait for, or nil
	taps    []*tap
	capture *Capture
	lost    chan error       // takes what ends the process; nil where nothing does
	dead    atomic.Bool      // it is ending, and says nothing any more
	Trace   func(TraceEvent) // observes jobs; nil for none
}

// TraceEvent is one job as it ran.
type TraceEvent struct {
	Ref        actors.Ref
	Name       string
	Job        actors.Job
	Start, End time.Duration // since the run began
}

// NewSystem returns a system whose refs for spawned children start at first.
func NewSystem(seed uint64, first actors.Ref, remote Remote) *System {
	return &System{sys: quiet(), turns: newTurns(), began: time.Now(), seed: seed, remote: remote,
		pids: map[actors.Ref]*actor.PID{}, cells: map[actors.Ref]*cell{}, next: first,
		names: func(r actors.Ref) string { return fmt.Sprint("actor", r) }}
}

// quiet is an actor system that keeps its own log to itself: its dead letters at the end of a run are no news.
func quiet() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}))
}

// Since is the time since the run began.
func (s *System) Since() time.Duration { return time.Since(s.began) }

// Spawn starts behaviour b as ref; dev runs its jobs and may be nil for an actor without any.
func (s *System) Spawn(ref actors.Ref, name string, b actors.Behaviour, dev Device) {
	c := &cell{s: s, ref: ref, name: name, b: b, dev: dev, gone: make(chan struct{}), taps: map[actors.Ref]*tap{},
		timers: map[actors.Timer]*time.Timer{}, state: "idle"}
	h := fnv.New64a()
	h.Write([]byte(name))
	c.rand = rand.New(rand.NewPCG(s.seed, h.Sum64()))
	pid := actor.NewPID(s.sys.ProcessRegistry.Address, name) // known before Started may send
	s.mu.Lock()
	s.pids[ref], s.cells[ref] = pid, c
	s.mu.Unlock()
	props := actor.PropsFromProducer(func() actor.Actor { return c }, actor.WithSupervisor(stopAlways{}),
		actor.WithDispatcher(s.turns))
	if _, err := s.sys.Root.SpawnNamed(props, name); err != nil {
		panic(fmt.Sprintf("host: actor %s: %v", name, err))
	}
}

// Send delivers m to an actor of this process or another; it takes over the payload's reference.
func (s *System) Send(to actors.Ref, m actors.Message) {
	if s.dead.Load() {
		links.Release(m)
		return
	}
	if s.filter != nil && !s.filter(to, m) {
		links.Release(m)
		return
	}
	s.mu.RLock()
	pid := s.pids[to]
	s.mu.RUnlock()
	switch {
	case pid != nil:
		s.sys.Root.Send(pid, &m)
	case s.remote != nil:
		s.remote.Send(to, m)
	default:
		links.Release(m)
	}
}

// ended is closed when the actor has stopped.
func (s *System) ended(r actors.Ref) <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cells[r].gone
}

// Ask returns what each actor of this process waits for; an actor that does not answer within the timeout is
// stuck in its behaviour, which is our bug, and is reported as such.
func (s *System) Ask(timeout time.Duration) []Status {
	s.mu.RLock()
	var cells []*cell
	for ref := range s.cells {
		cells = append(cells, s.cells[ref])
	}
	s.mu.RUnlock()
	out := make([]Status, len(cells))
	var wg sync.WaitGroup
	for i, c := range cells {
		wg.Add(1)
		go func() {
			defer wg.Done()
			reply := make(chan actors.Wait, 1)
			s.mu.RLock()
			pid := s.pids[c.ref]
			s.mu.RUnlock()
			s.sys.Root.Send(pid, ask{reply})
			select {
			case w := <-reply:
				out[i] = Status{Ref: c.ref, Name: c.name, Wait: w, Age: s.Since() - time.Duration(w.Since),
					Job: c.jobState()}
			case <-time.After(timeout):
				out[i] = Status{Ref: c.ref, Name: c.name, Wait: actors.Wait{For: actors.None,
					What: "does not answer: stuck in its behaviour", Busy: true}, Job: c.jobState(), Stuck: true}
			}
		}()
	}
	wg.Wait()
	for i, c := range cells {
		if d, ok := c.dev.(interface{ Held() (live, budget int64) }); ok {
			out[i].Memory, out[i].Budget = d.Held()
		}
	}
	return out
}

// Status is an actor's answer to `lfactor why`.
type Status struct {
	Ref   actors.Ref
	Name  string
	Wait  actors.Wait
	Age   time.Duration // of the wait
	Job   string        // what its device runs
	Stuck bool          // it does not answer
	Sent  []Edge        // what it has sent so far
	Took  int64         // bytes that its process has taken from others

	Memory, Budget int64 // bytes that its device holds and may hold, 0 where it has none or no limit
}

// Stop ends all actors and waits for their devices.
func (s *System) Stop() { s.stop.Do(s.end) }

// end stops all actors, waits for the workers that still compute, and shuts the actor system down.
// The order matters: a worker may still send to an actor, but an actor that is gone starts no work.
func (s *System) end() {
	s.mu.RLock()
	pids := make([]*actor.PID, 0, len(s.pids))
	for _, p := range s.pids {
		pids = append(pids, p)
	}
	// The lock is not held while waiting, because an actor that stops may want it.
	s.mu.RUnlock()
	for _, p := range pids {
		_ = s.sys.Root.StopFuture(p).Wait() // one that does not end in time is left: the process ends
	}
	s.workers.Wait()
	s.endCapture()
	s.sys.Shutdown()
	close(s.turns.over)
}

type ask struct{ reply chan actors.Wait }

// stopAlways is the supervision of every actor: a behaviour that panics is our bug and ends the run.
type stopAlways struct{}

// HandleFailure stops an actor that panicked. Restarting it would lose its state and hide a defect.
func (stopAlways) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID,
	_ *actor.RestartStatistics, _, _ any) {
	sup.StopChildren(child)
}

// cell is one behaviour with its device: the Context it sees.
type cell struct {
	s       *System
	ref     actors.Ref
	name    string
	b       actors.Behaviour
	dev     Device
	rand    *rand.Rand
	self    actor.Context
	engines [4]chan actors.Job
	timers  map[actors.Timer]*time.Timer
	timer   actors.Timer
	watched []actors.Ref
	gone    chan struct{} // closed when the actor has ended
	taps    map[actors.Ref]*tap
	mu      sync.Mutex
	state   string
}

// Receive implements actor.Actor.
func (c *cell) Receive(ctx actor.Context) {
	c.self = ctx
	switch m := ctx.Message().(type) {
	case *actor.Started:
		c.b.Receive(c, &actors.Message{Kind: actors.Started, From: c.ref, Step: int64(c.s.life), Text: c.s.on})
	case *actors.Message:
		c.guard(func() { c.b.Receive(c, m) })
	case ask:
		m.reply <- c.b.Waits()
	case *actor.Stopping:
		c.close()
		close(c.gone)
	}
}

// guard turns a panic of a behaviour into the end of the run, with its place, instead of a silent restart.
func (c *cell) guard(f func()) {
	defer func() {
		if x := recover(); x != nil {
			c.s.fail(c, &InternalError{fmt.Sprintf("actor %s: %v", c.name, x), debug.Stack()})
		}
	}()
	f()
}

// InternalError is our bug: a panic of a behaviour or of a job. Its stack belongs in the log, not before the user.
type InternalError struct {
	What  string
	Stack []byte
}

// Error says what failed and where the rest is.
func (e *InternalError) Error() string {
	return e.What + ": this is a bug in lfactor; the stack is in the run's log"
}

// Trace implements links.Traced.
func (e *InternalError) Trace() []byte { return e.Stack }

// fail reports to whoever watches the run: ref 0 is the coordinator.
func (s *System) fail(c *cell, err error) {
	s.Send(0, actors.Message{Kind: actors.Failed, From: c.ref, Epoch: actors.AnyEpoch, Err: err})
}

// close stops the timers and lets the engines run out, by closing the channels that they take their
// jobs from. It may be called twice.
func (c *cell) close() {
	for _, t := range c.timers {
		t.Stop()
	}
	for i, e := range c.engines {
		if e != nil {
			close(e)
			c.engines[i] = nil
		}
	}
}

// Self implements actors.Context.
func (c *cell) Self() actors.Ref { return c.ref }

// Now implements actors.Context.
func (c *cell) Now() actors.Time { return actors.Time(c.s.Since()) }

// Rand implements actors.Context.
func (c *cell) Rand() *rand.Rand { return c.rand }

// Send implements actors.Context.
func (c *cell) Send(to actors.Ref, m actors.Message) {
	m.From = c.ref
	c.tapped(to, &m)
	c.s.Send(to, m)
}

// After implements actors.Context.
func (c *cell) After(d actors.Duration, m actors.Message) actors.Timer {
	c.timer++
	c.timers[c.timer] = time.AfterFunc(time.Duration(d), func() { c.s.Send(c.ref, m) })
	return c.timer
}

// Cancel implements actors.Context.
func (c *cell) Cancel(t actors.Timer) {
	if x := c.timers[t]; x != nil {
		x.Stop()
		delete(c.timers, t)
	}
}

// Spawn implements actors.Context.
func (c *cell) Spawn(name string, b actors.Behaviour) actors.Ref {
	c.s.mu.Lock()
	ref := c.s.next
	c.s.next++
	c.s.mu.Unlock()
	c.s.Spawn(ref, name, b, c.dev)
	return ref
}

// Watch implements actors.Context.
func (c *cell) Watch(r actors.Ref) { c.watched = append(c.watched, r) }

// Stop implements actors.Context.
func (c *cell) Stop(r actors.Ref) {
	c.s.mu.RLock()
	pid := c.s.pids[r]
	c.s.mu.RUnlock()
	if pid != nil {
		c.self.Stop(pid)
	}
}

// Do implements actors.Context: each engine of a device is one goroutine with a queue, bounded by
// what behaviours enqueue.
func (c *cell) Do(j actors.Job) {
	e := c.engines[j.Engine]
	if e == nil {
		e = make(chan actors.Job, 64)
		c.engines[j.Engine] = e
		c.s.workers.Add(1)
		go c.work(e)
	}
	e <- j
}

// work runs the jobs of one engine in the order in which they come, and reports each to the actor as a message.
// The actor therefore never blocks on computing, and sees a failure as one more message.
func (c *cell) work(jobs chan actors.Job) {
	defer c.s.workers.Done()
	for j := range jobs {
		c.setState(fmt.Sprintf("%v segment %d", j.Action, j.Segment))
		start := c.s.Since()
		r, err := c.run(j)
		if c.s.Trace != nil {
			c.s.Trace(TraceEvent{Ref: c.ref, Name: c.name, Job: j, Start: start, End: c.s.Since()})
		}
		c.setState("idle")
		c.s.without(err)
		c.s.Send(c.ref, actors.Message{Kind: actors.Done, From: c.ref, Job: j.ID, Step: j.Step,
			Action: j.Action, Segment: j.Segment, Out: r.Out, Values: r.Values, Text: r.Text, Err: err})
	}
}

// without ends a process that can be started again when its device is lost: a device that failed stays lost
// to the process, and the rank is not at fault.
func (s *System) without(err error) {
	var device *kernels.DeviceError
	if s.lost == nil || !errors.As(err, &device) || s.dead.Swap(true) {
		return
	}
	s.lost <- err
}

// run turns a panic of a job into an error that names it: the actor is then down.
func (c *cell) run(j actors.Job) (r Result, err error) {
	defer func() {
		x := recover()
		if lost, ok := x.(*kernels.DeviceError); ok {
			err = fmt.Errorf("%s: job %v segment %d of %s: %w", c.name, j.Action, j.Segment,
				core.StepName(j.Step), lost)
		} else if x != nil {
			err = &InternalError{fmt.Sprintf("%s: job %v segment %d of %s: %v", c.name, j.Action,
				j.Segment, core.StepName(j.Step), x), debug.Stack()}
		}
	}()
	return c.dev.Run(j)
}

func (c *cell) setState(s string) { c.mu.Lock(); c.state = s; c.mu.Unlock() }

func (c *cell) jobState() string { c.mu.Lock(); defer c.mu.Unlock(); return c.state }
