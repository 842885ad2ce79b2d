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

type box struct {
	parts []actors.Payload
	n     int
}

// inbox keeps what has come before it is wanted. It is bounded by the program: every message in it belongs to an action of
// the open step, or of the one the coordinator opens next.
type inbox struct {
	boxes   map[partKey]*box
	ports   map[portKey]actors.Payload
	batches map[plan.Action]actors.Payload
}

func newInbox() inbox {
	return inbox{map[partKey]*box{}, map[portKey]actors.Payload{}, map[plan.Action]actors.Payload{}}
}

func (b *inbox) put(m actors.Message) {
	switch m.Kind {
	case actors.Batch:
		b.batches[batchKey(m.Action)] = m.Payload
	case actors.Part:
		k := partKey{m.Action, m.Segment, m.Comm}
		x := b.boxes[k]
		if x == nil {
			x = &box{}
			b.boxes[k] = x
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

// absent is the first member of n whose part has not come, or -1.
func (b *inbox) absent(k partKey, n int) int {
	x := b.boxes[k]
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

func (b *inbox) parts(k partKey) []actors.Payload {
	p := b.boxes[k].parts
	delete(b.boxes, k)
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
	for _, x := range b.boxes { //lfvet:order releasing has no order
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
