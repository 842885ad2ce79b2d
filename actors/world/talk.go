package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Turn is what an environment of texts says: to the beginning of an episode, and to each text that it is
// told.
type Turn struct {
	Text   string  `json:"text"`
	Reward float64 `json:"reward"`
	Done   bool    `json:"done"` // the episode ends here
}

// Dialogue is what an environment was told and has said. Everything follows from it: where another process
// goes on with it, it is told all again, and says the same.
type Dialogue struct {
	Seed   uint64
	Record map[string]json.RawMessage // of the data, of which the prompt is
	Told   []string
	Heard  []Turn // one more than Told when the environment is not waited for
}

// talkMost bounds the text of a turn.
const talkMost = 1 << 20

// Talks are the processes of a command that is an environment of texts (docs/post-training.md), or sessions
// with one that is served elsewhere. They may die, hang or say what is no answer: then another one is told
// the episode again, once. Its methods are for several goroutines.
type Talks struct {
	name   string
	begin  func() (party, error)
	places chan struct{}

	mu    sync.Mutex
	idle  []*talker // the one that was used longest ago first
	alive int       // those idle and those that are asked
	over  bool
	asked sync.WaitGroup // processes that somebody waits for
}

// party says an environment's turns, of one episode at a time.
type party interface {
	// turn gives what it says to a request.
	turn(ctx context.Context, q talkRequest) (Turn, error)
	kill()                   // ends it
	because(err error) error // adds what it said last to an error
}

// talker is a party and where it is.
type talker struct {
	party
	at   *Dialogue // that it is in
	said int       // turns of it
}

// spoken is a process that is told and says lines.
type spoken struct {
	*program
	id int64 // of the last request
}

// talkRequest is what an environment is told: its number, which the answer repeats, and one of the others.
type talkRequest struct {
	ID    int64      `json:"id"`
	Reset *talkReset `json:"reset,omitempty"`
	Step  *talkStep  `json:"step,omitempty"`
}

type talkReset struct {
	Seed   uint64                     `json:"seed"`
	Record map[string]json.RawMessage `json:"record"`
}

type talkStep struct {
	Text string `json:"text"`
}

// NewTalks has at most so many processes of a command at once, and so much time for each answer.
func NewTalks(words []string, processes int, deadline time.Duration) *Talks {
	return &Talks{name: words[0], places: make(chan struct{}, processes), begin: func() (party, error) {
		p, err := begin(words, deadline)
		if err != nil {
			return nil, fmt.Errorf("it does not start: %w", err)
		}
		return &spoken{program: p}, nil
	}}
}

// Next has the environment say its next turn of an episode, and adds it to what is heard. A turn that it
// says again is to be the same: else the episode has an error, as where the second process fails too.
func (t *Talks) Next(ctx context.Context, e *Dialogue) (Turn, error) {
	select {
	case t.places <- struct{}{}:
	case <-ctx.Done():
		return Turn{}, ctx.Err()
	}
	defer func() { <-t.places }()
	var err error
	for range 2 {
		var x Turn
		if x, err = t.try(ctx, e); err == nil {
			e.Heard = append(e.Heard, x)
			return x, nil
		}
		var other *otherwise
		if ctx.Err() != nil || errors.As(err, &other) {
			break
		}
	}
	return Turn{}, fmt.Errorf("the environment %s, turn %d: %w", t.name, len(e.Heard), err)
}

// otherwise is of an environment that says something else when it is told the same.
type otherwise struct {
	turn      int
	was, then Turn
}

func (o *otherwise) Error() string {
	return fmt.Sprintf("told the same again it says %+.200v in turn %d, and said %+.200v before", o.then,
		o.turn, o.was)
}

// try has one process say the next turn.
func (t *Talks) try(ctx context.Context, e *Dialogue) (x Turn, err error) {
	w, err := t.take(e)
	if err != nil {
		return x, err
	}
	if w.at != e {
		w.at, w.said = e, 0
	}
	for w.said <= len(e.Heard) && err == nil {
		q := talkRequest{Reset: &talkReset{e.Seed, e.Record}}
		if w.said > 0 {
			q = talkRequest{Step: &talkStep{e.Told[w.said-1]}}
		}
		if x, err = w.turn(ctx, q); err == nil && w.said < len(e.Heard) && x != e.Heard[w.said] {
			err = &otherwise{w.said, e.Heard[w.said], x}
		}
		w.said++
	}
	if err != nil {
		err = w.because(err)
		t.end(w)
		return x, err
	}
	if x.Done {
		w.at = nil
	}
	t.give(w)
	return x, nil
}

// turn asks for one.
func (w *spoken) turn(ctx context.Context, q talkRequest) (x Turn, err error) {
	if w.lines.Buffered() > 0 {
		return x, errors.New("it has said something that it was not asked for")
	}
	w.id++
	q.ID = w.id
	line, err := w.ask(ctx, q)
	if err != nil {
		return x, err
	}
	var r struct {
		Turn
		ID    int64  `json:"id"`
		Error string `json:"error"`
	}
	switch err := strict(line, &r); {
	case err != nil:
		return x, err
	case r.ID != w.id:
		return x, fmt.Errorf("it answers request %d, and was asked %d", r.ID, w.id)
	case r.Error != "":
		return x, fmt.Errorf("it says: %.500s", r.Error)
	case math.IsNaN(r.Reward) || math.IsInf(r.Reward, 0):
		return x, fmt.Errorf("the reward is %g", r.Reward)
	case len(r.Text) > talkMost:
		return x, fmt.Errorf("a text of %d bytes, more than %d", len(r.Text), talkMost)
	}
	return r.Turn, nil
}

// take gives the process that is in an episode, or one that is in none, or a new one, or, where there are as many as
// there may be, the one that was used longest ago.
func (t *Talks) take(e *Dialogue) (*talker, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil, errClosed
	}
	at := slices.IndexFunc(t.idle, func(w *talker) bool { return w.at == e })
	if at < 0 {
		at = slices.IndexFunc(t.idle, func(w *talker) bool { return w.at == nil })
	}
	if at < 0 && t.alive >= cap(t.places) {
		at = 0 // the caller has a place, so that not all are asked
	}
	t.asked.Add(1)
	if at >= 0 {
		w := t.idle[at]
		t.idle = slices.Delete(t.idle, at, at+1)
		return w, nil
	}
	p, err := t.begin()
	if err != nil {
		t.asked.Done()
		return nil, err
	}
	t.alive++
	return &talker{party: p}, nil
}

// give lets others have a process.
func (t *Talks) give(w *talker) {
	t.mu.Lock()
	over := t.over
	if !over {
		t.idle = append(t.idle, w)
		t.asked.Done()
	}
	t.mu.Unlock()
	if over {
		t.end(w)
	}
}

// end ends a process that was taken.
func (t *Talks) end(w *talker) {
	w.kill()
	t.mu.Lock()
	t.alive--
	t.mu.Unlock()
	t.asked.Done()
}

// Leave says that an episode does not go on: its process is free for another one.
func (t *Talks) Leave(e *Dialogue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.idle {
		if w.at == e {
			w.at = nil
		}
	}
}

// Close ends all processes. Whoever is in Next has been told by its context: that is waited for.
func (t *Talks) Close() {
	t.mu.Lock()
	t.over = true
	for _, w := range t.idle {
		w.kill()
	}
	t.alive -= len(t.idle)
	t.idle = nil
	t.mu.Unlock()
	t.asked.Wait()
}
