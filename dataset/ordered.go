package dataset

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Meter counts what a stage of a pipeline does. Its methods may be called by several goroutines at once.
type Meter struct {
	Name    string
	Workers int
	items   atomic.Int64
	busy    atomic.Int64 // nanoseconds
}

// Do carries out a piece of the stage's work.
func (m *Meter) Do(work func()) {
	start := time.Now()
	work()
	m.busy.Add(int64(time.Since(start)))
	m.items.Add(1)
}

// Stage tells what the stage has done.
func (m *Meter) Stage() Stage {
	return Stage{m.Name, max(1, m.Workers), m.items.Load(), time.Duration(m.busy.Load())}
}

// Bottleneck is the stage whose workers were busiest, which the others wait for.
func Bottleneck(stages []Stage, wall time.Duration) (at Stage) {
	for _, s := range stages {
		if at.Name == "" || s.Use(wall) > at.Use(wall) {
			at = s
		}
	}
	return at
}

// orderedAhead is how many items a worker of Ordered may be ahead of the one that uses them.
const orderedAhead = 4

// Ordered makes something of the items from to to-1 by the stage's workers, and gives it to use in order,
// one at a time. Workers hold credits: they are at most a few items ahead. An error of use or the end of ctx
// ends it and is returned, when no worker runs any more.
func Ordered[T any](ctx context.Context, from, to int64, stage *Meter, work func(i int64) T,
	use func(i int64, v T) error) (err error) {
	type task struct {
		i   int64
		out chan T
	}
	workers := max(1, stage.Workers)
	ctx, cancel := context.WithCancel(ctx)
	tasks, order := make(chan task), make(chan task, workers*orderedAhead)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(tasks)
		defer close(order)
		for i := from; i < to; i++ {
			t := task{i, make(chan T, 1)}
			select {
			case order <- t:
			case <-ctx.Done():
				return
			}
			tasks <- t
		}
	})
	for range workers {
		wg.Go(func() {
			for t := range tasks {
				stage.Do(func() { t.out <- work(t.i) })
			}
		})
	}
	for t := range order {
		if err = ctx.Err(); err == nil {
			err = use(t.i, <-t.out)
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		err = ctx.Err() // the items may have ended early for it
	}
	cancel()
	for range order { // let the first goroutine go
	}
	wg.Wait()
	return err
}
