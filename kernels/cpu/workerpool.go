package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// workerPool is a set of persistent workers. The goroutine that calls share works too; the others join when they get a
// processor, so that a caller never waits for a thread that has not started: with more teams than cores nothing stalls.
// In the words of the field: worker pool.
type workerPool struct {
	workers []*worker // workers[0] is the caller
	next    atomic.Int64
	n       int
	f       func(w *worker, i int)
	// state is the job's number, a closed bit and the count of workers inside, so that joining is one compare-and-swap.
	state  atomic.Uint64
	waits  atomic.Bool // the caller sleeps on done
	done   chan struct{}
	fault  atomic.Pointer[any] // the first panic of a worker
	ending atomic.Bool
	exited sync.WaitGroup
}

const (
	closedBit = 1 << 31
	jobOne    = 1 << 32
	insideMax = closedBit - 1
	// spinTime is how long an idle thread looks for work before it sleeps: longer than the gap between two
	// operations of a step, short enough that idle teams cost nothing.
	spinTime = 40 * time.Microsecond
	// jobTime is how long a thread spins that waits for others to end their tasks of a job: as long as tasks
	// take, since waking it costs some hundred microseconds, in which the next job would have one thread less.
	// It does so only where all teams together have a processor a thread.
	jobTime = 2 * time.Millisecond
)

// threads are those of all teams.
var threads atomic.Int64

// waitTime is how long a thread spins within a job.
func waitTime() time.Duration {
	if threads.Load() > int64(runtime.GOMAXPROCS(0)) {
		return spinTime
	}
	return jobTime
}

// worker is one thread's scratch.
type worker struct {
	k      *isa
	arena  scratch
	parked atomic.Bool
	wake   chan struct{}
}

// newWorkerPool starts the workers. The first has no goroutine: it is whoever calls.
func newWorkerPool(k *isa, size int) *workerPool {
	t := &workerPool{done: make(chan struct{}, 1)}
	t.state.Store(closedBit)
	threads.Add(int64(size))
	for i := range size {
		w := &worker{k: k, wake: make(chan struct{}, 1)}
		t.workers = append(t.workers, w)
		if i > 0 {
			t.exited.Add(1)
			go t.serve(w)
		}
	}
	return t
}

// close ends the workers and waits for them; later calls do nothing.
func (t *workerPool) close() {
	if t.ending.Swap(true) {
		return
	}
	threads.Add(-int64(len(t.workers)))
	for _, w := range t.workers[1:] {
		w.rouse()
	}
	t.exited.Wait()
}

// rouse wakes a worker. A signal that is there already is enough.
func (w *worker) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// share calls f(w, i) for all i in [0, n), each once, on any of the threads.
func (t *workerPool) share(n int, f func(w *worker, i int)) {
	if n <= 1 || len(t.workers) == 1 {
		for i := range n {
			f(t.workers[0], i)
			t.workers[0].arena.reset()
		}
		return
	}
	t.n, t.f = n, f
	t.next.Store(0)
	t.state.Store(t.state.Load()&^(closedBit|insideMax) + jobOne)
	for i, w := range t.workers[1:] {
		if i+1 < n && w.parked.Load() {
			w.rouse()
		}
	}
	defer t.finish()
	t.work(t.workers[0])
}

// finish closes the job and waits until the workers inside have left; a worker's panic goes on here.
func (t *workerPool) finish() {
	t.next.Store(int64(t.n)) // if the caller panics, the others stop
	if s := t.state.Or(closedBit); s&insideMax != 0 {
		t.await()
	}
	t.f = nil
	if p := t.fault.Swap(nil); p != nil {
		panic(*p)
	}
}

// await waits until all workers have left the job, first by spinning, since most jobs end within microseconds.
func (t *workerPool) await() {
	for s := newSpin(waitTime()); s.more(); {
		if t.state.Load()&insideMax == 0 {
			return
		}
	}
	t.waits.Store(true)
	for t.state.Load()&insideMax != 0 {
		<-t.done
	}
	t.waits.Store(false)
	select { // the last to leave may have sent after we looked
	case <-t.done:
	default:
	}
}

// work takes tasks one by one until none is left; the shared counter balances tasks of different length.
func (t *workerPool) work(w *worker) {
	for i := t.next.Add(1) - 1; i < int64(t.n); i = t.next.Add(1) - 1 {
		t.f(w, int(i))
		w.arena.reset()
	}
}

// serve is the life of a worker.
func (t *workerPool) serve(w *worker) {
	defer t.exited.Done()
	last := t.state.Load() / jobOne
	for !t.ending.Load() {
		s := t.state.Load()
		switch {
		case s/jobOne == last || s&closedBit != 0:
			t.idle(w, last)
		case t.state.CompareAndSwap(s, s+1):
			last = s / jobOne
			t.join(w)
		}
	}
}

// join works on the present job. A panic is kept for the caller and ends the job, so that one
// faulty task cannot hang the others.
func (t *workerPool) join(w *worker) {
	defer func() {
		if p := recover(); p != nil {
			t.fault.CompareAndSwap(nil, &p)
			t.next.Store(int64(t.n))
		}
		if s := t.state.Add(^uint64(0)); s&insideMax == 0 && t.waits.Load() {
			select {
			case t.done <- struct{}{}:
			default:
			}
		}
	}()
	t.work(w)
}

// idle returns when there may be a job after number last: it spins for a while, longer while others are still
// at work on job last, then sleeps.
func (t *workerPool) idle(w *worker, last uint64) {
	ready := func() bool {
		s := t.state.Load()
		return s/jobOne != last && s&closedBit == 0 || t.ending.Load()
	}
	for s := newSpin(waitTime()); t.state.Load()&closedBit == 0 && s.more(); {
		if ready() {
			return
		}
	}
	for s := newSpin(spinTime); s.more(); {
		if ready() {
			return
		}
	}
	w.parked.Store(true)
	if !ready() {
		<-w.wake
	}
	w.parked.Store(false)
}

// spin bounds a busy wait.
type spin struct {
	start time.Time
	most  time.Duration
	i     int
}

func newSpin(most time.Duration) spin { return spin{start: time.Now(), most: most} }

// more waits a little and tells whether to go on spinning. The clock is read rarely, and now and
// then others get the processor.
func (s *spin) more() bool {
	pause()
	if s.i++; s.i%16 != 0 {
		return true
	}
	if time.Since(s.start) > s.most {
		return false
	}
	if s.i%128 == 0 {
		runtime.Gosched()
	}
	return true
}
