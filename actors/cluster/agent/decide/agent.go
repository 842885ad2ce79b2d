package decide

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// Options are an agent's.
type Options struct {
	Name  string        // of its host
	Heads []string      // their addresses
	Leave time.Duration // for jobs to move when the agent is asked to leave; 0 is leaveLimit
	Local int           // of them, or beside them, on this machine: started again when they have ended
}

// Agent is what an agent knows. It is for one goroutine at a time.
type Agent struct {
	o    Options
	out  []Effect // of the step under way
	last int64    // number that was given to a connection, a timer or a life

	way   way
	watch int64 // timer of the look after heads of this machine
	leave int64 // timer of the wait for processes to move; 0 if nobody has asked this agent to end

	late  []control.Message // for the head, until there is one
	lost  int               // messages that did not fit into late
	tails map[key]*tail     // what processes wrote last, for a head that has not got it

	procs map[key]*proc
	over  map[key]control.Proc // those that have ended, until their job has or they have a successor
	hosts map[string]string    // the connected ones, as the head has said
}

// key names a process of a host.
type key struct {
	job  string
	proc int
}

func byKey(x, y key) int { return cmp.Or(cmp.Compare(x.job, y.job), cmp.Compare(x.proc, y.proc)) }

// sorted are the keys of a map in order.
func sorted[V any](m map[key]V) []key { return slices.SortedFunc(maps.Keys(m), byKey) }

// keepLate is how many messages wait for a head that is away.
const keepLate = 1 << 12

// leaveLimit is how long jobs have to make their step durable and to move when this host is asked to leave.
const leaveLimit = 25 * time.Second

// headsEvery is how often an agent looks for heads of its machine that have ended.
const headsEvery = 500 * time.Millisecond

// New is an agent without processes that has met no head.
func New(o Options) *Agent {
	if o.Leave == 0 {
		o.Leave = leaveLimit
	}
	return &Agent{o: o, way: way{said: make([]string, len(o.Heads))}, tails: map[key]*tail{}, procs: map[key]*proc{},
		over: map[key]control.Proc{}}
}

// Step takes in what has happened and returns what is to be done.
func (a *Agent) Step(in Input) []Effect {
	in.apply(a)
	out := a.out
	a.out = nil
	return out
}

// apply dials. The only head is looked after when the way to it fails.
func (Begin) apply(a *Agent) {
	if len(a.o.Heads) > 1 && a.o.Local > 0 {
		a.watch = a.wake(headsEvery)
	}
	a.dial()
}

func (in Dialed) apply(a *Agent) {
	if in.Conn == a.way.conn {
		a.say(Send{in.Conn, control.Message{Kind: control.Hello, Procs: a.list()}})
	}
}

func (in Found) apply(a *Agent) { a.tell(in.M) }

func (a *Agent) say(e Effect) { a.out = append(a.out, e) }

func (a *Agent) note(format string, args ...any) { a.say(Note{fmt.Sprintf(format, args...)}) }

// number is one that no connection, timer or life has had.
func (a *Agent) number() int64 {
	a.last++
	return a.last
}

// wake starts a timer.
func (a *Agent) wake(d time.Duration) int64 {
	n := a.number()
	a.say(Wake{n, d})
	return n
}

// apply acts on a timer: it dials again, looks after the heads, or ends an agent that was asked
// to leave and whose processes did not move in time.
func (in Elapsed) apply(a *Agent) {
	switch in.Timer {
	case a.way.retry:
		a.dial()
	case a.watch:
		if a.way.met { // else they may still come up
			a.say(Revive{})
			return
		}
		a.watch = a.wake(headsEvery)
	case a.leave:
		text := fmt.Sprintf("processes have not moved within %v: they end with its agent, and what they have not saved is lost", a.o.Leave)
		a.note("%s", text)
		a.tell(control.Message{Kind: control.Leaving, Text: text})
		a.say(Quit{})
	}
}

// apply goes on after a look at the heads of this machine.
func (Revived) apply(a *Agent) {
	if a.watch != 0 {
		a.watch = a.wake(headsEvery)
		return
	}
	a.way.retry = a.wake(a.pause())
}

// apply lets the processes of this host move elsewhere before the agent ends.
func (in Leave) apply(a *Agent) {
	if len(a.procs) == 0 {
		a.say(Quit{})
		return
	}
	if in.Within > 0 {
		a.o.Leave = in.Within
	}
	a.tell(control.Message{Kind: control.Leaving, Text: in.Why, At: int64(in.Within)})
	a.leave = a.wake(a.o.Leave)
}

// list says which processes there are, in order.
func (a *Agent) list() (out []control.Proc) {
	for _, p := range a.procs { //lfvet:order sorted below
		if !p.starting {
			out = append(out, p.Proc)
		}
	}
	for k, p := range a.over { //lfvet:order sorted below
		if r := a.procs[k]; r == nil || r.starting {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(x, y control.Proc) int { return byKey(key{x.Job, x.Proc}, key{y.Job, y.Proc}) })
	return out
}
