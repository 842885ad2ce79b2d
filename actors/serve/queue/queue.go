// Package queue is what a server's requests pass on their way to the engine: how many may wait, all or none of those
// that come together, and the end of one that takes no more. It is a state machine without clock or I/O: package serve
// drives it by connections, and sim/serving by simulated clients in virtual time.
package queue

import (
	"errors"

	"github.com/lfactor/lfactor/stages/sample"
)

// ErrFull says that as many requests wait as may.
var ErrFull = errors.New("too many requests wait; try again later")

// ErrClosed says that the server ends.
var ErrClosed = errors.New("the server is shutting down")

// Queue is an engine with those that wait for it. What is asked of it comes between steps.
type Queue struct {
	Engine  *sample.Engine
	Most    int  // requests that may wait
	Tokens  int  // of requests that may wait; one that nobody waits before may have more
	Retired bool // it ends with its requests
	Failed  int64
	Last    error // of a step
}

// takes is why requests may not wait, nil where they may.
func (q *Queue) takes(rs []*sample.Request) error {
	s, tokens := q.Engine.Stats(), 0
	for _, r := range rs {
		tokens += len(r.Prompt)
	}
	switch {
	case q.Retired:
		return ErrClosed
	case s.Waiting+len(rs) > q.Most, s.Waiting > 0 && s.WaitingTokens+tokens > q.Tokens:
		return ErrFull
	}
	return nil
}

// Submit queues requests, all or none.
func (q *Queue) Submit(rs []*sample.Request) error {
	if err := q.takes(rs); err != nil {
		return err
	}
	for i, r := range rs {
		if err := q.Engine.Submit(r); err != nil {
			q.Cancel(rs[:i])
			return err
		}
	}
	return nil
}

// Cancel ends requests that have not ended.
func (q *Queue) Cancel(rs []*sample.Request) {
	for _, r := range rs {
		q.Engine.Cancel(r)
	}
}

// Step computes a microbatch, where somebody waits for one.
func (q *Queue) Step() {
	if !q.Engine.Busy() {
		return
	}
	if err := q.Engine.Step(); err != nil {
		q.Last, q.Failed = err, q.Failed+1
	}
}

// Over reports whether it takes no more and has nothing left.
func (q *Queue) Over() bool { return q.Retired && !q.Engine.Busy() }
