package core

import "github.com/lfactor/lfactor/actors"

// What always holds here (doc.go says how the lines read):
//
//   K-1: An edge carries at most as many messages as it has credits. Shown by 07_credits, watched by
//     Monitor.seeEdge, broken by "no credit is waited for".
//   K-2: Every message that is taken gives one credit back. Shown by 07_credits, watched by Monitor.End,
//     broken by "no credit is given back".

// edge is the sender's side of a stream of messages to one neighbour: at most credits are on the way; the
// rest waits here, bounded by the step's program.
type edge struct {
	id      int32 // port·2 + direction
	to      actors.Ref
	credits int32
	first   int32 // of queue that has not been sent
	queue   []actors.Message
}

// edge returns the state of port·2+direction towards one neighbour. A rank has as many as its stages have
// neighbours: few, so they are looked up by walking the list.
func (r *Rank) edge(id int32, to actors.Ref) *edge {
	for i := range r.edges {
		if r.edges[i].id == id && r.edges[i].to == to {
			return &r.edges[i]
		}
	}
	r.edges = append(r.edges, edge{id: id, to: to, credits: int32(r.l.Credits)})
	return &r.edges[len(r.edges)-1]
}

// send sends m at once where the receiver has room, which a credit stands for, and else queues it.
// A message never overtakes one that waits, so that the order on an edge is the order of sending.
func (e *edge) send(ctx actors.Context, m *actors.Message) {
	if e.credits > 0 && e.waiting() == 0 {
		e.credits--
		ctx.Send(e.to, *m)
		return
	}
	e.queue = append(e.queue, *m)
}

func (e *edge) waiting() int { return len(e.queue) - int(e.first) }

// grant takes n credits back and sends what waited for them.
func (e *edge) grant(ctx actors.Context, n int) {
	e.credits += int32(n)
	for e.credits > 0 && e.waiting() > 0 {
		e.credits--
		ctx.Send(e.to, e.queue[e.first])
		e.queue[e.first] = actors.Message{}
		e.first++
	}
	if e.waiting() == 0 {
		e.queue, e.first = e.queue[:0], 0
	}
}
