package core

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// partKey names a collective: the communication of a segment of an action. A program runs an action once a step and a
// member is at most one collective ahead, so the key is unique while it is in use.
type partKey struct {
	a         plan.Action
	seg, comm int32
}

// portKey names a port's value: the consumer's F, or the producer's B.
type portKey struct {
	a    plan.Action
	port int32
}

// at is a with another verb.
func at(a plan.Action, k plan.Kind) plan.Action { a.Kind = k; return a }

// box collects the parts of one collective. A rank has few open at a time, so they are looked up by walking a list; a box that
// is empty again serves the next collective.
type box struct {
	key   partKey
	parts []actors.Payload
	n     int
}

// inbox keeps what has come before it is wanted. It is bounded by the program: every message in it belongs to an action of
// the open step, or of the one the coordinator opens next.
type inbox struct {
	boxes   []box
	ports   map[portKey]actors.Payload
	batches map[plan.Action]actors.Payload
}

func newInbox() inbox {
	return inbox{nil, map[portKey]actors.Payload{}, map[plan.Action]actors.Payload{}}
}

func (b *inbox) put(m actors.Message) {
	switch m.Kind {
	case actors.Batch:
		b.batches[batchKey(m.Action)] = m.Payload
	case actors.Part:
		k := partKey{m.Action, m.Segment, m.Comm}
		x := b.box(k)
		if x == nil {
			x = b.add(k)
		}
		for len(x.parts) <= int(m.Member) {
			x.parts = append(x.parts, nil)
		}
		if x.parts[m.Member] != nil {
			panic(fmt.Sprintf("core: member %d sent its part of %v segment %d twice", m.Member, m.Action, m.Segment))
		}
		x.parts[m.Member] = m.Payload
		x.n++
	default:
		k := portKey{m.Action, m.Port}
		if b.ports[k] != nil {
			panic(fmt.Sprintf("core: %v came twice on port %d", m.Action, m.Port))
		}
		b.ports[k] = m.Payload
	}
}

// box is the open box of a collective, nil if there is none.
func (b *inbox) box(k partKey) *box {
	for i := range b.boxes {
		if b.boxes[i].key == k {
			return &b.boxes[i]
		}
	}
	return nil
}

// add opens a box.
func (b *inbox) add(k partKey) *box {
	n := len(b.boxes)
	if n < cap(b.boxes) {
		b.boxes = b.boxes[:n+1]
	} else {
		b.boxes = append(b.boxes, box{})
	}
	x := &b.boxes[n]
	x.key, x.n, x.parts = k, 0, x.parts[:0]
	return x
}

// absent is the first member of n whose part has not come, or -1.
func (b *inbox) absent(k partKey, n int) int {
	x := b.box(k)
	if x == nil {
		return 0
	}
	if x.n == n {
		return -1
	}
	for i, p := range x.parts {
		if p == nil {
			return i
		}
	}
	return len(x.parts)
}

// parts takes a collective's parts and closes its box; the list is the caller's until the next message.
func (b *inbox) parts(k partKey) []actors.Payload {
	x, last := b.box(k), len(b.boxes)-1
	p := x.parts
	*x, b.boxes[last] = b.boxes[last], box{parts: p}
	b.boxes = b.boxes[:last]
	return p
}

func (b *inbox) hasPort(k portKey) bool { return b.ports[k] != nil }

func (b *inbox) port(k portKey) actors.Payload {
	p := b.ports[k]
	delete(b.ports, k)
	return p
}

// batchKey: the data of a microbatch serves every stage of the rank.
func batchKey(a plan.Action) plan.Action {
	return plan.Action{Kind: plan.F, Micro: a.Micro, Chunk: a.Chunk}
}

func (b *inbox) hasBatch(a plan.Action) bool { return b.batches[batchKey(a)] != nil }

// batch returns one reference to the data of a's microbatch and keeps another for the rank's further stages.
func (b *inbox) batch(a plan.Action) actors.Payload {
	p := b.batches[batchKey(a)]
	p.Retain()
	return p
}

// endStep releases the step's data.
func (b *inbox) endStep() {
	for k, p := range b.batches { //lfvet:order releasing has no order
		p.Release()
		delete(b.batches, k)
	}
}

// release gives back everything.
func (b *inbox) release() {
	b.endStep()
	for _, x := range b.boxes {
		for _, p := range x.parts {
			if p != nil {
				p.Release()
			}
		}
	}
	for _, p := range b.ports { //lfvet:order releasing has no order
		p.Release()
	}
	*b = newInbox()
}
