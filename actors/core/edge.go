package core

import "github.com/lfactor/lfactor/actors"

// edge is the sender's side of a stream of messages to one neighbour: at most credits are on the way; the rest waits here,
// bounded by the step's program.
type edge struct {
	to      actors.Ref
	credits int
	queue   []actors.Message
}

// edge returns the state of port*2+direction.
func (r *Rank) edge(id int32) *edge {
	e := r.edges[id]
	if e == nil {
		e = &edge{credits: r.l.Credits}
		r.edges[id] = e
	}
	return e
}

func (e *edge) send(ctx actors.Context, m actors.Message) {
	e.queue = append(e.queue, m)
	e.flush(ctx)
}

func (e *edge) grant(ctx actors.Context, n int) {
	e.credits += n
	e.flush(ctx)
}

func (e *edge) flush(ctx actors.Context) {
	for e.credits > 0 && len(e.queue) > 0 {
		e.credits--
		ctx.Send(e.to, e.queue[0])
		e.queue = e.queue[1:]
	}
}
