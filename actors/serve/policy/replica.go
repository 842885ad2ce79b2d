package policy

import (
	"context"
	"errors"
	"sync"
	"time"

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
	done     chan outcome // has room for one
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

// replicas answer jobs, each with a policy of its own.
type replicas struct {
	queue chan *job
	most  int // jobs of a batch
	now   func() time.Time
	quit  chan struct{}
	once  sync.Once
	all   sync.WaitGroup
	seen  *latencies
}

// newReplicas starts one goroutine for each of some policies; so many jobs may wait for all of them together.
func newReplicas(actors []Acting, queue, batch int, now func() time.Time, seen *latencies) *replicas {
	r := &replicas{queue: make(chan *job, queue), most: batch, now: now, quit: make(chan struct{}), seen: seen}
	for _, a := range actors {
		r.all.Go(func() { r.run(a) })
	}
	return r
}

// run answers what waits, all that fits into a batch at once: under load batches grow by themselves, and
// without it nobody waits for company.
func (r *replicas) run(a Acting) {
	for {
		var batch []*job
		select {
		case j := <-r.queue:
			batch = r.admit(batch, j)
		case <-r.quit:
			return
		}
		for more := true; more && len(batch) < r.most; {
			select {
			case j := <-r.queue:
				batch = r.admit(batch, j)
			default:
				more = false
			}
		}
		if len(batch) > 0 {
			r.answer(a, batch)
		}
	}
}

// admit adds a job to a batch, unless its time is over: nothing is begun that nobody waits for.
func (r *replicas) admit(batch []*job, j *job) []*job {
	if r.now().After(j.deadline) {
		j.done <- outcome{err: ErrLate}
		return batch
	}
	return append(batch, j)
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
		j.done <- o
	}
}

// ask queues a job and waits for its actions, until its deadline or the context's end. It never waits for
// room in the queue.
func (r *replicas) ask(ctx context.Context, j *job) (outcome, error) {
	select {
	case <-r.quit:
		return outcome{}, errClosed
	default:
	}
	select {
	case r.queue <- j:
	default:
		r.seen.full.Add(1)
		return outcome{}, ErrFull
	}
	select {
	case o := <-j.done:
		return o, o.err
	case <-r.quit:
		return outcome{}, errClosed
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
}

// close ends the replicas behind the batches under way.
func (r *replicas) close() {
	r.once.Do(func() { close(r.quit) })
	r.all.Wait()
}
