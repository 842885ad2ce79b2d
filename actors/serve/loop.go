package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lfactor/lfactor/stages/sample"
)

// ErrFull says that as many requests wait as may.
var ErrFull = errors.New("too many requests wait; try again later")

// errClosed says that the server ends.
var errClosed = errors.New("the server is shutting down")

// loop is the goroutine that has the engine.
type loop struct {
	engine   *sample.Engine
	commands chan func()
	done     chan struct{} // closed when the loop has ended
	quit     chan struct{}
	once     sync.Once
	free     func()           // closes the engine
	most     int              // requests that may wait
	tokens   int              // of requests that may wait
	retired  bool             // it ends with its requests; the loop's alone
	train    *adapterTraining // what trains adapters, nil for nothing

	mu     sync.Mutex
	stats  sample.Stats
	taught trainingStats
	last   error
	failed int64
}

func newLoop(e *sample.Engine, free func(), o Options, train *adapterTraining) *loop {
	l := &loop{engine: e, commands: make(chan func()), done: make(chan struct{}), quit: make(chan struct{}), free: free,
		most: o.Queue, tokens: o.Tokens, train: train, stats: e.Stats()}
	go l.run()
	return l
}

// run carries out commands between steps.
func (l *loop) run() {
	defer close(l.done)
	defer l.free()
	for {
		if !l.engine.Busy() && !l.train.busy() {
			if l.retired {
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
		if l.engine.Busy() {
			err := l.engine.Step()
			l.mu.Lock()
			if err != nil {
				l.last, l.failed = err, l.failed+1
			}
			l.mu.Unlock()
		}
		l.note()
	}
}

// gather waits for more work of tenants, for a part of the time that it takes to compute what there is.
func (l *loop) gather() {
	if l.engine.Busy() {
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
	s := l.engine.Stats()
	l.mu.Lock()
	l.stats = s
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
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-ran: // commands are short: whoever has sent one waits
		return nil
	case <-l.done:
		return errClosed
	}
}

// takes is why requests may not wait, nil where they may.
func (l *loop) takes(rs []*sample.Request) error {
	s, tokens := l.engine.Stats(), 0
	for _, r := range rs {
		tokens += len(r.Prompt)
	}
	switch {
	case l.retired:
		return errClosed
	case s.Waiting+len(rs) > l.most, s.Waiting > 0 && s.WaitingTokens+tokens > l.tokens:
		return ErrFull
	}
	return nil
}

// submit queues requests, all or none.
func (l *loop) submit(ctx context.Context, rs []*sample.Request) error {
	var fault error
	err := l.do(ctx, func() {
		if fault = l.takes(rs); fault != nil {
			return
		}
		for i, r := range rs {
			if fault = l.engine.Submit(r); fault != nil {
				for _, before := range rs[:i] {
					l.engine.Cancel(before)
				}
				return
			}
		}
		l.note()
	})
	return errors.Join(err, fault)
}

// cancel ends requests that have not ended.
func (l *loop) cancel(rs []*sample.Request) {
	_ = l.do(context.Background(), func() { // a loop that has ended has cancelled all
		for _, r := range rs {
			l.engine.Cancel(r)
		}
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
