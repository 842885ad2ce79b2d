package sim

import "math/bits"

// item is an event in the queue: place msg of the slab, at a time; order decides among simultaneous ones.
type item struct {
	at    int64
	order uint32
	msg   int32
}

// queue is a radix heap: bucket b holds the items whose time differs from the current one in bit b-1 and in
// no higher bit. Times never go back in a simulation, so that an item only ever moves to lower buckets, and
// it is moved in sequence where a binary heap jumps. Items of one time come out by order, and those of one
// order by their actors; two of one pair of actors as they were put in. An item that is put in for the
// current time comes behind all that were there before.
type queue struct {
	s       *Sim // whose slab the items are of
	buckets [65][]item
	now     int64
	used    uint64 // bit b is set if buckets[b+1] holds anything
	batch   []item // of the current time, in order
	next    int    // of batch
	depth   int32  // how many batches of the current time there were before
	sorted  []item
	count   [deals]int32
}

// push enters an item. This is a radix heap: the bucket is given by the highest bit in which the
// item's time differs from now, which is enough because time never goes back.
func (q *queue) push(x item) {
	b := bits.Len64(uint64(x.at ^ q.now))
	q.buckets[b] = append(q.buckets[b], x)
	if b > 0 {
		q.used |= 1 << (b - 1)
	}
}

func (q *queue) empty() bool { return q.next == len(q.batch) && q.used == 0 && len(q.buckets[0]) == 0 }

// peek is what is left of the items of one time; the queue is not empty.
func (q *queue) peek() []item {
	if q.next == len(q.batch) {
		q.advance()
	}
	return q.batch[q.next:]
}

// pop takes the next item, which peek has seen.
func (q *queue) pop() item {
	x := q.batch[q.next]
	q.next++
	return x
}

// least is the earliest time, never if there is no item.
func (q *queue) least() int64 {
	if q.next < len(q.batch) || len(q.buckets[0]) > 0 {
		return q.now
	}
	least := int64(never)
	if q.used != 0 {
		from := q.buckets[bits.TrailingZeros64(q.used)+1]
		for i := range from {
			least = min(least, from[i].at)
		}
	}
	return least
}

const never = 1<<63 - 1

// advance makes the items of the earliest time the batch.
func (q *queue) advance() { q.before(never) }

// before makes the items of the earliest time the batch if there are any before end.
func (q *queue) before(end int64) bool {
	if q.depth++; len(q.buckets[0]) == 0 {
		if q.used == 0 {
			return false
		}
		b := bits.TrailingZeros64(q.used) + 1
		from := q.buckets[b]
		least := from[0].at
		for i := range from {
			least = min(least, from[i].at)
		}
		if least >= end {
			return false
		}
		q.now, q.depth = least, 0
		q.used &^= 1 << (b - 1)
		q.buckets[b] = from[:0]
		for i := range from {
			q.push(from[i])
		}
	}
	q.batch, q.buckets[0], q.next = q.sort(q.buckets[0]), q.batch[:0], 0
	return true
}

const (
	few   = 24
	deals = 1 << 11 // most stacks that items of one time are dealt to
)

// sort orders items of one time. Orders are spread evenly, so that many of them are dealt to stacks by their
// upper bits first.
func (q *queue) sort(a []item) []item {
	if len(a) <= few {
		q.insertion(a)
		return a
	}
	// about as many stacks as items
	width := min(bits.Len(uint(len(a)))-1, bits.Len(deals)-1)
	count, shift := q.count[:1<<width], 32-width
	clear(count)
	for i := range a {
		count[a[i].order>>shift]++
	}
	sum := int32(0)
	for i, n := range count {
		count[i] = sum
		sum += n
	}
	if cap(q.sorted) < len(a) {
		q.sorted = make([]item, 2*len(a))
	}
	out := q.sorted[:len(a)]
	for i := range a {
		n := &count[a[i].order>>shift]
		out[*n] = a[i]
		*n++
	}
	q.sorted = a[:0]
	first := int32(0)
	for _, end := range count {
		q.insertion(out[first:end])
		first = end
	}
	return out
}

// insertion sorts a short bucket by order; for a few items this beats a general sort.
func (q *queue) insertion(a []item) {
	for i := 1; i < len(a); i++ {
		x := a[i]
		k := i
		for ; k > 0 && q.after(&a[k-1], &x); k-- {
			a[k] = a[k-1]
		}
		a[k] = x
	}
}

// after reports whether an item comes behind another of the same time.
func (q *queue) after(a, b *item) bool {
	return a.order > b.order || a.order == b.order && q.s.behind(a.msg, b.msg)
}

// behind orders messages of one time whose actors hash to one number.
func (s *Sim) behind(a, b int32) bool {
	f, g := s.flight(a), s.flight(b)
	return f.from > g.from || f.from == g.from && f.to > g.to
}
