package serve

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// gate lets several in together, or one alone, in the order in which they came; whoever waits may go away.
type gate struct {
	made  sync.Once
	room  *semaphore.Weighted // who is alone has all of it
	queue atomic.Int64
}

// weight is the room that somebody takes.
func (g *gate) weight(alone bool) int64 {
	g.made.Do(func() { g.room = semaphore.NewWeighted(math.MaxInt64) })
	if alone {
		return math.MaxInt64
	}
	return 1
}

// enter waits until there is room, or the context's end.
func (g *gate) enter(ctx context.Context, alone bool) error {
	g.queue.Add(1)
	defer g.queue.Add(-1)
	n := g.weight(alone)
	return g.room.Acquire(ctx, n)
}

// leave gives room to others.
func (g *gate) leave(alone bool) {
	n := g.weight(alone)
	g.room.Release(n)
}

// waiting is how many wait.
func (g *gate) waiting() int { return int(g.queue.Load()) }
