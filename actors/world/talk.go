package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/crew"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/pool"
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
	chain  int32  // its number among those of its Talks
}

// talkMost bounds the text of a turn.
const talkMost = 1 << 20

// tries is how many processes a turn may be lost with.
const tries = 2

// Talks are the processes of a command that is an environment of texts (docs/post-training.md), or sessions
// with one that is served elsewhere: a pool's members. They may die, hang or say what is no answer: then another
// one is told the episode again, once. Its methods are for several goroutines.
type Talks struct {
	name  string
	begin func(context.Context) (party, error)
	desk  *pool.Queue
	crew  *crew.Crew
	last  atomic.Int32 // episodes so far
}

// told is a task: an episode that goes on, and then the turn that follows.
type told struct {
	crew.Own
	at   *Dialogue
	turn Turn
}

// party says an environment's turns, of one episode at a time.
type party interface {
	// turn gives what it says to a request.
	turn(ctx context.Context, q talkRequest) (Turn, error)
	dead() bool              // says that it is known to have ended
	kill()                   // ends it
	because(err error) error // adds what it said last to an error
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
	t := &Talks{name: name, begin: begin, desk: &pool.Queue{Places: most, Most: tries, Wait: actors.Duration(wait)}}
	t.crew = crew.New(crew.Options{Options: pool.Options{Desk: t.desk}, Places: most, Room: 1, Run: t.run})
	return t
}

// Members are the environment's processes, as crew.Crew has them.
func (t *Talks) Members() []host.Status { return t.crew.Members() }

// Refusal is the error of an environment that says one itself, as its protocol has it.
type Refusal struct{ Said string }

func (r *Refusal) Error() string { return "it says: " + r.Said }

// full says that a server takes no more sessions.
type full struct{ why string }

func (f *full) Error() string { return f.why }

// Next has the environment say its next turn of an episode, and adds it to what is heard. A turn that it
// says again is to be the same: else the episode has an error, as where the second process fails too.
func (t *Talks) Next(ctx context.Context, e *Dialogue) (Turn, error) {
	if e.chain == 0 {
		e.chain = t.last.Add(1)
	}
	m, err := t.crew.Ask(ctx, actors.Message{Comm: e.chain, Payload: told{at: e}})
	if err != nil {
		return Turn{}, fmt.Errorf("the environment %s, turn %d: %w", t.name, len(e.Heard), err)
	}
	x := m.Payload.(told).turn
	e.Heard = append(e.Heard, x)
	return x, nil
}

// otherwise is of an environment that says something else when it is told the same.
type otherwise struct {
	turn      int
	was, then Turn
}

func (o *otherwise) Error() string {
	return fmt.Sprintf("told the same again it says %+.200v in turn %d, and said %+.200v before", o.then, o.turn, o.was)
}

// run is the life of a process: it says turns of episodes.
func (t *Talks) run(ctx context.Context, _ int, in <-chan actors.Message, say func(actors.Message)) (port int32, err error) {
	defer func() {
		if errors.As(err, new(*full)) {
			port = pool.Full
		}
	}()
	p, err := t.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer p.kill()
	var at *Dialogue // that it is in
	said := 0        // turns of it
	for {
		var q actors.Message
		select {
		case q = <-in:
		case <-ctx.Done():
		}
		e, asked := q.Payload.(told)
		switch {
		case !asked || ctx.Err() != nil:
			return 0, errClosed
		case p.dead():
			return pool.Untried, errClosed
		case e.at != at:
			at, said = e.at, 0
		}
		for said <= len(at.Heard) && err == nil {
			e.turn, err = next(ctx, p, at, said)
			said++
		}
		if err != nil {
			if err = p.because(err); errors.As(err, new(*otherwise)) { // it would say the same again
				say(actors.Message{Kind: pool.Result, Step: q.Step, Err: err})
			}
			return 0, err
		}
		r := actors.Message{Kind: pool.Result, Step: q.Step, Payload: e}
		if e.turn.Done {
			r.Port, at = pool.Freed, nil
		}
		say(r)
	}
}

// next has a process say a turn of an episode.
func next(ctx context.Context, p party, e *Dialogue, n int) (Turn, error) {
	q := talkRequest{Reset: &talkReset{e.Seed, e.Record}}
	if n > 0 {
		q = talkRequest{Step: &talkStep{e.Told[n-1]}}
	}
	x, err := p.turn(ctx, q)
	if err == nil && n < len(e.Heard) && x != e.Heard[n] {
		err = &otherwise{n, e.Heard[n], x}
	}
	return x, err
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

// Leave says that an episode does not go on: its process is free for another one.
func (t *Talks) Leave(e *Dialogue) { t.crew.Tell(actors.Message{Kind: pool.Free, Comm: e.chain}) }

// Close ends all processes. Whoever is in Next has been told by its context: that is waited for.
func (t *Talks) Close() { t.crew.Close() }
