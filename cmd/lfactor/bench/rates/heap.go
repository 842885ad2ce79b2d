package rates

import (
	"math/rand/v2"
	"time"
)

// heapEvent is what a bare queue holds of an event.
type heapEvent struct {
	at    int64
	order uint32
	to    int32
}

// before is the order of events: by time, then by their own.
func (a *heapEvent) before(b *heapEvent) bool {
	return a.at < b.at || a.at == b.at && a.order < b.order
}

// bareHeap is a heap of four children a node: the queue of a simulator that does nothing.
type bareHeap []heapEvent

func (h *bareHeap) push(x heapEvent) {
	*h = append(*h, x)
	a := *h
	i := len(a) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !x.before(&a[up]) {
			break
		}
		a[i] = a[up]
		i = up
	}
	a[i] = x
}

func (h *bareHeap) pop() heapEvent {
	a := *h
	top, x := a[0], a[len(a)-1]
	a = a[:len(a)-1]
	*h = a
	i := 0
	for {
		first := 4*i + 1
		if first >= len(a) {
			break
		}
		least := first
		for k := first + 1; k < min(first+4, len(a)); k++ {
			if a[k].before(&a[least]) {
				least = k
			}
		}
		if !a[least].before(&x) {
			break
		}
		a[i] = a[least]
		i = least
	}
	if len(a) > 0 {
		a[i] = x
	}
	return top
}

// Bare times an event loop over a heap whose actors count the events that they get and send themselves the
// next: events a second, the floor of what a simulation of that many actors could take with such a queue.
func Bare(actors, events int) float64 {
	rng := rand.New(rand.NewPCG(1, uint64(actors)))
	count := make([]uint64, actors)
	h := make(bareHeap, 0, actors+1)
	for i := range actors {
		h.push(heapEvent{rng.Int64N(1 << 20), rng.Uint32(), int32(i)})
	}
	began := time.Now()
	for range events {
		x := h.pop()
		count[x.to]++
		x.at += int64(x.order&0xfffff) + 1
		x.order = x.order*747796405 + 2891336453
		h.push(x)
	}
	return float64(events) / time.Since(began).Seconds()
}
