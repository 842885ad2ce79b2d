package heads

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// host is a host with its agent.
type host struct {
	w     *world
	name  string
	agent bool // its agent runs
	dead  bool // its machine does not
	gone  bool // it was told to end as no member
	cut   bool // from the heads
	pid   int
	life  int // counts its agents
	conn  *conn
	dials bool  // it is trying to connect
	term  int64 // the newest that it has heard of
	next  int   // the seat that it tries next
	procs map[key]*proc
	ended map[key]control.Proc
	late  []control.Message
}

// key names a process of a host.
type key struct {
	job  string
	proc int
}

// conn is a connection of an agent with a head.
type conn struct {
	id     int64
	h      *host
	seat   *seat
	life   int
	open   bool
	met    bool // the agent has been welcomed
	quiet  bool
	there  time.Duration // when the last message to the agent comes
	back   time.Duration // when the last message to the head comes
	silent time.Duration // since when nothing comes through; 0 if it does
}

// keepLate bounds what an agent keeps for the head that comes.
const keepLate = 1000

func (w *world) addHost(name string) *host {
	for _, x := range w.hosts {
		if x.name == name {
			x.gone = false
			x.boot()
			return x
		}
	}
	x := &host{w: w, name: name}
	w.hosts = append(w.hosts, x)
	x.boot()
	return x
}

// boot starts an agent.
func (x *host) boot() {
	if x.agent || x.dead || x.gone {
		return
	}
	x.agent, x.pid, x.term = true, x.pid+1, 0
	x.life++
	x.procs, x.ended, x.late = map[key]*proc{}, map[key]control.Proc{}, nil
	x.dialSoon(20 * time.Millisecond)
}

// die ends an agent, and its processes with it.
func (x *host) die() {
	if !x.agent {
		return
	}
	x.w.note("agent of %s ends", x.name)
	x.agent = false
	x.life++
	for _, p := range x.sorted() {
		p.life++
	}
	x.procs = map[key]*proc{}
	if x.conn != nil {
		x.conn.close()
	}
}

// revive starts an agent again that a head misses, if its machine is there.
func (w *world) revive(name string) {
	for _, x := range w.hosts {
		if x.name == name && !x.cut {
			w.after(w.span(50*time.Millisecond, 2*time.Second), x.boot)
		}
	}
}

func (x *host) sorted() (out []*proc) {
	for _, p := range x.procs { //lfvet:order sorted below
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *proc) int {
		return cmp.Or(decide.ByName(a.job, b.job), a.n-b.n)
	})
	return out
}

// then plans something that happens if the agent still runs.
func (x *host) then(d time.Duration, do func()) {
	life := x.life
	x.w.after(d, func() {
		if x.life == life && x.agent {
			do()
		}
	})
}

func (x *host) dialSoon(d time.Duration) {
	if x.dials {
		return
	}
	x.dials = true
	x.w.after(d, func() {
		x.dials = false
		if x.agent && x.conn == nil {
			x.dial()
		}
	})
}

// dial connects with the next head, if that one leads.
func (x *host) dial() {
	s := x.w.seats[x.next%len(x.w.seats)]
	x.next++
	switch {
	case x.cut || s.cut || x.w.now < s.frozen:
		x.dialSoon(2 * time.Second)
		return
	case !s.up || s.h == nil:
		x.dialSoon(100 * time.Millisecond)
		return
	}
	w := x.w
	w.number++
	c := &conn{id: w.number, h: x, seat: s, life: s.life, open: true}
	w.conns[c.id], x.conn = c, c
	w.number++
	ask := w.number
	w.asks[ask] = func(a decide.Answer) {
		if a.Err != nil && c.open {
			x.conn = nil
			c.open = false
			delete(w.conns, c.id)
			x.dialSoon(2 * time.Second)
		}
	}
	in := decide.Connect{Ask: ask, Conn: c.id, Name: x.name, Serial: "serial", Remote: "far",
		Hello: control.Message{Kind: control.Hello, Procs: x.list(), Info: &control.Info{Name: x.name, Binary: binary,
			Pid: x.pid, Probe: x.name}}}
	c.toHead(func() { s.step(in) })
	x.then(10*time.Second, func() { // nobody has answered
		if c.open && !c.met {
			c.close()
		}
	})
}

// list is what an agent tells a head of its processes.
func (x *host) list() (out []control.Proc) {
	for _, p := range x.sorted() {
		out = append(out, control.Proc{Job: p.job, Proc: p.n, Gen: p.gen, Pid: p.pid, Addr: p.addr, Ready: p.ready})
	}
	var over []control.Proc
	for _, p := range x.ended { //lfvet:order sorted below
		over = append(over, p)
	}
	slices.SortFunc(over, func(a, b control.Proc) int {
		return cmp.Or(decide.ByName(a.Job, b.Job), a.Proc-b.Proc)
	})
	return append(out, over...)
}

// down reports whether nothing comes through a connection now.
func (c *conn) down() bool { return c.h.cut || c.seat.cut }

// toHead delivers something at the head, in order.
func (c *conn) toHead(do func()) {
	w := c.h.w
	c.back = max(c.back, w.now+w.span(50*time.Microsecond, 20*time.Millisecond))
	w.after(c.back-w.now, func() { c.deliver(do) })
}

// deliver waits until a way that is cut is there again, for as long as its ends believe in it.
func (c *conn) deliver(do func()) {
	switch {
	case c.seat.life != c.life || !c.open && !c.down():
	case c.down():
		c.h.w.after(100*time.Millisecond, func() { c.deliver(do) })
	default:
		do()
	}
}

// toAgent delivers a message at the agent, in order.
func (c *conn) toAgent(m control.Message) {
	w := c.h.w
	c.there = max(c.there, w.now+w.span(50*time.Microsecond, 20*time.Millisecond))
	w.after(c.there-w.now, func() { c.arrive(m) })
}

func (c *conn) arrive(m control.Message) {
	switch {
	case !c.open || c.h.conn != c:
	case c.down():
		c.h.w.after(100*time.Millisecond, func() { c.arrive(m) })
	default:
		c.h.hear(c, m)
	}
}

// close ends a connection, which both ends notice unless the way between them is cut.
func (c *conn) close() {
	if !c.open {
		return
	}
	c.open = false
	w, x, s := c.h.w, c.h, c.seat
	delete(w.conns, c.id)
	if x.conn == c {
		x.conn = nil
	}
	if s.life == c.life && !c.down() {
		w.after(w.span(time.Millisecond, 5*time.Millisecond), func() {
			if s.life == c.life {
				s.step(decide.Gone{Host: x.name, Conn: c.id, Why: "the connection ended"})
			}
		})
	} else if s.life == c.life {
		c.fall()
	}
	x.dialSoon(w.span(20*time.Millisecond, 200*time.Millisecond))
}

// fall is how a head notices that nothing is heard of an agent: suspect after 400 ms, lost after 800.
func (c *conn) fall() {
	w, s := c.h.w, c.seat
	if c.silent != 0 || s.life != c.life {
		return
	}
	began := w.now
	c.silent = began
	cut := func() bool { return s.life == c.life && c.silent == began && (c.down() || !c.open) }
	w.after(400*time.Millisecond, func() {
		if cut() {
			c.quiet = true
			s.step(decide.Quiet{Host: c.h.name, Conn: c.id, For: 400 * time.Millisecond})
		}
	})
	w.after(800*time.Millisecond, func() {
		if cut() {
			c.silent = -1
			s.step(decide.Gone{Host: c.h.name, Conn: c.id, Why: "silent for 800ms", Silent: true})
			if c.open {
				w.after(200*time.Millisecond, c.close) // the agent notices too
			}
		}
	})
}

// heal is a way that is there again.
func (c *conn) heal() {
	if c.silent <= 0 {
		return
	}
	c.silent = 0
	if c.quiet && c.open {
		c.quiet = false
		c.seat.step(decide.Heard{Host: c.h.name, Conn: c.id, Gap: 500 * time.Millisecond})
	}
}

// sortedConns are the connections in the order in which they were made.
func (w *world) sortedConns() (out []*conn) {
	for _, c := range w.conns { //lfvet:order sorted below
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	return out
}

// cutting notes for all connections what a change of who is cut off means.
func (w *world) cutting() {
	for _, c := range w.sortedConns() {
		if c.down() {
			c.fall()
		} else {
			c.heal()
		}
	}
}

// tell sends the head a message, or keeps it for the one that comes. What is sent on a connection that
// ends is lost.
func (x *host) tell(m control.Message) {
	c := x.conn
	if c == nil || !c.met {
		if len(x.late) < keepLate {
			x.late = append(x.late, m)
		}
		return
	}
	c.toHead(func() { c.seat.step(decide.Said{Host: x.name, Conn: c.id, M: m}) })
}

// hear does what a head says.
func (x *host) hear(c *conn, m control.Message) {
	switch m.Kind {
	case control.Welcome:
		if m.Epoch < x.term { // another has led since
			c.close()
			return
		}
		x.term, c.met = m.Epoch, true
		late := x.late
		x.late = nil
		for _, l := range late {
			x.tell(l)
		}
	case control.Order:
		x.start(m)
	case control.Kill, control.Leave, control.Signal:
		p := x.procs[key{m.Job, m.Proc}]
		if p == nil || m.Gen != 0 && m.Gen != p.gen {
			return
		}
		if m.Kind == control.Kill {
			p.end("was killed", -1)
			return
		}
		x.then(x.w.span(10*time.Millisecond, 2*time.Second), func() { p.end("ended with exit code 0", 0) })
	case control.Peers, control.Placed, control.Ready, control.Exited:
		if p := x.procs[key{m.Job, m.Proc}]; p != nil {
			p.hear(m)
		}
	case control.Forget:
		for k := range x.ended { //lfvet:order all of the job
			if k.job == m.Job {
				delete(x.ended, k)
			}
		}
	case control.Quit:
		x.gone = m.Code == 1
		x.die()
	}
}

// start starts a process.
func (x *host) start(m control.Message) {
	k := key{m.Job, m.Proc}
	if old := x.procs[k]; old != nil {
		old.end("was killed", -1)
	}
	name := fmt.Sprintf("%s.%d.%d", m.Job, m.Proc, m.Gen)
	if x.w.began[name] {
		x.w.fail("H-4", "process %d of job %s is started twice in generation %d, now on %s", m.Proc, m.Job, m.Gen,
			x.name)
	}
	x.w.began[name] = true
	answer := control.Message{Kind: control.Started, Job: m.Job, Proc: m.Proc, Gen: m.Gen}
	if !x.w.calm && x.w.chance(0.005) {
		answer.Err = "no file"
		x.tell(answer)
		return
	}
	x.w.number++
	p := &proc{x: x, job: m.Job, n: m.Proc, gen: m.Gen, pid: int(x.w.number), all: m.Spec.Procs,
		wants: map[int]*want{}}
	answer.Pid = p.pid
	x.procs[k] = p
	delete(x.ended, k)
	x.tell(answer)
	p.run(m)
}
