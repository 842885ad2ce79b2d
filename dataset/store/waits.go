package store

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Waiting is a read from a store that has not come back.
type Waiting struct {
	Name  string    `json:"name"`   // of the file, without credentials
	At    int64     `json:"offset"` // in bytes
	Since time.Time `json:"since"`
}

// waiting are the reads under way.
type waiting struct {
	mu   sync.Mutex
	next int64
	now  map[int64]Waiting
}

var waits = &waiting{now: map[int64]Waiting{}}

// enter notes a read; the returned function ends it.
func (w *waiting) enter(name string, at int64) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	w.next++
	w.now[id] = Waiting{name, at, time.Now()}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.now, id)
	}
}

// Waits lists the reads from stores that are under way, the oldest first.
func Waits() []Waiting {
	waits.mu.Lock()
	defer waits.mu.Unlock()
	out := make([]Waiting, 0, len(waits.now))
	for _, w := range waits.now {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Waiting) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.At, b.At))
	})
	return out
}
