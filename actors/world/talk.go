package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lfactor/lfactor/topology/machine"
)

// Turn is what an environment of texts says: to the beginning of an episode, and to each text that it is told.
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
	begin  func(context.Context) (party, error)
	places chan struct{}
	wait   time.Duration // for a place where others have all that there are

	mu    sync.Mutex
	idle  []*talker // the one that was used longest ago first
	alive int       // those idle, those that are asked and those that begin
	most  int       // of them: as many as there may be, or as a server has taken
	over  bool
	asked sync.WaitGroup // processes that somebody waits for
}

// party says an environment's turns, of one episode at a time.
type party interface {
	// turn gives what it says to a request.
	turn(ctx context.Context, q talkRequest) (Turn, error)
	dead() bool              // says that it is known to have ended
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
	return newTalks(words[0], processes, deadline, func(context.Context) (party, error) {
		p, err := begin(words, deadline)
		if err != nil {
			return nil, fmt.Errorf("it does not start: %w", err)
		}
		return &spoken{program: p}, nil
	})
}

func newTalks(name string, most int, wait time.Duration, begin func(context.Context) (party, error)) *Talks {
	return &Talks{name: name, places: make(chan struct{}, most), most: most, wait: wait, begin: begin}
}

// Refusal is the error of an environment that says one itself, as its protocol has it.
type Refusal struct{ Said string }

func (r *Refusal) Error() string { return "it says: " + r.Said }

// full says that a server takes no more sessions.
type full struct{ why string }

func (f *full) Error() string { return f.why }

// fullPause lies between two looks for a place.
const fullPause = 20 * time.Millisecond

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
	until := time.Now().Add(t.wait)
	for tries := 0; tries < 2; {
		var x Turn
		if x, err = t.try(ctx, e, tries > 0); err == nil {
			e.Heard = append(e.Heard, x)
			return x, nil
		}
		var other *otherwise
		var none *full
		switch {
		case ctx.Err() != nil || errors.As(err, &other):
			tries = 2
		case errors.As(err, &none) && time.Now().Before(until):
			if err := machine.Pause(ctx, fullPause); err != nil {
				return Turn{}, err
			}
		default:
			tries++
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
	return fmt.Sprintf("told the same again it says %+.200v in turn %d, and said %+.200v before", o.then, o.turn, o.was)
}

// try has one process say the next turn, a new one where that is wanted.
func (t *Talks) try(ctx context.Context, e *Dialogue, anew bool) (x Turn, err error) {
	w, err := t.take(ctx, e, anew)
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
		if errors.As(err, new(*full)) {
			t.mu.Lock()
			t.most = max(1, t.alive) // episodes share those that it has taken
			t.mu.Unlock()
		}
		return x, err
	}
	if x.Done {
		w.at = nil
	}
	t.give(w)
	return x, nil
}

// dead implements party.
func (w *spoken) dead() bool { return w.ended }

// turn asks for one.
func (w *spoken) turn(ctx context.Context, q talkRequest) (x Turn, err error) {
	w.id++
	q.ID = w.id
	line, err := w.ask(ctx, q)
	if err != nil {
		return x, err
	}
	var r struct {
		Text   *string  `json:"text"`
		Reward *float64 `json:"reward"`
		Done   *bool    `json:"done"`
		ID     int64    `json:"id"`
		Error  string   `json:"error"`
	}
	switch err := strict(line, &r); {
	case err != nil:
		return x, err
	case r.ID != w.id:
		return x, fmt.Errorf("it answers request %d, and was asked %d", r.ID, w.id)
	case r.Error != "":
		return x, &Refusal{fmt.Sprintf("%.500s", r.Error)}
	}
	if err := needs(part{"text", r.Text != nil}, part{"reward", r.Reward != nil}, part{"done",
		r.Done != nil}); err != nil {
		return x, err
	}
	if len(*r.Text) > talkMost {
		return x, fmt.Errorf("a text of %d bytes, more than %d", len(*r.Text), talkMost)
	}
	return Turn{*r.Text, *r.Reward, *r.Done}, nil
}

// take gives the process that is in an episode, or one that is in none, or a new one, or, where there are as
// many as there may be, the one that was used longest ago. Those that have ended meanwhile are nobody's. One
// that is to be new takes the place of another.
func (t *Talks) take(ctx context.Context, e *Dialogue, anew bool) (*talker, error) {
	w, gone, err := t.choose(e, anew)
	for _, g := range gone {
		g.kill()
	}
	if w != nil || err != nil {
		return w, err
	}
	p, err := t.begin(ctx) // others go on meanwhile
	if err != nil {
		t.mu.Lock()
		t.alive--
		t.mu.Unlock()
		t.asked.Done()
		return nil, err
	}
	return &talker{party: p}, nil
}

// choose takes one of those that are there, or nil and the place of one that the caller begins; gone are
// those that it is to end.
func (t *Talks) choose(e *Dialogue, anew bool) (w *talker, gone []*talker, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil, nil, errClosed
	}
	t.idle = slices.DeleteFunc(t.idle, func(w *talker) bool {
		dead := w.dead()
		if dead {
			gone = append(gone, w)
		}
		return dead
	})
	t.alive -= len(gone)
	at := slices.IndexFunc(t.idle, func(w *talker) bool { return w.at == e })
	if at < 0 {
		at = slices.IndexFunc(t.idle, func(w *talker) bool { return w.at == nil })
	}
	if room := t.alive < t.most; anew && room {
		at = -1
	} else if at < 0 && !room {
		if len(t.idle) == 0 { // else the caller's place says that not all are asked
			return nil, gone, &full{fmt.Sprintf("it takes %d sessions, which are all asked", t.most)}
		}
		at = 0
	}
	t.asked.Add(1)
	if at >= 0 {
		w = t.idle[at]
		t.idle = slices.Delete(t.idle, at, at+1)
		if !anew {
			return w, gone, nil
		}
		return nil, append(gone, w), nil // the new one takes its place
	}
	t.alive++
	return nil, gone, nil
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
