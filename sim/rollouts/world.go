package rollouts

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/lfactor/lfactor/actors/rounds"
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

	// Faults, as shares of tasks: the sampler dies with it, hangs and is taken for dead, says the result
	// twice, or takes Slow times as long.
	Dies, Hangs, Twice, Slows, Slow float64
	Patience                        float64 // after which a sampler that hangs is taken for dead

	Seed uint64
}

// Result is what a simulation gives.
type Result struct {
	Time    float64 // of all
	Step    float64 // of a round, over the second half
	Waiting float64 // share of the trainer's time in which it waits for answers
	Idle    float64 // share of the samplers' time in which they have nothing to draw
	Age     int64   // the greatest of a token that was trained on
	Lost    int     // samplers
	// Drawn and Trained are lengths of answers, in tokens.
	Drawn, Trained []float64
}

// kind says what happens in an event.
type kind int

const (
	drawn kind = iota
	lost
	joined
	published
	trained
	loaded
)

// event is what happens at a time.
type event struct {
	at      float64
	n       int // breaks ties by when it was planned
	kind    kind
	sampler int
	task    rounds.Task
}

// queue is a heap of events.
type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].n < q[j].n
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push and Pop implement heap.Interface.
func (q *queue) Push(x any) { *q = append(*q, x.(event)) }

// Pop takes the last.
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// world is a simulation under way.
type world struct {
	World
	desk   *rounds.Desk
	rng    *rand.Rand
	now    float64
	n      int
	events queue
	busy   map[int]*sampler
	next   int   // number of the next sampler
	round  int64 // that the trainer is at
	trains bool  // or waits
	since  float64
	waited float64
	worked float64
	ends   []float64
	watch  watch
	out    Result
	err    error
}

// sampler is one that lives.
type sampler struct {
	ready float64 // when its weights are there
	until float64 // when the last of its tasks ends
}

// Run simulates a world to its end. An error says which promise was broken, and when.
func Run(w World) (Result, error) {
	s := &world{World: w, desk: rounds.NewDesk(w.Schedule, w.Groups, w.Hold, w.Rounds),
		rng: rand.New(rand.NewPCG(w.Seed, 1)), busy: map[int]*sampler{}}
	s.watch.w = s
	for range w.Samplers {
		s.plan(0, event{kind: joined})
	}
	s.plan(0, event{kind: published})
	for s.err == nil && s.round < w.Rounds {
		if len(s.events) == 0 {
			return s.out, fmt.Errorf("rollouts: seed %d: nothing happens any more in round %d", w.Seed, s.round)
		}
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		s.happen(e)
	}
	s.out.Time = s.now
	if n := len(s.ends); n > 1 {
		s.out.Step = (s.ends[n-1] - s.ends[n/2-1]) / float64(n-n/2)
	}
	s.out.Waiting = s.waited / s.now
	s.out.Idle = 1 - s.worked/s.now/float64(w.Samplers)
	return s.out, s.err
}

// plan has something happen in a while.
func (s *world) plan(in float64, e event) {
	s.n++
	e.at, e.n = s.now+in, s.n
	heap.Push(&s.events, e)
}

// happen carries an event out.
func (s *world) happen(e event) {
	switch e.kind {
	case joined:
		s.busy[s.next] = &sampler{}
		s.next++
		s.obey(s.desk.Join(s.next - 1))
	case lost:
		if s.busy[e.sampler] != nil {
			s.out.Lost++
			delete(s.busy, e.sampler)
			s.plan(s.Patience, event{kind: joined})
		}
		s.obey(s.desk.Lose(e.sampler))
	case drawn:
		counts, orders := s.desk.Drawn(e.sampler, e.task)
		if counts {
			s.fail(s.watch.drawn(e.task))
		}
		s.obey(orders)
		s.begin()
	case published:
		s.obey(s.desk.Publish(s.round))
		s.since = s.now
		s.begin()
	case trained:
		s.ends = append(s.ends, s.now)
		s.desk.Trained(s.round)
		s.trains = false
		if s.round++; s.round < s.Rounds {
			s.plan(s.World.Publish, event{kind: published})
		}
	}
}

// begin has the trainer take its round, if it is drawn.
func (s *world) begin() {
	if s.trains || s.since < 0 || !s.desk.Complete(s.round) || s.since > s.now {
		return
	}
	s.waited += s.now - s.since
	s.since, s.trains = -1, true
	s.fail(s.watch.trained(s.round))
	s.plan(s.Train, event{kind: trained})
}

func (s *world) fail(err error) {
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("rollouts: seed %d at %.3f s: %w", s.Seed, s.now, err)
	}
}

// obey has samplers do what the desk orders, with the world's faults.
func (s *world) obey(orders []rounds.Order) {
	for _, o := range orders {
		who := s.busy[o.Sampler]
		if o.Kind == rounds.Load {
			if who.until > s.now {
				s.fail(fmt.Errorf("R-3: weights of publication %d come while answers are drawn", o.Task.Publication))
			}
			who.ready = s.now + s.Load
			s.fail(s.watch.loads(o.Task.Publication))
			continue
		}
		took := s.takes(o.Task)
		if s.rng.Float64() < s.Slows {
			took *= s.Slow
		}
		end := max(who.ready, s.now) + took - s.now
		s.worked += max(0, s.now+end-max(who.until, who.ready, s.now))
		who.until = max(who.until, s.now+end)
		e := event{kind: drawn, sampler: o.Sampler, task: o.Task}
		switch x := s.rng.Float64(); {
		case x < s.Dies:
			s.plan(end*s.rng.Float64(), event{kind: lost, sampler: o.Sampler})
		case x < s.Dies+s.Hangs: // it is taken for dead, and says its result later all the same
			s.plan(end+s.Patience/2, event{kind: lost, sampler: o.Sampler})
			s.plan(end+s.Patience*(1+s.rng.Float64()), e)
		case x < s.Dies+s.Hangs+s.Twice:
			s.plan(end*(1+s.rng.Float64()), e)
			fallthrough
		default:
			s.plan(end, e)
		}
	}
}

// length is how many tokens an answer has: it follows from the answer's own seed alone.
func (s *world) length(round int64, group, i int) float64 {
	rng := rand.New(rand.NewPCG(s.Seed^uint64(round)<<20^uint64(group), uint64(i)+7))
	n := math.Ceil(s.Length * math.Exp(s.Spread*rng.NormFloat64()))
	if s.Most > 0 {
		n = min(n, s.Most)
	}
	return n
}

// takes is how long a task takes: as its longest answer.
func (s *world) takes(t rounds.Task) float64 {
	most := 0.0
	for i := range s.Each {
		n := s.length(t.Round, t.Group, i)
		if t.To > 0 {
			n = min(n, float64(t.To))
		}
		most = max(most, n-float64(t.From))
	}
	return most * s.Token
}
