package heads

import (
	"fmt"
	"strings"
	"time"

	agent "github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// chaos lets something go wrong, again and again, until the calm.
func (w *world) chaos() {
	w.after(w.span(50*time.Millisecond, 6*time.Second), func() {
		if w.calm {
			return
		}
		w.faults++
		w.harm()
		w.chaos()
	})
	if w.faults == 0 { // the heads look who leads, for as long as the world lasts
		w.watch()
	}
}

// watch is what heads do by themselves.
func (w *world) watch() {
	w.after(w.span(20*time.Millisecond, 300*time.Millisecond), func() {
		if w.chance(0.7) {
			w.learn()
		}
		w.electSoon()
		w.watch()
	})
}

// harm lets one random misfortune happen to a head, a host, the store or a process. All randomness
// is drawn from the world's seed, so that a failure can be played again.
func (w *world) harm() {
	s := w.seats[w.rng.IntN(len(w.seats))]
	x := w.hosts[w.rng.IntN(len(w.hosts))]
	// All three are drawn before it is known whether the case needs them.
	long := w.span(100*time.Millisecond, 8*time.Second)
	switch w.rng.IntN(14) {
	case 0:
		s.crash(long)
	case 1:
		w.note("head %d is stopped for %v", s.n, long)
		s.frozen = max(s.frozen, w.now+long)
	case 2:
		w.note("head %d is cut off for %v", s.n, long)
		s.cut = true
		w.cutting()
		w.after(long, func() { s.cut = false; w.cutting() })
	case 3: // two lead at once
		if other := w.seats[w.rng.IntN(len(w.seats))]; other != s || len(w.seats) == 1 && s.up && w.chance(0.2) {
			w.elect(other)
		}
	case 4:
		jump := w.span(time.Second, 24*time.Hour)
		if w.chance(0.5) {
			jump = -jump
		}
		w.note("the clock of head %d jumps by %v", s.n, jump)
		s.base = s.base.Add(jump)
	case 5:
		w.note("the store is slow for %v", long)
		w.disk.slow = w.now + long
	case 6:
		x.die()
		if w.chance(0.8) {
			w.after(long, x.boot)
		}
	case 7:
		w.note("host %s ends", x.name)
		x.die()
		x.dead = true
		if w.chance(0.8) {
			w.after(long*2, func() { x.dead = false; x.boot() })
		}
	case 8, 9:
		w.note("host %s is cut off for %v", x.name, long)
		x.cut = true
		w.cutting()
		w.after(long, func() { x.cut = false; w.cutting() })
	case 10:
		if x.conn != nil {
			x.conn.close()
		}
	case 11:
		if x.agent {
			w.note("agent of %s leaves", x.name)
			x.step(agent.Leave{})
		}
	case 12:
		if all := x.sorted(); len(all) > 0 {
			p := all[w.rng.IntN(len(all))]
			p.stop()
		}
	default:
		if all := x.sorted(); len(all) > 0 {
			p := all[w.rng.IntN(len(all))]
			w.note("process %d of job %s is killed on %s", p.n, p.job, x.name)
			p.end("was killed by signal 9", -1)
		}
	}
}

// becalm ends the faults, and lets operators bring back what was there.
func (w *world) becalm() {
	w.note("calm")
	w.calm = true
	for _, s := range w.seats {
		s.up, s.cut = true, false
	}
	for n, x := range w.hosts {
		x.cut = false
		if x.dead = n > 0 && w.chance(0.2); x.dead { // for good
			x.die()
		}
	}
	w.cutting()
	w.tend()
}

// tend is an operator's: agents run, no host is drained, and there are hosts.
func (w *world) tend() {
	for _, s := range w.seats {
		if s.h == nil || s.term != w.disk.term {
			continue
		}
		up := 0
		for _, x := range s.h.Hosts() {
			if !w.addHost(x.Name).dead { // one whose answer was lost when it joined asks again
				up++
			}
			if strings.Contains(w.disk.values["members/"+x.Name], `"drained":true`) {
				w.ask(s, func(n int64) decide.Input { return decide.Drain{Ask: n, Host: x.Name, Back: true} },
					func(decide.Answer) {})
			}
		}
		if up == 0 {
			key := fmt.Sprint("last", len(w.tokens))
			w.tokens = append(w.tokens, key)
			w.ask(s, func(n int64) decide.Input {
				return decide.NewToken{Ask: n, Key: key, Until: time.Unix(1e10, 0)}
			}, func(decide.Answer) { w.joinAs(s, key, key) })
		}
	}
	for _, x := range w.hosts {
		x.boot()
	}
	w.after(5*time.Second, w.tend)
}
