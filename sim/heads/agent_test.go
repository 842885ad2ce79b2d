package heads

import (
	"fmt"
	"time"

	agent "github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// step tells an agent what has happened, and does what it decides.
func (x *host) step(in agent.Input) {
	if !x.agent {
		return
	}
	life := x.life
	for _, e := range x.a.Step(in) {
		if x.life != life { // it has ended
			return
		}
		x.carryOut(e)
	}
}

// carryOut does what the agent decided, in the simulated world.
func (x *host) carryOut(e agent.Effect) {
	w := x.w
	switch e := e.(type) {
	case agent.Dial:
		x.dial(e)
	case agent.Send:
		x.send(e)
	case agent.Close:
		if c := x.conn; c != nil && c.own == e.Conn {
			x.conn = nil // it is the agent's wish: it waits for no word of that
			c.close()
		}
	case agent.Wake:
		x.then(e.After, func() { x.step(agent.Elapsed{Timer: e.Timer}) })
	case agent.Launch:
		x.start(e)
	case agent.Pass:
		if p := x.lives[e.Life]; p != nil {
			p.hear(e.M)
		}
	case agent.Kill:
		if p := x.lives[e.Life]; p != nil {
			x.then(w.span(100*time.Microsecond, 20*time.Millisecond), func() { p.end("was killed", -1) })
		}
	case agent.Signal:
		x.finish(e.Life)
	case agent.Finish:
		x.finish(e.Life)
	case agent.Clear:
		for k := range x.ended { //lfvet:order all of the job
			if k.job == e.Job {
				delete(x.ended, k)
			}
		}
	case agent.Quit:
		x.gone = x.gone || e.Remove
		x.die()
	}
}

// finish is a process's end when its step is done, which one that hangs does not come to.
func (x *host) finish(life int64) {
	if p := x.lives[life]; p != nil {
		p.then(x.w.span(10*time.Millisecond, 2*time.Second), func() { p.end("ended with exit code 0", 0) })
	}
}

// dial connects an agent with a head, if that one leads.
func (x *host) dial(e agent.Dial) {
	w, s := x.w, x.w.seats[e.Head]
	gone := func(after time.Duration, why string) {
		x.then(after, func() { x.step(agent.Gone{Conn: e.Conn, Why: why}) })
	}
	switch {
	case x.cut || s.cut || w.now < s.frozen:
		gone(2*time.Second, "it does not answer")
		return
	case !s.up || s.h == nil:
		gone(w.span(10*time.Millisecond, 100*time.Millisecond), "it does not lead")
		return
	}
	w.number++
	c := &conn{id: w.number, own: e.Conn, h: x, seat: s, life: s.life, open: true}
	w.conns[c.id], x.conn = c, c
	x.then(w.span(100*time.Microsecond, 5*time.Millisecond), func() { x.step(agent.Dialed{Conn: e.Conn}) })
	x.then(10*time.Second, func() { // nobody has answered
		if c.open && !c.welcomed {
			c.close()
		}
	})
}

// send sends a head a message. What is sent on a connection that ends is lost, or comes back.
func (x *host) send(e agent.Send) {
	c := x.conn
	if c == nil || c.own != e.Conn {
		x.then(0, func() { x.step(agent.Unsent(e)) })
		return
	}
	if e.M.Kind != control.Hello {
		c.toHead(func() { c.seat.step(decide.Said{Host: x.name, Conn: c.id, M: e.M}) })
		return
	}
	x.checkList(e.M.Procs)
	w := x.w
	w.number++
	ask := w.number
	w.asks[ask] = func(a decide.Answer) {
		if a.Err != nil && c.open {
			c.toAgent(control.Message{Kind: control.Welcome, Text: a.Err.Error()})
		}
	}
	hello := e.M
	hello.Info = &control.Info{Name: x.name, Binary: binary, Pid: x.pid, Probe: x.name, Memory: hostRoom}
	in := decide.Connect{Ask: ask, Conn: c.id, Name: x.name, Serial: "serial", Remote: "far", Hello: hello}
	c.toHead(func() { c.seat.step(in) })
}

// checkList holds what a head is told of processes to A-3: those that run, and those that have ended.
func (x *host) checkList(all []control.Proc) {
	if x.starts > 0 {
		x.w.fail("A-3", "%s connects with a head while it starts a process", x.name)
	}
	told := map[key]control.Proc{}
	for _, p := range all {
		told[key{p.Job, p.Proc}] = p
	}
	for _, p := range x.sorted() {
		if t, ok := told[key{p.job, p.n}]; !ok || t.Gen != p.gen || t.Over {
			x.w.fail("A-3", "%s tells a head %+v of process %d of job %s, whose generation %d runs", x.name, t, p.n,
				p.job, p.gen)
		}
	}
	for k, p := range x.ended { //lfvet:order any of them
		if t, ok := told[k]; !ok || t.Gen == p.Gen && (!t.Over || t.Code != p.Code) {
			x.w.fail("A-3", "%s does not tell a head of the end of a process", x.name)
		}
	}
}

// heard is a message of a head. What is done of it is held to A-1.
func (x *host) heard(c *conn, m control.Message) {
	if m.Kind == control.Welcome && m.Text == "" {
		c.welcomed = true
		if c.seat.life == c.life {
			c.term = m.Epoch
		}
	}
	life := x.life
	for _, e := range x.a.Step(agent.Heard{Conn: c.own, M: m}) {
		if x.life != life {
			return
		}
		switch e.(type) {
		case agent.Launch, agent.Kill, agent.Signal, agent.Finish, agent.Pass, agent.Clear, agent.Quit, agent.Revoke:
			if c.term < x.term {
				x.w.fail("A-1", "%s does %T of a head in term %d, and has met term %d", x.name, e, c.term, x.term)
			}
			x.term = max(x.term, c.term)
		}
		x.carryOut(e)
	}
}

// start starts a process after a while.
func (x *host) start(e agent.Launch) {
	m, w := e.Order, x.w
	k := key{m.Job, m.Proc}
	name := fmt.Sprintf("%s.%d.%d", m.Job, m.Proc, m.Gen)
	if w.began[name] {
		w.fail("H-4", "process %d of job %s is started twice in generation %d, now on %s", m.Proc, m.Job, m.Gen, x.name)
	}
	if x.procs[k] != nil {
		w.fail("A-2", "process %d of job %s is started on %s while its predecessor runs", m.Proc, m.Job, x.name)
	}
	w.began[name] = true
	x.starts++
	x.then(w.span(time.Millisecond, time.Second), func() {
		x.starts--
		if !w.calm && w.chance(0.005) {
			x.step(agent.Started{Life: e.Life, Err: "no file"})
			return
		}
		w.number++
		p := &proc{x: x, at: e.Life, job: m.Job, n: m.Proc, gen: m.Gen, pid: int(w.number), all: m.Spec.Procs,
			wants: map[int]*want{}}
		x.procs[k], x.lives[e.Life] = p, p
		delete(x.ended, k)
		x.step(agent.Started{Life: e.Life, Pid: p.pid})
		p.run(m)
	})
}
