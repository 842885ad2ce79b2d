package serving

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/serve/queue"
	"github.com/lfactor/lfactor/stages/sample"
)

// World is a server and its clients. Times are in seconds.
type World struct {
	Engine sample.EngineOptions
	Queue  int // requests that may wait
	Tokens int // of those
	Step   func(l sample.Load) float64

	Requests int
	Clients  int     // each asks again when it is answered; 0: requests come by themselves
	Rate     float64 // of these, in a second, at random moments
	Prompt   Lengths
	Answer   Lengths
	Common   int     // tokens that all prompts begin with, of theirs
	Keys     int     // requests are of so many keys in turn, whose shares are fair; 0 is one
	Aborts   float64 // share of requests whose client goes away
	Patience float64 // within which it does, and of every other request the deadline; 0 is none
	Replaced []float64
	Fails    func(step int64) bool // steps that end with an error, nil for none
	Seed     uint64
}

// Lengths are numbers of tokens, whose logarithm has a normal distribution.
type Lengths struct {
	Median, Spread float64 // σ of the logarithm
	Most           int
}

func (l Lengths) draw(rng *rand.Rand) int {
	return min(l.Most, max(1, int(math.Ceil(l.Median*math.Exp(l.Spread*rng.NormFloat64())))))
}

// Result is what clients saw.
type Result struct {
	Time    float64        // of all
	First   []float64      // from a request to its first token, ascending
	Between []float64      // from one token of an answer to the next, ascending
	Whole   []float64      // from a request to the end of its answer, ascending
	Ends    map[string]int // by why; "refused" of those that did not get in
	Drawn   int            // tokens
	Stats   sample.Stats   // of the last weights' engine
}

// Quantile is that of times that ascend, 0 of none.
func Quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return x[min(len(x)-1, int(q*float64(len(x))))]
}

// Messages of this world. Step is a request's number.
const (
	submit   = actors.ServingFirst + iota // client → server: Values: tokens of prompt and answer; Text: the key
	leave                                 // client → server: it has gone away
	renew                                 // client → server: other weights take the place of these
	refused                               // server → client; Err
	token                                 // server → client: one of the answer
	answered                              // server → client: the answer's end; Text says why
)

var _ = actors.Protocol(submit, "submit", "leave", "renew", "refused", "token", "answered")

// server drives queues as package serve does: what comes while a step is computed waits for its end.
type server struct {
	*World
	at     *turns
	old    []*turns // of weights that were replaced, while they have requests
	client actors.Ref
	spy    *spy // nil where nobody looks
}

// spy is told of what a server decides.
type spy struct {
	took  func(t *turns, before sample.Stats, m *actors.Message, err error)
	begun func(id int64)
	step  func(t *turns)
}

// turns is one queue with its requests.
type turns struct {
	queue.Queue
	number   int
	requests map[int64]*sample.Request
	waiting  []actors.Message // that came in the step under way
	says     []actors.Message // of the step under way
	steps    bool
}

func (s *server) begin() {
	number := 0
	if s.at != nil {
		number = s.at.number + 1
		s.old = append(s.old, s.at)
	}
	s.at = &turns{number: number, requests: map[int64]*sample.Request{},
		Queue: queue.Queue{Engine: sample.NewVirtual(s.Engine, vocabulary, s.Fails), Most: s.Queue, Tokens: s.Tokens}}
}

const vocabulary = 1 << 30

// Receive implements actors.Behaviour.
func (s *server) Receive(ctx actors.Context, m *actors.Message) {
	switch t := s.at; m.Kind {
	case actors.Started:
		s.begin()
	case renew:
		s.begin()
		t.Retired = true
	case actors.Tick:
		t = s.turns(int(m.Step))
		for _, said := range t.says {
			ctx.Send(s.client, said)
		}
		t.says, t.steps = nil, false
		for _, m := range t.waiting {
			s.command(ctx, t, &m)
		}
		t.waiting = nil
		s.step(ctx, t)
	default:
		if m.Kind == leave {
			t = s.holder(m.Step)
		}
		if t.steps {
			t.waiting = append(t.waiting, *m)
			return
		}
		s.command(ctx, t, m)
		s.step(ctx, t)
	}
}

// turns finds a queue by its number.
func (s *server) turns(number int) *turns {
	for _, t := range s.old {
		if t.number == number {
			return t
		}
	}
	return s.at
}

// holder is the queue that has a request; the last one where none has.
func (s *server) holder(request int64) *turns {
	its := func(m actors.Message) bool { return m.Step == request }
	for _, t := range s.old {
		if t.requests[request] != nil || slices.ContainsFunc(t.waiting, its) {
			return t
		}
	}
	return s.at
}

// command carries out what a client wants.
func (s *server) command(ctx actors.Context, t *turns, m *actors.Message) {
	if m.Kind == leave {
		if r := t.requests[m.Step]; r != nil {
			t.Cancel([]*sample.Request{r})
			s.flush(ctx, t)
		}
		return
	}
	id := m.Step
	r := &sample.Request{Prompt: s.prompt(id, int(m.Values[0])), Params: sample.Params{Max: int(m.Values[1])},
		Share: m.Text}
	r.Emit = func(sample.Token) bool {
		t.says = append(t.says, actors.Message{Kind: token, Step: id})
		return true
	}
	r.Done = func(e sample.End) {
		delete(t.requests, id)
		t.says = append(t.says, actors.Message{Kind: answered, Step: id, Text: string(e)})
	}
	if s.spy != nil {
		r.Begun = func() { s.spy.begun(id) }
	}
	t.requests[id] = r
	before := t.Engine.Stats()
	err := t.Submit([]*sample.Request{r})
	if s.spy != nil {
		s.spy.took(t, before, m, err)
	}
	if err != nil {
		if delete(t.requests, id); errors.Is(err, queue.ErrClosed) && t != s.at {
			s.Receive(ctx, m) // the weights of the time take it
			return
		}
		ctx.Send(s.client, actors.Message{Kind: refused, Step: id, Err: err})
	}
}

// flush tells what is said between steps.
func (s *server) flush(ctx actors.Context, t *turns) {
	for _, said := range t.says {
		ctx.Send(s.client, said)
	}
	t.says = nil
}

// prompt is one of so many tokens: the first are common to all.
func (w *World) prompt(id int64, n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		if i >= w.Common {
			p[i] = int32(1 + (int(id)*8191+i)%(vocabulary-1))
		}
	}
	return p
}

// step begins a step, whose tokens are said at its end. Engines of several weights share the machine.
func (s *server) step(ctx actors.Context, t *turns) {
	s.old = slices.DeleteFunc(s.old, func(t *turns) bool { return t.Over() && !t.steps && len(t.waiting) == 0 })
	if t.steps || !t.Engine.Busy() {
		return
	}
	t.Step()
	if t.Engine.Load().Rows == 0 { // a step that failed before it had any
		s.flush(ctx, t)
	}
	others := 1.0
	for _, o := range append(slices.Clone(s.old), s.at) {
		if o != t && o.steps {
			others++
		}
	}
	t.steps = true
	if s.spy != nil {
		s.spy.step(t)
	}
	d := s.Step(t.Engine.Load()) * others
	ctx.After(max(1, actors.Duration(math.Round(d*1e9))), actors.Message{Step: int64(t.number)})
}

// Waits implements actors.Behaviour.
func (s *server) Waits() actors.Wait { return actors.Wait{For: actors.None} }
