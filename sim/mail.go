package sim

// letter is an event of the hub.
type letter struct {
	item
	depth    int32
	sequence uint32
}

// mailbox is a heap of the hub's events.
type mailbox struct {
	s    *Sim
	heap []letter
}

func (b *mailbox) less(i, k int) bool {
	x, y := &b.heap[i], &b.heap[k]
	switch {
	case x.at != y.at:
		return x.at < y.at
	case x.depth != y.depth:
		return x.depth < y.depth
	case x.order != y.order:
		return x.order < y.order
	case b.s.behind(y.msg, x.msg):
		return true
	case b.s.behind(x.msg, y.msg):
		return false
	}
	return x.sequence < y.sequence
}

func (b *mailbox) push(l letter) {
	b.heap = append(b.heap, l)
	for i := len(b.heap) - 1; i > 0 && b.less(i, (i-1)/2); i = (i - 1) / 2 {
		b.heap[i], b.heap[(i-1)/2] = b.heap[(i-1)/2], b.heap[i]
	}
}

func (b *mailbox) pop() letter {
	top, last := b.heap[0], len(b.heap)-1
	b.heap[0] = b.heap[last]
	b.heap = b.heap[:last]
	for i := 0; ; {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < last; k++ {
			if b.less(k, least) {
				least = k
			}
		}
		if least == i {
			return top
		}
		b.heap[i], b.heap[least] = b.heap[least], b.heap[i]
		i = least
	}
}
