package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/serve/queue"
	"github.com/lfactor/lfactor/stages/sample"
)

// loop is the goroutine that has the engine and its queue.
type loop struct {
	queue.Queue
	commands chan func()
	done     chan struct{} // closed when the loop has ended
	quit     chan struct{}
	once     sync.Once
	free     func()           // closes the engine
	train    *adapterTraining // what trains adapters, nil for nothing

	mu     sync.Mutex
	stats  sample.Stats
	taught trainingStats
	last   error
	failed int64
}

func newLoop(e *sample.Engine, free func(), o Options, train *adapterTraining) *loop {
	l := &loop{Queue: queue.Queue{Engine: e, Most: o.Queue, Tokens: o.Tokens}, commands: make(chan func()),
		done: make(chan struct{}), quit: make(chan struct{}), free: free, train: train, stats: e.Stats()}
	go l.run()
	return l
}

// run carries out commands between steps.
func (l *loop) run() {
	defer close(l.done)
	defer l.free()
	for {
		if !l.Engine.Busy() && !l.train.busy() {
			if l.Over() {
				return
			}
			select {
			case f := <-l.commands:
				f()
			case <-l.quit:
				return
			}
		}
		for more := true; more; {
			select {
			case f := <-l.commands:
				f()
			case <-l.quit:
				return
			default:
				more = false
			}
		}
		l.gather()
		l.train.step()
		l.Step()
		l.note()
	}
}

// gather waits for more work of tenants, for a part of the time that it takes to compute what there is.
func (l *loop) gather() {
	if l.Engine.Busy() {
		return
	}
	most := l.train.linger()
	if most == 0 {
		return
	}
	over := time.NewTimer(most)
	defer over.Stop()
	for l.train.linger() > 0 {
		select {
		case f := <-l.commands:
			f()
		case <-over.C:
			return
		case <-l.quit:
			return
		}
	}
}

// note publishes what the engine has done.
func (l *loop) note() {
	s := l.Engine.Stats()
	l.mu.Lock()
	l.stats, l.last, l.failed = s, l.Last, l.Queue.Failed
	if l.train != nil {
		l.taught = l.train.stats
	}
	l.mu.Unlock()
}

// trained is what had been trained after the last step.
func (l *loop) trained() trainingStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taught
}

// do has the loop carry out f, and waits for it.
func (l *loop) do(ctx context.Context, f func()) error {
	if ctx.Err() != nil { // of a time that is over nothing is begun, ready as the loop may be
		return ctx.Err()
	}
	ran := make(chan struct{})
	select {
	case l.commands <- func() { f(); close(ran) }:
	case <-l.done:
		return queue.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-ran: // commands are short: whoever has sent one waits
		return nil
	case <-l.done:
		return queue.ErrClosed
	}
}

// submit queues requests, all or none.
func (l *loop) submit(ctx context.Context, rs []*sample.Request) error {
	var fault error
	err := l.do(ctx, func() {
		if fault = l.Submit(rs); fault == nil {
			l.note()
		}
	})
	return errors.Join(err, fault)
}

// cancel ends requests that have not ended.
func (l *loop) cancel(rs []*sample.Request) {
	_ = l.do(context.Background(), func() { // a loop that has ended has cancelled all
		l.Cancel(rs)
		l.note()
	})
}

// snapshot is what the engine had done after its last step, and the last error of one.
func (l *loop) snapshot() (sample.Stats, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats, l.failed, l.last
}

// close ends the loop behind the step under way.
func (l *loop) close() {
	l.once.Do(func() { close(l.quit) })
	<-l.done
}
