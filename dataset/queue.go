package dataset

import (
	"sync"
	"sync/atomic"
	"time"
)

// Stage is what a stage of the data's pipeline has done.
type Stage struct {
	Name    string        `json:"name"`
	Workers int           `json:"workers"`
	Items   int64         `json:"items"`
	Busy    time.Duration `json:"busy_ns"` // of all workers together
}

// Use is the share of the stage's workers that were busy, over a time.
func (s Stage) Use(wall time.Duration) float64 {
	if wall <= 0 {
		return 0
	}
	return s.Busy.Seconds() / wall.Seconds() / float64(max(1, s.Workers))
}

// pool is a stage: workers that carry out tasks in the order given, or without workers of its own the one
// goroutine that gives tasks. Its senders hold credits, so that a task never waits for room.
type pool struct {
	name    string
	workers int
	tasks   chan func()
	running sync.WaitGroup
	items   atomic.Int64
	busy    atomic.Int64 // nanoseconds
}

// newPool starts a stage that takes up to so many tasks at once. inline says that one goroutine alone gives
// tasks: a single worker is then that goroutine itself. Were there several, each would work at once and the
// stage have more than one.
func newPool(name string, workers, credits int, inline bool) *pool {
	p := &pool{name: name, workers: workers}
	if workers == 1 && inline {
		return p
	}
	p.tasks = make(chan func(), credits)
	for range workers {
		p.running.Go(func() {
			for task := range p.tasks {
				p.do(task)
			}
		})
	}
	return p
}

// do runs a task and adds its time to the report of the stage.
func (p *pool) do(task func()) {
	start := time.Now()
	task()
	p.busy.Add(int64(time.Since(start)))
	p.items.Add(1)
}

// put gives a task.
func (p *pool) put(task func()) {
	if p.tasks == nil {
		p.do(task)
		return
	}
	p.tasks <- task
}

// close waits for the tasks given.
func (p *pool) close() {
	if p.tasks != nil {
		close(p.tasks)
		p.running.Wait()
		p.tasks = nil
	}
}

func (p *pool) stage() Stage {
	return Stage{p.name, p.workers, p.items.Load(), time.Duration(p.busy.Load())}
}

// docQueue reads the units of one source ahead, in the source's order. It is used by one goroutine; the
// pools read and encode, and all of the queue's units hold a credit of them.
type docQueue struct {
	f       *fetcher
	source  int
	units   *units
	order   func(n, pass int64) order
	items   []*pendingDoc
	pass    int64 // of items[0]
	place   int64
	current order
	ordered int64 // pass that current belongs to, -1 for none
}

// pendingDoc is a document, or a piece of one, that is being read.
type pendingDoc struct {
	unit
	done chan struct{}
	out  tokens
	err  error
}

// newDocQueue makes the queue of one source. Its order is shuffled by seed, source and pass, or
// that of the file where the run wants it so.
func newDocQueue(f *fetcher, source int, u *units, c *LoaderConfig) *docQueue {
	q := &docQueue{f: f, source: source, units: u, ordered: -1}
	q.order = func(n, pass int64) order { return newOrder(n, c.OrderWindow, c.Seed, pass, int64(source)) }
	if c.Sequential {
		q.order = func(int64, int64) order { return fileOrder{} }
	}
	return q
}

func (q *docQueue) len() int64 { return q.units.n }

// moveTo makes the unit at a place of a pass the first of the queue.
func (q *docQueue) moveTo(pass, place int64) {
	n := (pass-q.pass)*q.len() + place - q.place
	if n < 0 || n > int64(len(q.items)) {
		n = int64(len(q.items))
	}
	q.items = q.items[n:]
	q.pass, q.place = pass, place
}

// at returns the unit j places behind the first, and has the next ones read meanwhile. After an error that
// place is read again when it is asked for again.
func (q *docQueue) at(j int) (*pendingDoc, error) {
	wait := time.Now()
	for len(q.items) < j+q.f.ahead {
		p, err := q.start(q.place + int64(len(q.items)))
		if err != nil {
			return nil, err
		}
		q.items = append(q.items, p)
	}
	p := q.items[j]
	<-p.done
	q.f.waited.Add(int64(time.Since(wait)))
	if p.err != nil {
		q.items = q.items[:j]
		return nil, p.err
	}
	return p, nil
}

// start begins to read the unit at a place, which may lie in a later pass.
func (q *docQueue) start(place int64) (*pendingDoc, error) {
	pass := q.pass + place/q.len()
	if pass != q.ordered {
		q.current, q.ordered = q.order(q.len(), pass), pass
	}
	u, err := q.units.at(q.current.At(place % q.len()))
	if err != nil {
		return nil, err
	}
	p := &pendingDoc{unit: u, done: make(chan struct{})}
	q.f.start(q.source, p)
	return p, nil
}
