package serving

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/sim"
)

// clients ask, and take times.
type clients struct {
	*World
	rng   *rand.Rand
	next  int64
	asked map[int64]asked
	out   Result
	watch func(m *actors.Message) // nil for nobody
}

// asked is a request under way.
type asked struct{ came, last actors.Time }

// Run simulates a world until its last request has ended.
func Run(w World) (Result, error) { return run(&w, &server{World: &w, client: 1}, nil) }

// run has a function see the messages of clients, nil for none.
func run(w *World, srv *server, watch func(m *actors.Message)) (Result, error) {
	c := &clients{World: w, rng: rand.New(rand.NewPCG(w.Seed, 11)), asked: map[int64]asked{}, watch: watch}
	c.out.Ends = map[string]int{}
	s := sim.Open(sim.Options{Seed: w.Seed, Events: 1 << 24})
	s.Add("server", srv)
	s.Add("clients", c)
	r := s.Run()
	if r.Failed != "" || len(c.asked) > 0 || int(c.next) < w.Requests {
		return c.out, fmt.Errorf("serving: %d of %d requests have no end %s", len(c.asked), c.next, r.Failed)
	}
	c.out.Stats = srv.at.Engine.Stats()
	for _, l := range [][]float64{c.out.First, c.out.Between, c.out.Whole} {
		slices.Sort(l)
	}
	return c.out, nil
}

func seconds(t actors.Time) float64 { return float64(t) / 1e9 }

func duration(s float64) actors.Duration { return actors.Duration(math.Round(s * 1e9)) }

// retry is in how many seconds a client that was refused asks for something else.
const retry = 0.1

// What timers of clients say: a request that comes, one whose client goes, and weights that change.
const (
	comes = iota
	goes
	changes
)

// Receive implements actors.Behaviour.
func (c *clients) Receive(ctx actors.Context, m *actors.Message) {
	if c.watch != nil {
		c.watch(m)
	}
	a, open := c.asked[m.Step]
	switch m.Kind {
	case actors.Started:
		for _, at := range c.Replaced {
			ctx.After(duration(at), actors.Message{Port: changes})
		}
		at := 0.0
		for range c.first() {
			if c.Clients == 0 {
				at += c.rng.ExpFloat64() / c.Rate
			}
			ctx.After(duration(at), actors.Message{Port: comes})
		}
	case actors.Tick:
		switch m.Port {
		case comes:
			c.ask(ctx)
		case goes:
			if open {
				ctx.Send(0, actors.Message{Kind: leave, Step: m.Step})
			}
		case changes:
			ctx.Send(0, actors.Message{Kind: renew})
		}
	case token:
		if !open {
			return
		}
		if c.out.Drawn++; a.last == 0 {
			c.out.First = append(c.out.First, seconds(ctx.Now()-a.came))
		} else {
			c.out.Between = append(c.out.Between, seconds(ctx.Now()-a.last))
		}
		a.last = ctx.Now()
		c.asked[m.Step] = a
	case answered, refused:
		why := m.Text
		if m.Kind == refused {
			why = "refused"
		} else if why == "length" {
			c.out.Whole = append(c.out.Whole, seconds(ctx.Now()-a.came))
		}
		c.out.Ends[why]++
		c.out.Time = seconds(ctx.Now())
		if delete(c.asked, m.Step); c.Clients > 0 {
			pause := actors.Duration(1)
			if m.Kind == refused {
				pause = duration(retry)
			}
			ctx.After(pause, actors.Message{Port: comes})
		}
	}
}

// first is how many requests come without an answer before them.
func (c *clients) first() int {
	if c.Clients > 0 {
		return min(c.Clients, c.Requests)
	}
	return c.Requests
}

// ask sends the next request, if there is one.
func (c *clients) ask(ctx actors.Context) {
	if int(c.next) >= c.Requests {
		return
	}
	id, key := c.next, ""
	c.next++
	if c.Keys > 1 {
		key = fmt.Sprint("key ", id%int64(c.Keys))
	}
	rng := rand.New(rand.NewPCG(c.Seed, uint64(id)+13)) // a request's lengths do not depend on when it comes
	values := []float64{float64(c.Prompt.draw(rng)), float64(c.Answer.draw(rng))}
	c.asked[id] = asked{came: ctx.Now()}
	ctx.Send(0, actors.Message{Kind: submit, Step: id, Values: values, Text: key})
	switch {
	case rng.Float64() < c.Aborts:
		ctx.After(duration(rng.Float64()*c.Patience), actors.Message{Port: goes, Step: id})
	case c.Patience > 0:
		ctx.After(duration(c.Patience), actors.Message{Port: goes, Step: id})
	}
}

// Waits implements actors.Behaviour.
func (c *clients) Waits() actors.Wait { return actors.Wait{For: actors.None} }
