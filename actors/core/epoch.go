package core

import (
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// A rank that ends and comes back begins a new epoch of membership: all ranks go back to the state that was saved last, and
// messages, credits and jobs of the epoch before mean nothing any more.

// rewind leaves the epoch: whatever came or waits to be sent is given back, and the saved state of a step is read again as soon as
// the device is free.
func (r *Rank) rewind(ctx actors.Context, m *actors.Message) {
	r.Release()
	r.epoch, r.target, r.behind, r.place = m.Epoch, m.Step, true, m.Text
	r.open, r.hungry, r.under = false, false, 0
	r.settled, r.restoring = r.jobs, false
	r.restore(ctx)
}

// restore reads the saved state once no job of the epoch before computes with the rank's state or copies it.
func (r *Rank) restore(ctx actors.Context) {
	copies := slices.ContainsFunc(r.io, func(j ioJob) bool { return j.kind == actors.SnapshotJob })
	if r.running == 0 && !copies && !r.restoring {
		r.restoring = true
		r.do(ctx, actors.Job{Kind: actors.RestoreJob, Engine: actors.IO, Step: r.target})
	}
}

// late takes in the end of a job that was started before the rank went back: nobody wants its results.
func (r *Rank) late(ctx actors.Context, m *actors.Message) {
	drop(m)
	if m.Job == r.running {
		r.running = 0
	}
	r.io = slices.DeleteFunc(r.io, func(j ioJob) bool { return j.id == m.Job })
	if r.behind {
		r.restore(ctx)
	}
}

// Release gives back everything that the rank holds.
func (r *Rank) Release() {
	r.inbox.release()
	for i := range r.edges {
		e := &r.edges[i]
		for k := range e.queue[e.first:] {
			drop(&e.queue[int(e.first)+k])
		}
		*e = edge{}
	}
	r.edges = r.edges[:0]
}

// rewind begins a new epoch of a loader: steps that were read or asked for are forgotten.
func (l *Loader) rewind(epoch uint32, place string) {
	l.release()
	clear(l.ready)
	clear(l.want)
	clear(l.served)
	l.epoch, l.settled, l.busy, l.next, l.eval = epoch, l.jobs, 0, 0, 0
	l.place = place
}
