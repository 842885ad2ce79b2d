package heads

import (
	"fmt"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// seat is the process of a head.
type seat struct {
	w      *world
	n      int
	up     bool
	cut    bool          // from the other heads and from all hosts
	frozen time.Duration // it does not run until then
	h      *decide.Head  // nil while it does not lead, as far as it knows
	over   bool          // h has been told that it leads no more
	term   int64
	life   int // counts its processes and terms: what was planned for an earlier one does not happen
	base   time.Time
}

// binary is the hash of the one program that all have.
const binary = "this"

// elect lets a head lead: a term begins.
func (w *world) elect(s *seat) {
	if !s.up || s.cut || w.now < s.frozen || s.term == w.disk.term && s.h != nil {
		return
	}
	if s.h != nil { // it led before another did, and has not heard of that
		s.end()
	}
	w.disk.revision++
	w.disk.term = w.disk.revision
	w.disk.terms++
	s.life++
	s.term, s.over = w.disk.term, false
	h, enrolled, err := decide.Load(decide.Options{Term: s.term, Binary: binary, Version: "1",
		Fill: func(n int64) int64 { return n }}, w.disk)
	if err != nil {
		w.fail("store", "head %d cannot read it: %v", s.n, err)
		return
	}
	s.h = h
	w.note("head %d leads in term %d", s.n, s.term)
	if !enrolled {
		in := decide.Enroll{Serials: map[string]string{}, Last: true}
		for _, x := range w.hosts {
			in.Serials[x.name] = "serial"
		}
		s.step(in)
	}
	s.step(decide.Begin{Text: fmt.Sprintf("head %d leads", s.n)})
}

// at runs something in a head when it runs: one that is stopped does so when it goes on.
func (s *seat) at(do func()) {
	life := s.life
	if s.w.now < s.frozen {
		s.w.after(s.frozen-s.w.now, func() {
			if s.life == life {
				s.at(do)
			}
		})
		return
	}
	do()
}

// step tells a head what has happened.
func (s *seat) step(in decide.Input) {
	s.at(func() {
		if s.h == nil {
			return
		}
		if _, ok := in.(decide.Over); ok {
			s.over = true
		}
		for _, e := range s.h.Step(s.base.Add(s.w.now), in) {
			s.carryOut(e)
		}
		if s.over && s.h != nil { // the driver drops everything
			s.end()
		}
	})
}

// end drops what a head had as the one that leads.
func (s *seat) end() {
	s.h = nil
	s.life++
	for _, c := range s.w.sortedConns() {
		if c.seat == s {
			c.close()
		}
	}
}

// carryOut does what the head decided, and checks on the way that it only speaks while it may and
// that what it tells is in the store.
func (s *seat) carryOut(e decide.Effect) {
	w := s.w
	switch e := e.(type) {
	case decide.Commit:
		s.speaks("a commit")
		w.disk.commit(s, e)
	case decide.Send:
		s.speaks("a message")
		s.checkOrder(e.M)
		if c := w.conns[e.Conn]; c != nil {
			c.toAgent(e.M)
		}
	case decide.Close:
		if c := w.conns[e.Conn]; c != nil {
			c.close()
		}
	case decide.Answer:
		if e.Err == nil {
			s.speaks("an answer")
		}
		if f := w.asks[e.Ask]; f != nil {
			delete(w.asks, e.Ask)
			f(e)
		}
	case decide.Wake:
		life := s.life
		w.after(e.After, func() {
			if s.life == life {
				s.step(decide.Elapsed{Timer: e.Timer})
			}
		})
	case decide.Revive:
		w.revive(e.Host)
	case decide.Tell:
		s.speaks("an event")
		key := fmt.Sprintf("events/%012d", e.Event.N)
		if got, ok := w.disk.values[key]; !ok || !strings.Contains(got, fmt.Sprintf("%q", e.Event.Kind)) {
			w.fail("H-1", "event %d, %s, was told and is not in the store", e.Event.N, e.Event.Text)
		}
	}
}

// speaks holds a head to H-2: one that was told that it leads no more says nothing.
func (s *seat) speaks(what string) {
	if s.over {
		s.w.fail("H-2", "head %d says something in term %d, which is over: %s", s.n, s.term, what)
	}
}

// checkOrder holds what agents are told to H-1: the process is in the store.
func (s *seat) checkOrder(m control.Message) {
	if m.Kind != control.Order {
		return
	}
	j := s.w.disk.jobs[m.Job]
	if j == nil {
		s.w.fail("H-1", "job %s was ordered and is not in the store", m.Job)
		return
	}
	if m.Proc < len(j.Procs) && j.State == decide.Running && j.Procs[m.Proc].Gen < m.Gen {
		s.w.fail("H-1", "process %d of job %s was ordered in generation %d, and the store has %d", m.Proc, m.Job, m.Gen,
			j.Procs[m.Proc].Gen)
	}
}

// crash ends a head's process; it is started again after a while.
func (s *seat) crash(away time.Duration) {
	if !s.up {
		return
	}
	s.w.note("head %d ends", s.n)
	s.up, s.frozen = false, 0
	s.end()
	s.w.after(away, func() { s.up = true })
}

// electSoon lets the heads choose one that leads, if none of them does: again and again.
func (w *world) electSoon() {
	for _, s := range w.seats {
		if s.h != nil && s.term == w.disk.term && s.up && !s.cut && w.now >= s.frozen {
			return
		}
	}
	first := w.rng.IntN(len(w.seats))
	for k := range w.seats {
		s := w.seats[(first+k)%len(w.seats)]
		if s.up && !s.cut && w.now >= s.frozen {
			w.elect(s)
			return
		}
	}
}

// learn lets heads see that another leads: those that run and can hear the others.
func (w *world) learn() {
	for _, s := range w.seats {
		if s.h != nil && s.term != w.disk.term && s.up && !s.cut && w.now >= s.frozen {
			s.step(decide.Over{})
		}
	}
}
