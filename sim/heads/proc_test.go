package heads

import (
	"fmt"
	"time"

	"github.com/lfactor/lfactor/actors"
	agent "github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/core"
)

// proc is a process of a job. The one that leads asks for the others, and for those again that end; when
// all are there it computes for a while, and the job is done.
type proc struct {
	x     *host
	at    int64 // the number that its agent gave it
	job   string
	n     int
	gen   int
	pid   int
	all   int
	addr  string
	ready bool
	life  int
	asked int64
	wants map[int]*want
	works bool
	stuck bool // it says that it lives, and takes no step
	stall core.Stall
	told  time.Duration // when the head was last told of a process that is stuck
}

// want is a process that the one that leads has asked for.
type want struct {
	ask   int64
	gen   int
	ready bool
}

// again is how often a leading process repeats what it wants.
const again = 2 * time.Second

// then plans something that happens if the process is still there.
func (p *proc) then(d time.Duration, do func()) {
	life := p.life
	p.x.then(d, func() {
		if p.life == life {
			do()
		}
	})
}

func (p *proc) tell(m control.Message) { p.x.step(agent.Said{Life: p.at, M: m}) }

// run is a process's beginning.
func (p *proc) run(m control.Message) {
	w := p.x.w
	p.tell(control.Message{Kind: control.Beat})
	p.then(w.span(5*time.Millisecond, 200*time.Millisecond), func() {
		p.addr = fmt.Sprint("at-", p.pid)
		p.tell(control.Message{Kind: control.Listening, Addr: p.addr})
		if p.n == 0 && w.chance(0.5) {
			p.tellWidths()
		}
		if p.n > 0 {
			p.then(w.span(5*time.Millisecond, 500*time.Millisecond), func() {
				p.ready = true
				p.x.step(agent.Ready{Life: p.at})
			})
			return
		}
		for _, other := range m.Procs { // those that it takes over
			if other.Proc > 0 && other.Proc < p.all && !other.Over {
				p.wants[other.Proc] = &want{gen: other.Gen, ready: other.Ready}
			}
		}
		for n := 1; n < p.all; n++ {
			if p.wants[n] == nil {
				p.want(n)
			}
		}
		p.work()
	})
}

// tellWidths says with how few processes the job can do.
func (p *proc) tellWidths() {
	m := control.Message{Kind: control.Widths}
	for n := p.all; n > 0; n-- {
		w := control.Width{Replicas: n, Procs: n, Bytes: make([]int64, n)}
		for i := range w.Bytes {
			w.Bytes[i] = 1
		}
		m.Widths = append(m.Widths, w)
	}
	p.tell(m)
}

// want asks for a process, and again until it shows.
func (p *proc) want(n int) {
	p.asked++
	x := &want{ask: int64(p.gen)<<32 | p.asked}
	p.wants[n] = x
	p.repeat(n, x)
}

// repeat asks again for process n until an answer names its generation, since orders may get lost with a head.
func (p *proc) repeat(n int, x *want) {
	if p.wants[n] != x || x.gen != 0 {
		return
	}
	p.tell(control.Message{Kind: control.Start, Peer: n, At: x.ask})
	p.then(again, func() { p.repeat(n, x) })
}

// hear takes in what has become of another process.
func (p *proc) hear(m control.Message) {
	x := p.wants[m.Peer]
	if p.n > 0 || x == nil || x.gen != 0 && m.Gen != x.gen || x.gen == 0 && m.At != x.ask {
		return
	}
	switch m.Kind {
	case control.NoRoom: // it makes durable what there is, and ends
		code := 0
		if p.x.w.chance(0.1) {
			code = 1
		}
		p.then(p.x.w.span(10*time.Millisecond, 3*time.Second), func() {
			p.end(fmt.Sprintf("ended with exit code %d", code), code)
		})
	case control.Placed:
		x.gen = m.Gen
	case control.Ready:
		x.gen, x.ready = m.Gen, true
		p.work()
	case control.Exited:
		x.gen = m.Gen
		p.then(p.x.w.span(10*time.Millisecond, 200*time.Millisecond), func() {
			if p.wants[m.Peer] == x {
				p.want(m.Peer)
			}
		})
	}
}

// work computes when all are there.
func (p *proc) work() {
	for n := 1; n < p.all; n++ {
		if !p.wants[n].ready {
			return
		}
	}
	if p.works {
		return
	}
	p.works = true
	p.stall.First = actors.Duration(time.Minute) // the calm is too short for what a run waits
	p.stall.Begin(actors.Time(p.x.w.now))
	p.toil(p.x.w.span(500*time.Millisecond, 10*time.Second))
}

// toil takes steps until so much is done. What it does of one that does not come is what a run does (core.Stall);
// where nobody is stuck, but one is away, the others wait for it to be back.
func (p *proc) toil(left time.Duration) {
	const each = time.Duration(core.StallEvery)
	w, now := p.x.w, actors.Time(p.x.w.now)
	n, away := p.holdup()
	switch {
	case n < 0 && left <= each && !away:
		p.then(left, func() {
			w.complete[p.job] = true
			p.end("ended with exit code 0", 0)
		})
		return
	case n < 0:
		p.stall.Seen(now, !away)
		if p.told = 0; !away {
			left -= each
		}
	case p.stall.Look(now) == core.StallAsk &&
		p.stall.Found(now, core.StallRoot{Proc: n, Which: "device", Cured: true}) == core.StallEnd,
		p.told > 0 && w.now >= p.told+again:
		p.told = w.now
		m := control.Message{Kind: control.Hung, Peer: n, Text: "takes no step"}
		if n > 0 {
			m.At = p.wants[n].ask
		}
		p.tell(m)
	}
	p.then(each, func() { p.toil(left) })
}

// holdup is the process that is stuck, the one that leads first, -1 for none, and whether one is away.
func (p *proc) holdup() (n int, away bool) {
	for n := range p.all {
		for _, x := range p.x.w.hosts {
			if q := x.procs[key{p.job, n}]; q != nil && q.stuck && (q == p || n > 0 && q.gen == p.wants[n].gen) {
				return n, false
			}
		}
		away = away || n > 0 && !p.wants[n].ready
	}
	return -1, away
}

// end is a process's.
func (p *proc) end(why string, code int) {
	k := key{p.job, p.n}
	if p.x.procs[k] != p {
		return
	}
	p.life++
	delete(p.x.procs, k)
	delete(p.x.lives, p.at)
	p.x.ended[k] = control.Proc{Job: p.job, Proc: p.n, Gen: p.gen, Pid: p.pid, Over: true, Text: why, Code: code}
	p.x.step(agent.Exited{Life: p.at, Text: why, Code: code})
}

// stop stops a process, or what it computes with.
func (p *proc) stop() {
	if p.x.w.chance(0.5) {
		p.x.w.note("process %d of job %s hangs on %s", p.n, p.job, p.x.name)
		p.hang()
		return
	}
	p.x.w.note("process %d of job %s takes no step on %s", p.n, p.job, p.x.name)
	p.stuck = true
}

// hang stops a process for good, which its agent sees by its silence.
func (p *proc) hang() {
	p.life++
	for n := range 10 {
		for _, running := range []bool{true, false} {
			d := agent.LeaseRunning
			if !running {
				d = agent.LeaseStopped
			}
			d += time.Duration(n) * control.Beats
			p.x.then(d, func() {
				p.x.step(agent.Silent{Life: p.at, For: d, Running: running, State: "hung"})
			})
		}
	}
}
