package core

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// What always holds here (doc.go says how the lines read):
//
//   I-1: A job gets the parts of a collective in the order of the members, whichever came first. Shown by
//     02_commit_replicas, watched by Monitor.origins, broken by "parts in another order".
//   I-2: A job gets what was made for its action, in its step and its epoch. Shown by 16_late_load, watched
//     by Monitor.origins, broken by "a port's value of any action".
//   I-3: Every payload that is taken over is passed on or released, when an epoch or the run ends too. Shown
//     by 10_lost_rank_disk, watched by Monitor.End, broken by "data of the epoch before is kept".

// partKey names a collective: the communication of a segment of an action. A program runs an action once a
// step, so the key is unique while it is in use.
type partKey struct {
	a         plan.Action
	seg, comm int32
}

// portKey names a port's value: the consumer's F, or the producer's B.
// In the words of the field: backpressure, flow control.
type portKey struct {
	a    plan.Action
	port int32
}

// at is a with another verb.
func withKind(a plan.Action, k plan.Kind) plan.Action { a.Kind = k; return a }

// box collects the parts of one collective.
type box struct {
	key   partKey
	n     int32
	parts []actors.Payload
}

// held is a port's value that has come.
type held struct {
	key portKey
	p   actors.Payload
}

// inbox keeps what has come before it is wanted. It is bounded by the program: every message in it belongs to an action
// of the open step, or of the one the coordinator opens next. A rank has few boxes and few ports' values at a time,
// so both are looked up by walking a list; a place that is empty again serves the next.
type inbox struct {
	boxes   []box
	ports   []held
	batches []actors.Payload // by microbatch·chunks + chunk
	classes []int32          // of their shapes; nil while all are 0
	chunks  int              // most chunks of a microbatch
}

// begin prepares for the data of a step.
func (b *inbox) begin(p *plan.Program) {
	b.chunks = 1
	for m := range p.Chunks {
		b.chunks = max(b.chunks, p.Chunks[m])
	}
	if n := p.Micro * b.chunks; len(b.batches) != n {
		b.batches, b.classes = make([]actors.Payload, n), nil
	}
}

func (b *inbox) put(m *actors.Message) {
	switch m.Kind {
	case actors.Batch:
		i := b.place(m.Action)
		if i >= len(b.batches) || b.batches[i] != nil {
			panic(fmt.Sprintf("core: data of microbatch %d chunk %d came twice or beyond the step",
				m.Action.Micro, m.Action.Chunk))
		}
		b.batches[i] = m.Payload
		if m.Port != 0 && b.classes == nil {
			b.classes = make([]int32, len(b.batches))
		}
		if b.classes != nil {
			b.classes[i] = m.Port
		}
	case actors.Part:
		b.part(m)
	default:
		k := portKey{m.Action, m.Port}
		if b.hasPort(k) {
			panic(fmt.Sprintf("core: %v came twice on port %d", m.Action, m.Port))
		}
		b.ports = append(b.ports, held{k, m.Payload})
	}
}

// part takes in a member's part of a collective.
func (b *inbox) part(m *actors.Message) {
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
}

// box is the open box of a collective, nil if there is none.
func (b *inbox) box(k partKey) *box {
	for i := range b.boxes {
		if x := &b.boxes[i]; x.key.seg == k.seg && x.key == k {
			return x
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
	if int(x.n) == n {
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
	if y := &b.boxes[last]; x != y {
		*x, *y = *y, *x
	}
	b.boxes = b.boxes[:last]
	return p
}

func (b *inbox) hasPort(k portKey) bool {
	for i := range b.ports {
		if b.ports[i].key == k {
			return true
		}
	}
	return false
}

// port takes a port's value, nil if it has not come.
func (b *inbox) port(k portKey) actors.Payload {
	for i := range b.ports {
		if b.ports[i].key == k {
			p, last := b.ports[i].p, len(b.ports)-1
			b.ports[i] = b.ports[last]
			b.ports[last].p = nil
			b.ports = b.ports[:last]
			return p
		}
	}
	return nil
}

// place is that of an action's data in batches: the data of a microbatch serves every stage of the rank.
func (b *inbox) place(a plan.Action) int { return int(a.Micro)*b.chunks + int(a.Chunk) }

func (b *inbox) hasBatch(a plan.Action) bool { return b.batches[b.place(a)] != nil }

// class is that of the shape of a's microbatch.
func (b *inbox) class(a plan.Action) int32 {
	if b.classes == nil {
		return 0
	}
	return b.classes[b.place(a)]
}

// batch returns one reference to the data of a's microbatch and keeps another for the rank's further stages.
func (b *inbox) batch(a plan.Action) actors.Payload {
	p := b.batches[b.place(a)]
	p.Retain()
	return p
}

// endStep releases the step's data.
func (b *inbox) endStep() {
	for i, p := range b.batches {
		if p != nil {
			p.Release()
			b.batches[i] = nil
		}
	}
}

// release gives back everything.
func (b *inbox) release() {
	b.endStep()
	for _, x := range b.boxes {
		for i, p := range x.parts {
			if p != nil {
				p.Release()
				x.parts[i] = nil
			}
		}
	}
	for i := range b.ports {
		b.ports[i].p.Release()
		b.ports[i].p = nil
	}
	b.boxes, b.ports = b.boxes[:0], b.ports[:0]
}
