package core

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
)

// A rank that ends and comes back begins a new epoch of membership: all ranks go back to the state that was saved last, and
// messages, credits and jobs of the epoch before mean nothing any more.

// rewind leaves the epoch: whatever came or waits to be sent is given back, and the saved state of a step is read again as soon as
// the device is free.
func (r *Rank) rewind(ctx actors.Context, m *actors.Message) {
	r.Release()
	r.epoch, r.target, r.behind = m.Epoch, m.Step, true
	r.open, r.hungry, r.under = false, false, 0
	r.io, r.settled = r.io[:0], r.jobs
	r.restore(ctx)
}

// restore reads the saved state once no job of the epoch before is under way.
func (r *Rank) restore(ctx actors.Context) {
	if r.running == 0 {
		r.do(ctx, actors.Job{Kind: actors.RestoreJob, Engine: actors.IO, Step: r.target})
	}
}

// late takes in the end of a job that was started before the rank went back: nobody wants its results.
func (r *Rank) late(ctx actors.Context, m *actors.Message) {
	drop(m)
	if m.Job == r.running {
		r.running = 0
		if r.behind {
			r.restore(ctx)
		}
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
func (l *Loader) rewind(epoch uint32) {
	l.release()
	clear(l.ready)
	clear(l.want)
	clear(l.served)
	l.epoch, l.settled, l.busy, l.next, l.eval = epoch, l.jobs, 0, 0, 0
}

// kept is what the coordinator goes back to.
type kept struct {
	step    int64
	updates int64
	scale   LossScale
}

// lose begins a new epoch when a rank has ended that will come back: the step under way and a save that is not durable are void.
func (c *Coordinator) lose(rank actors.Ref) {
	c.epoch++
	c.gone[rank] = true
	c.left, c.unready, c.queued, c.eval, c.rewinding = 0, 0, 0, 0, 0
	c.verdict = nil
	c.writing, c.waitSave, c.job = false, false, 0
}

// joined takes a rank back; when none is missing all go back to the newest saved state.
func (c *Coordinator) joined(ctx actors.Context, m *actors.Message) {
	delete(c.gone, m.From)
	if len(c.gone) > 0 {
		return
	}
	c.since, c.rewinding, c.back = ctx.Now(), len(c.l.Ranks), make([]bool, len(c.l.Ranks))
	for _, r := range c.l.Ranks {
		ctx.Send(r, actors.Message{Kind: actors.Rewind, Epoch: c.epoch, Step: c.kept.step})
	}
}

// rewound counts the ranks that are back; with the last one the run goes on from there.
func (c *Coordinator) rewound(ctx actors.Context, m *actors.Message) {
	i, ok := c.place[m.From]
	if !ok || c.rewinding == 0 {
		return
	}
	if c.back[i] {
		panic(fmt.Sprintf("core: rank %d went back twice", i))
	}
	c.back[i] = true
	if c.rewinding--; c.rewinding > 0 {
		return
	}
	c.ended, c.step, c.updates, c.l.LossScale = false, c.kept.step, c.kept.updates, c.kept.scale
	c.advance(ctx)
}

// recovering says whom the coordinator waits for after a rank was lost.
func (c *Coordinator) recovering() (w actors.Wait, yes bool) {
	for i, r := range c.l.Ranks {
		switch {
		case c.gone[r]:
			return actors.Wait{For: r, What: fmt.Sprintf("rank %d to come back", i), Since: c.since}, true
		case c.rewinding > 0 && len(c.gone) == 0 && !c.back[i]:
			return actors.Wait{For: r, What: fmt.Sprintf("rank %d to go back to step %d", i, c.kept.step), Since: c.since}, true
		}
	}
	return
}
