package heads

import (
	"errors"
	"fmt"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// stranger is in all that strangers say, and nowhere else.
const stranger = "stranger"

// users lets people ask for this and that, at random times, of heads that believe to lead.
func (w *world) users() {
	w.after(w.span(10*time.Millisecond, 3*time.Second), func() {
		if w.calm {
			return
		}
		var leads []*seat
		for _, s := range w.seats {
			if s.h != nil && s.up && !s.cut {
				leads = append(leads, s)
			}
		}
		if len(leads) > 0 {
			w.request(leads[w.rng.IntN(len(leads))])
		}
		w.users()
	})
}

// ask asks a head; then hears its answer, if there is one.
func (w *world) ask(s *seat, in func(ask int64) decide.Input, then func(decide.Answer)) {
	w.number++
	n := w.number
	w.asks[n] = then
	w.after(w.span(50*time.Microsecond, 20*time.Millisecond), func() { s.step(in(n)) })
}

// request lets a random user ask this head for something: mostly jobs, and now and then what
// administrators do or what strangers try.
func (w *world) request(s *seat) {
	job, name := fmt.Sprint(1+w.rng.IntN(w.jobs+1)), w.hosts[w.rng.IntN(len(w.hosts))].name
	switch w.rng.IntN(16) {
	case 0, 1, 2, 3, 4:
		spec := control.Spec{Args: []string{"train"}, Dir: "/", Procs: 1 + w.rng.IntN(4)}
		w.ask(s, func(n int64) decide.Input { return decide.Submit{Ask: n, Spec: spec} }, w.submitted)
	case 5:
		now := w.chance(0.5)
		w.ask(s, func(n int64) decide.Input { return decide.Stop{Ask: n, Job: job, Now: now} }, func(decide.Answer) {})
	case 6:
		back := w.drained[name]
		w.ask(s, func(n int64) decide.Input { return decide.Drain{Ask: n, Host: name, Back: back} },
			func(a decide.Answer) {
				if a.Err == nil {
					w.drained[name] = !back
				}
			})
	case 7, 8:
		key := fmt.Sprint("token", len(w.tokens))
		w.tokens = append(w.tokens, key)
		w.ask(s, func(n int64) decide.Input {
			return decide.NewToken{Ask: n, Key: key, Until: time.Unix(1e10, 0)}
		}, func(decide.Answer) {})
	case 9, 10, 11:
		if len(w.tokens) > 0 {
			w.join(s, w.tokens[w.rng.IntN(len(w.tokens))])
		}
	case 12:
		w.ask(s, func(n int64) decide.Input {
			return decide.Join{Ask: n, Key: stranger, Name: stranger, Remote: stranger, Binary: binary}
		}, func(a decide.Answer) {
			var r *decide.Refusal
			if !errors.As(a.Err, &r) {
				w.fail("H-7", "a stranger was let in")
			}
		})
	case 13:
		if len(w.hosts) > 3 {
			w.ask(s, func(n int64) decide.Input { return decide.Remove{Ask: n, Host: name} }, func(decide.Answer) {})
		}
	default:
		w.readEvents(s)
	}
}

// submitted holds an answer to H-1.
func (w *world) submitted(a decide.Answer) {
	if a.Err != nil {
		return
	}
	w.jobs++
	if !w.disk.ever["jobs/"+a.Job.ID] {
		w.fail("H-1", "job %s was taken, its user was told, and it is not in the store", a.Job.ID)
	}
}

// join lets a host in by a token, under a name that is new or one that is there; another tries the same
// token, maybe at another head.
func (w *world) join(s *seat, token string) {
	for k := range 2 {
		name := fmt.Sprint("h", 1+w.rng.IntN(9))
		if k == 1 {
			s = w.seats[w.rng.IntN(len(w.seats))]
		}
		w.joinAs(s, token, name)
	}
}

// joinAs lets a host in under a name.
func (w *world) joinAs(s *seat, token, name string) {
	w.ask(s, func(n int64) decide.Input {
		return decide.Join{Ask: n, Key: token, Name: name, Remote: "far", Binary: binary, Serial: "serial"}
	}, func(a decide.Answer) {
		if a.Err != nil {
			return
		}
		if w.joined[token]++; w.joined[token] > 1 {
			w.fail("H-5", "%s has let two hosts in", token)
		}
		if !w.disk.ever["members/"+name] {
			w.fail("H-1", "host %s was let in and is not in the store", name)
		}
		w.addHost(name)
	})
}

// readEvents holds what users are told of events to H-1: they are in the store as they were told.
func (w *world) readEvents(s *seat) {
	w.after(w.span(50*time.Microsecond, 20*time.Millisecond), func() {
		s.at(func() {
			if s.h == nil {
				return
			}
			all := s.h.Events(0)
			w.number++
			w.asks[w.number] = func(a decide.Answer) {
				for _, e := range all {
					if a.Err == nil && w.disk.values[fmt.Sprintf("events/%012d", e.N)] == "" {
						w.fail("H-6", "a user was told of event %d, %s, which is not in the store", e.N, e.Text)
					}
				}
			}
			s.step(decide.Sync{Ask: w.number})
		})
	})
}
