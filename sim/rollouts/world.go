package rollouts

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

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
	// the same where it depends on how many answers the sampler draws, and on the tokens that each sees; nil for Token
	Price   func(answers int, context float64) float64
	Prompt  float64 // tokens of a prompt
	Prefill float64 // time of a prompt, in which its sampler draws nothing
	Train   float64 // time of a round's steps
	Load    float64 // time in which a sampler takes weights
	Publish float64 // time in which the trainer gives weights out

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

// sampler draws at a place: all its tasks side by side, a token of each answer at a time.
type sampler struct {
	t      *trainer
	member uint32
	tasks  []actors.Message
	left   []int       // answers of each task
	under  []drawing   // answers that are drawn, those that end first last
	drawn  float64     // tokens of each answer since the sampler had nothing to do
	seen   float64     // tokens that answers see beside those drawn, all together
	pause  float64     // seconds of prompts that are still to be computed
	ready  actors.Time // when its weights are there
	at     actors.Time // until when tokens are counted
	next   actors.Timer
}

// drawing is an answer: its task, and at how many drawn tokens it ends.
type drawing struct {
	task int
	ends float64
	sees float64 // tokens beside those drawn
}

// Receive implements actors.Behaviour.
func (s *sampler) Receive(ctx actors.Context, m *actors.Message) {
	s.advance(ctx)
	switch m.Kind {
	case pool.Begin:
		s.member = m.Epoch
	case pool.Load:
		s.ready = ctx.Now() + actors.Time(duration(s.t.Load))
	case pool.Task:
		s.take(ctx, m)
	case actors.Tick:
		for n := len(s.under); n > 0 && s.under[n-1].ends <= s.drawn+1e-6; n = len(s.under) {
			k := s.under[n-1].task
			s.seen -= s.under[n-1].sees
			s.under = s.under[:n-1]
			if s.left[k]--; s.left[k] == 0 {
				ctx.Send(0, actors.Message{Kind: pool.Result, Epoch: s.member, Step: s.tasks[k].Step})
			}
		}
	}
	s.wait(ctx)
}

// take begins a task's answers, whose prompts are computed first.
func (s *sampler) take(ctx actors.Context, m *actors.Message) {
	if len(s.under) == 0 {
		s.drawn, s.seen = 0, 0
	}
	task := rounds.TaskOf(m)
	s.tasks, s.left = append(s.tasks, *m), append(s.left, s.t.Each)
	s.pause += s.t.Prefill
	for i := range s.t.Each {
		n := max(s.t.tokens(task, i), 0)
		x := drawing{len(s.tasks) - 1, s.drawn + n, s.t.Prompt + float64(task.From) - s.drawn}
		at, _ := slices.BinarySearchFunc(s.under, x, func(a, b drawing) int { return cmp.Compare(b.ends, a.ends) })
		s.under = slices.Insert(s.under, at, x)
		s.seen += x.sees
	}
}

// token is the time of a token of each answer that is drawn.
func (s *sampler) token() float64 {
	if s.t.Price == nil {
		return s.t.Token
	}
	n := float64(len(s.under))
	return s.t.Price(len(s.under), max(0, s.seen/n+s.drawn))
}

// advance counts the tokens that were drawn since it was last asked.
func (s *sampler) advance(ctx actors.Context) {
	past := seconds(ctx.Now() - max(s.at, s.ready)) // a sampler that takes weights draws nothing
	s.at = ctx.Now()
	if len(s.under) == 0 || past <= 0 {
		return
	}
	s.t.worked += past
	paused := min(past, s.pause)
	s.pause -= paused
	if t := s.token(); t > 0 {
		s.drawn += (past - paused) / t
	}
}

// wait has a timer tell of the next answer's end, or of a time in which the price of a token has changed.
func (s *sampler) wait(ctx actors.Context) {
	if s.next != 0 {
		ctx.Cancel(s.next)
		s.next = 0
	}
	if n := len(s.under); n > 0 {
		left := s.under[n-1].ends - s.drawn
		if s.t.Price != nil {
			left = min(left, repriced)
		}
		first := seconds(max(0, s.ready-ctx.Now())) + s.pause
		s.next = ctx.After(max(1, duration(first+max(0, left)*s.token())), actors.Message{})
	}
}

// repriced is the number of tokens behind which the keys that answers see have a new price.
const repriced = 256

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

// tokens is how many an answer of a task has in it.
func (w *World) tokens(t rounds.Task, i int) float64 {
	n := w.length(t.Round, t.Group, i)
	if t.To > 0 {
		n = min(n, float64(t.To))
	}
	return n - float64(t.From)
}
