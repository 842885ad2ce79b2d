package jobs

import (
	"context"
	"sync"
)

// byteBudget bounds the bytes of entries that were read and not yet written. The entry that is written next
// never waits, since those behind it give nothing back before it does.
type byteBudget struct {
	mu     sync.Mutex
	freed  *sync.Cond
	max    int64
	used   int64
	held   map[int64]int64 // by entry
	next   int64
	closed bool
}

// newByteBudget allows max bytes at a time, given out in the order of the items from next on.
func newByteBudget(max, next int64) *byteBudget {
	b := &byteBudget{max: max, next: next, held: map[int64]int64{}}
	b.freed = sync.NewCond(&b.mu)
	return b
}

// take counts bytes of an entry, and waits until there is room for them.
func (b *byteBudget) take(entry, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.used+bytes > b.max && entry != b.next && !b.closed {
		b.freed.Wait()
	}
	b.used += bytes
	b.held[entry] += bytes
}

// written gives back what an entry held, and lets the next one pass.
func (b *byteBudget) written(entry int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= b.held[entry]
	delete(b.held, entry)
	b.next = entry + 1
	b.freed.Broadcast()
}

// closeWith lets all pass when ctx ends: what they read is dropped. stop ends the watch.
func (b *byteBudget) closeWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.closed = true
		b.freed.Broadcast()
	})
}
