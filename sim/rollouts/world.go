package rollouts

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/sim"
)

// World is what is simulated. Times are in seconds.
type World struct {
	Schedule rounds.Schedule
	Groups   int   // prompts of a round
	Each     int   // answers to a prompt
	Rounds   int64 // that are trained on
	Samplers int
	Hold     int // groups that a sampler draws at once

	Length, Spread float64 // of answers: the median of their tokens, and σ of its logarithm
	Most           float64 // tokens of an answer at most, 0 for no bound
	Token          float64 // time of a token of an answer, whatever else the sampler draws
	Train          float64 // time of a round's steps
	Load           float64 // time in which a sampler takes weights
	Publish        float64 // time in which the trainer gives weights out

	Seed uint64
}

// Result is what a simulation gives.
type Result struct {
	Time    float64 // of all
	Step    float64 // of a round, over the second half
	Waiting float64 // share of the trainer's time in which it waits for answers
	Idle    float64 // share of the samplers' time in which they have nothing to draw
	Age     int64   // the greatest of a token that was trained on
}

// trainer publishes weights, and takes a round when it is drawn.
type trainer struct {
	World
	desk   *rounds.Desk
	round  int64 // that it is at
	trains bool
	since  actors.Time // when it last published, -1 while it does
	waited actors.Time
	ends   []float64 // of rounds
	worked float64   // by samplers
	age    int64
}

// Run simulates a world to its end.
func Run(w World) (Result, error) {
	x := &trainer{World: w, desk: rounds.NewDesk(w.Schedule, w.Groups, w.Hold, w.Rounds)}
	o := pool.Options{Owner: 1, Desk: x.desk}
	for i := range w.Samplers {
		o.Places = append(o.Places, actors.Ref(2+i))
	}
	s := sim.Open(sim.Options{Seed: w.Seed})
	s.Add("pool", pool.New(o))
	s.Add("trainer", x)
	for i := range w.Samplers {
		s.Add(fmt.Sprintf("sampler %d", i), &sampler{t: x})
	}
	r := s.Run()
	out := Result{Age: x.age}
	if r.Failed != "" || r.Stall != nil || x.round < w.Rounds {
		return out, errors.New("rollouts: " + fmt.Sprint(r.Failed, r.Stall, " in round ", x.round))
	}
	n := len(x.ends)
	out.Time = x.ends[n-1]
	if n > 1 {
		out.Step = (x.ends[n-1] - x.ends[n/2-1]) / float64(n-n/2)
	}
	out.Waiting = seconds(x.waited) / out.Time
	out.Idle = 1 - x.worked/out.Time/float64(w.Samplers)
	return out, nil
}

func seconds(t actors.Time) float64 { return float64(t) / 1e9 }

func duration(s float64) actors.Duration { return actors.Duration(math.Round(s * 1e9)) }

// What a trainer's timers say.
const (
	published = iota
	trained
)

// Receive implements actors.Behaviour.
func (x *trainer) Receive(ctx actors.Context, m *actors.Message) {
	switch {
	case m.Kind == pool.Answer:
		t := rounds.TaskOf(m)
		x.age = max(x.age, t.Round-t.Publication)
		x.begin(ctx)
	case m.Kind == actors.Started, m.Kind == actors.Tick && m.Port == published:
		ctx.Send(0, actors.Message{Kind: pool.Ask, Step: x.round})
		x.since = ctx.Now()
		x.begin(ctx)
	case m.Kind == actors.Tick:
		x.ends = append(x.ends, seconds(ctx.Now()))
		x.desk.Trained(x.round)
		x.trains = false
		if x.round++; x.round < x.Rounds {
			ctx.After(duration(x.Publish), actors.Message{Port: published})
		}
	}
}

// begin has the trainer take its round, if it is drawn.
func (x *trainer) begin(ctx actors.Context) {
	if x.trains || x.since < 0 || !x.desk.Complete(x.round) {
		return
	}
	x.waited += ctx.Now() - x.since
	x.since, x.trains = -1, true
	ctx.After(duration(x.Train), actors.Message{Port: trained})
}

// Waits implements actors.Behaviour.
func (x *trainer) Waits() actors.Wait { return actors.Wait{For: actors.None} }

// sampler draws at a place: all its tasks at once.
type sampler struct {
	t      *trainer
	member uint32
	tasks  []actors.Message
	ready  actors.Time // when its weights are there
	until  actors.Time // when the last of its tasks ends
}

// Receive implements actors.Behaviour.
func (s *sampler) Receive(ctx actors.Context, m *actors.Message) {
	switch m.Kind {
	case pool.Begin:
		s.member = m.Epoch
	case pool.Load:
		s.ready = ctx.Now() + actors.Time(duration(s.t.Load))
	case pool.Task:
		begin := max(s.ready, ctx.Now())
		end := begin + actors.Time(duration(s.t.takes(rounds.TaskOf(m))))
		s.t.worked += max(0, seconds(end-max(s.until, begin)))
		s.until = max(s.until, end)
		s.tasks = append(s.tasks, *m)
		ctx.After(actors.Duration(end-ctx.Now()), actors.Message{Step: int64(len(s.tasks) - 1)})
	case actors.Tick:
		ctx.Send(0, actors.Message{Kind: pool.Result, Epoch: s.member, Step: s.tasks[m.Step].Step})
	}
}

// Waits implements actors.Behaviour.
func (s *sampler) Waits() actors.Wait { return actors.Wait{For: actors.None} }

// length is how many tokens an answer has: it follows from the answer's own seed alone.
func (w *World) length(round int64, group, i int) float64 {
	rng := rand.New(rand.NewPCG(w.Seed^uint64(round)<<20^uint64(group), uint64(i)+7))
	n := math.Ceil(w.Length * math.Exp(w.Spread*rng.NormFloat64()))
	if w.Most > 0 {
		n = min(n, w.Most)
	}
	return n
}

// takes is how long a task takes: as its longest answer.
func (w *World) takes(t rounds.Task) float64 {
	most := 0.0
	for i := range w.Each {
		n := w.length(t.Round, t.Group, i)
		if t.To > 0 {
			n = min(n, float64(t.To))
		}
		most = max(most, n-float64(t.From))
	}
	return most * w.Token
}
