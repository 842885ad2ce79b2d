package heads

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	agent "github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// host is a host with its agent.
type host struct {
	w      *world
	name   string
	agent  bool // its agent runs
	dead   bool // its machine does not
	gone   bool // it was told to end as no member
	cut    bool // from the heads
	pid    int
	life   int          // counts its agents
	a      *agent.Agent // what decides
	conn   *conn
	term   int64 // the newest that has welcomed this agent
	procs  map[key]*proc
	lives  map[int64]*proc
	starts int // processes that are being started
	ended  map[key]control.Proc
}

// hostRoom is the memory of a host, in processes of a job that says what its own need.
const hostRoom = 2

// key names a process of a host.
type key struct {
	job  string
	proc int
}

// conn is a connection of an agent with a head.
type conn struct {
	id       int64
	own      int64 // the number that its agent gave it
	h        *host
	seat     *seat
	life     int
	open     bool
	quiet    bool
	welcomed bool          // the agent has been
	term     int64         // of its head, when that has welcomed the agent
	there    time.Duration // when the last message to the agent comes
	back     time.Duration // when the last message to the head comes
	silent   time.Duration // since when nothing comes through; 0 if it does
}

// addHost boots a host of that name; one that was removed before comes back under its old name.
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
	x.starts = 0
	x.procs, x.lives, x.ended = map[key]*proc{}, map[int64]*proc{}, map[key]control.Proc{}
	o := agent.Options{Name: x.name}
	for _, s := range x.w.seats {
		o.Heads = append(o.Heads, fmt.Sprint(s.n))
	}
	x.a = agent.New(o)
	x.then(20*time.Millisecond, func() { x.step(agent.Begin{}) })
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

// sorted are the processes by job and number, since the order of a map would differ from run to run.
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

// arrive delivers a message, later if the network is down now, and never on a connection that has been replaced.
func (c *conn) arrive(m control.Message) {
	switch {
	case !c.open || c.h.conn != c:
	case c.down():
		c.h.w.after(100*time.Millisecond, func() { c.arrive(m) })
	default:
		c.h.heard(c, m)
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
		x.then(w.span(time.Millisecond, 100*time.Millisecond), func() {
			x.step(agent.Gone{Conn: c.own, Why: "it ended"})
		})
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
