package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/crew"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/configs"
)

// samplerTries is how many processes of a place may end in a row without having drawn or judged anything.
const samplerTries = 10

// samplerStart is how long a process may take to begin, beside rollout.silence.
const samplerStart = actors.Duration(time.Minute + comesWithin)

// beatEvery is how often a sampler that draws says so, at most.
const beatEvery = time.Second

// silence is how long a sampler with something to do may say nothing.
func (r *Source) silence() actors.Duration {
	return actors.Duration(r.Cfg.Run.Rollout.Silence * float64(time.Second))
}

// seats are the desk's, at the table: what it orders goes with what is drawn so far.
type seats struct {
	*rounds.Desk
	r *Source
}

// at has the desk do something at the table, until what it returns is called.
func (s seats) at(out *[]actors.Message) (left func()) {
	r := s.r
	r.table.Lock()
	return func() {
		defer r.table.Unlock()
		for i := range *out {
			if m := &(*out)[i]; m.Kind == pool.Load {
				w := r.kept[m.Step]
				w.Retain()
				m.Values, m.Payload = w.From, w.Pack
			} else {
				*m = packed(*m, r.drafts(rounds.TaskOf(m)))
			}
		}
		for p := range r.kept { // in no order: all that nobody needs go
			if p < r.desk.Needed() {
				delete(r.kept, p)
			}
		}
		r.change()
		r.complete()
	}
}

// Join implements pool.Desk.
func (s seats) Join(n uint32) (out []actors.Message) {
	defer s.at(&out)()
	return s.Desk.Join(n)
}

// Lose implements pool.Desk.
func (s seats) Lose(n uint32, now actors.Time, how *actors.Message) (out []actors.Message) {
	defer s.at(&out)()
	return s.Desk.Lose(n, now, how)
}

// Tell implements pool.Desk.
func (s seats) Tell(now actors.Time, m *actors.Message) (out []actors.Message) {
	defer s.at(&out)()
	return s.Desk.Tell(now, m)
}

// Result implements pool.Desk.
func (s seats) Result(n uint32, m *actors.Message) (counts bool, out []actors.Message) {
	defer s.at(&out)()
	if counts, out = s.Desk.Result(n, m); counts {
		got, err := unpacked(*m)
		if m.Payload = nil; err != nil {
			s.r.fail(fmt.Errorf("drawing answers: a sampler says %w", err))
			return counts, nil
		}
		s.r.add(rounds.TaskOf(m), got)
	}
	return counts, out
}

// draws begins those who draw: n processes, or a drawer of this one.
func (r *Source) draws(n int) error {
	o := crew.Options{Options: pool.Options{Desk: seats{r.desk, r}, Eager: true, Tries: 1}, Places: 1,
		First: 1, Room: r.commandsMost(), Hear: r.hears("drawing", "drew", "drawn"), Grace: beatEvery}
	if n == 0 {
		d, err := NewDrawer(r.Cfg, r.stops)
		if err != nil {
			return err
		}
		o.Run = func(_ context.Context, _ int, in <-chan actors.Message, say func(actors.Message)) (int32, error) {
			defer d.Close()
			return 0, d.work(in, say)
		}
	} else {
		o.Places, o.Tries, o.Silence, o.Start = n, samplerTries, r.silence(), samplerStart
		o.Run = r.launcher.member("sampler process")
	}
	r.samplers = crew.New(o)
	return nil
}

// hears takes what a pool says of its members, which did something that is done again where one is lost.
func (r *Source) hears(doing, did, done string) func(actors.Message) {
	return func(m actors.Message) {
		switch {
		case r.ctx.Err() != nil || m.Kind == pool.Answer:
		case m.Kind == pool.Closed && m.Port == 1:
			r.table.Lock()
			defer r.table.Unlock()
			r.fail(fmt.Errorf("%s answers: %w", doing, m.Err))
		default:
			who := "another takes its place"
			if m.Kind == pool.Closed {
				who = "nobody takes its place any more"
			}
			r.Say("! %v; %s, and what it %s is %s again", m.Err, who, did, done)
		}
	}
}

// samplerProcess draws answers for a run in another process, until that is gone.
func samplerProcess(c *configs.Config, l *line) error {
	tok, conf, err := tokenizer(c)
	if err != nil {
		return err
	}
	stops, err := Stops(c, tok, conf)
	if err != nil {
		return err
	}
	d, err := NewDrawer(c, stops)
	if err != nil {
		l.says(actors.Message{Kind: actors.Failed, Err: err})
		return nil
	}
	defer d.Close()
	l.says(actors.Message{Kind: pool.Beat}) // it has begun
	in := make(chan actors.Message)
	go func() {
		defer close(in)
		for {
			m, err := l.hear()
			if err != nil {
				return // the run is gone, or ends
			}
			in <- m
		}
	}()
	last := time.Now()
	d.beat = func() {
		if time.Since(last) > beatEvery {
			last = time.Now()
			l.says(actors.Message{Kind: pool.Beat})
		}
	}
	if err := d.work(in, l.says); err != nil {
		l.says(actors.Message{Kind: actors.Failed, Err: err})
	}
	return nil
}
