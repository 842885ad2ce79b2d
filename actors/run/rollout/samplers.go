package rollout

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/crew"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/configs"
)

// samplerTries is how many processes of a place may end in a row without having drawn or judged anything.
const samplerTries = 10

// samplerStart is how long a process may take to begin, beside rollout.silence.
const samplerStart = actors.Duration(time.Minute)

// beatEvery is how often a sampler that draws says so, at most.
const beatEvery = time.Second

// start is how long a process may take to begin, beside that: the one of another host is placed first.
func (r *Source) start() actors.Duration {
	if r.Away {
		return samplerStart + actors.Duration(comesWithin)
	}
	return samplerStart
}

// silence is how long a sampler with something to do may say nothing.
func (r *Source) silence() actors.Duration {
	return actors.Duration(r.Cfg.Run.Rollout.Silence * float64(time.Second))
}

// desk is the one of rounds; whoever waits for a publication is told of it.
type desk struct {
	*rounds.Desk
	r *Source
}

// Tell implements pool.Desk.
func (d desk) Tell(now actors.Time, m *actors.Message) []actors.Message {
	defer d.r.change()
	return d.Desk.Tell(now, m)
}

// loads gives what a sampler is told what goes with it: weights, or answers as they are drawn so far.
func (r *Source) loads(m *actors.Message) {
	if m.Kind == pool.Load {
		w := r.kept[rounds.PublicationOf(m)]
		w.Retain()
		m.Values, m.Payload = w.From, w.Pack
	} else if m.Kind == pool.Task {
		*m = packed(*m, r.drafts(rounds.TaskOf(m)))
	}
	maps.DeleteFunc(r.kept, func(p int64, _ *Weights) bool { return p < r.desk.Needed() })
}

// draws begins those who draw, at the table: n processes, or a drawer of this one.
func (r *Source) draws(n int) error {
	o := crew.Options{Options: pool.Options{Desk: desk{r.desk, r}, Eager: true, Tries: 1}, Turn: &r.table, Fill: r.loads, Places: 1,
		First: 1, Room: r.commandsMost(), Hear: r.hears("drawing", "drew", "drawn"), Grace: beatEvery}
	if n == 0 {
		d, err := NewDrawer(r.Cfg, r.stops)
		if err != nil {
			return err
		}
		r.talk = d.talk
		o.Run = func(_ context.Context, _ int, in <-chan actors.Message, say func(actors.Message)) (int32, error) {
			defer d.Close()
			return 0, d.work(in, say)
		}
	} else {
		o.Places, o.Tries, o.Silence, o.Start = n, samplerTries, r.silence(), r.start()
		o.Run = r.launcher.member("sampler process")
	}
	r.samplers = crew.New(o)
	return nil
}

// FirstMember begins the numbers of members of pools among a run's actors.
const FirstMember = actors.Ref(1 << 30)

// Members are samplers, judges, and environments of this process, with what each does. There may be no source.
func (r *Source) Members() (out []host.Status) {
	if r == nil {
		return nil
	}
	r.table.Lock()
	all := []interface{ Members() []host.Status }{r.samplers, r.judges}
	if r.talk != nil {
		all = append(all, r.talk.talks)
	}
	launcher := r.launcher
	r.table.Unlock()
	for i, pool := range all {
		for _, m := range pool.Members() {
			m.Name = fmt.Sprint([]string{"sampler ", "judge ", "environment "}[i], m.Ref)
			if launcher != nil && i < 2 {
				if name, begun := launcher.names.Load(int(m.Ref)); begun {
					m.Name += fmt.Sprintf(" (%v)", name)
				}
			}
			m.Ref += FirstMember + actors.Ref(i)<<20
			out = append(out, m)
		}
	}
	return out
}

// hears takes what a pool says of its members. What a lost member did is done again: doing, did and done are the words
// for it. It is at the table.
func (r *Source) hears(doing, did, done string) func(actors.Message) {
	return func(m actors.Message) {
		switch {
		case r.ctx.Err() != nil:
		case m.Kind == pool.Answer:
			got, err := unpacked(m)
			if err != nil {
				r.fail(fmt.Errorf("%s answers: who %s them says %w", doing, did, err))
				return
			}
			r.add(rounds.TaskOf(&m), got)
			r.change()
			r.complete()
		case m.Kind == pool.Closed && m.Port == 1:
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
