package policy

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/crew"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/stages/policies"
)

// Why an observation is not answered, although it is a good one.
var (
	ErrFull   = errors.New("too many observations wait; send fewer, or serve with more replicas")
	ErrLate   = errors.New("the time of the observation was over before its turn came")
	errClosed = errors.New("the server is shutting down")
)

// job is an observation that waits for its actions.
type job struct {
	ask      policies.Ask
	came     time.Time
	deadline time.Time
	crew.Own
	outcome // when it was answered
}

// outcome is what came of a job.
type outcome struct {
	chunk policies.Chunk
	wait  time.Duration // before its batch began
	infer time.Duration // of its batch
	batch int
	err   error
}

// Acting is what a replica does: chunks of actions for what several robots see at once. *trained.Actor is.
type Acting interface {
	Decide(asks []policies.Ask) ([]policies.Chunk, error)
}

// replicas answer jobs, each with a policy of its own: a pool's members, which are given all that fits into a batch at
// once. Under load batches grow by themselves, and without it nobody waits for company.
type replicas struct {
	*crew.Crew
	waiting atomic.Int64 // jobs that no replica has
	now     func() time.Time
	seen    *latencies
}

// newReplicas begins a member for each of some policies; so many jobs may wait for all of them together.
func newReplicas(all []Acting, queue, batch int, now func() time.Time, seen *latencies) *replicas {
	r := &replicas{now: now, seen: seen}
	r.Crew = crew.New(crew.Options{Options: pool.Options{Desk: &pool.Queue{Places: len(all), Hold: batch, Limit: queue}},
		Places: len(all), Room: batch,
		Run: func(_ context.Context, place int, in <-chan actors.Message, say func(actors.Message)) (int32, error) {
			for m := range in {
				r.take(all[place], m, in, say)
			}
			return 0, nil
		}})
	return r
}

// take answers the jobs that a replica is given together, but those whose time is over: nothing is begun that nobody
// waits for.
func (r *replicas) take(a Acting, m actors.Message, in <-chan actors.Message, say func(actors.Message)) {
	var batch []*job
	var tasks []actors.Message
	for left := m.Member; ; m = <-in {
		r.waiting.Add(-1)
		if j := m.Payload.(*job); r.now().After(j.deadline) {
			say(actors.Message{Kind: pool.Result, Step: m.Step, Err: ErrLate})
		} else {
			batch, tasks = append(batch, j), append(tasks, m)
		}
		if left--; left == 0 {
			break
		}
	}
	if len(batch) == 0 {
		return
	}
	r.answer(a, batch)
	for i, j := range batch {
		say(actors.Message{Kind: pool.Result, Step: tasks[i].Step, Payload: j, Err: j.err})
	}
}

// answer has a policy act for a batch.
func (r *replicas) answer(a Acting, batch []*job) {
	began := r.now()
	asks := make([]policies.Ask, len(batch))
	for i, j := range batch {
		asks[i] = j.ask
	}
	chunks, err := a.Decide(asks)
	took := r.now().Sub(began)
	r.seen.batches.Add(1)
	for i, j := range batch {
		o := outcome{wait: began.Sub(j.came), infer: took, batch: len(batch), err: err}
		if err == nil {
			o.chunk = chunks[i]
			if o.err = policies.Fault(o.chunk.Actions); o.err != nil { // the others' are as good as without it
				r.seen.failed.Add(1)
			}
		}
		j.outcome = o
	}
}

// ask queues a job and waits for its actions, until its deadline or the context's end. It never waits for
// room in the queue.
func (r *replicas) ask(ctx context.Context, j *job) (outcome, error) {
	r.waiting.Add(1)
	_, err := r.Ask(ctx, actors.Message{Comm: 1, Payload: j})
	switch {
	case err == nil:
		return j.outcome, nil
	case errors.Is(err, pool.ErrFull):
		r.waiting.Add(-1)
		r.seen.full.Add(1)
		err = ErrFull
	case errors.Is(err, crew.ErrOver):
		err = errClosed
	}
	return outcome{}, err
}
