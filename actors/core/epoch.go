package core

import (
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// What always holds here (doc.go says how the lines read):
//
//   E-1: A message of an older epoch changes nothing. Shown by 16_late_load, watched by Monitor.origins,
//     broken by "messages of the epoch before count".
//   E-2: A rank goes to another state only when no job computes with the one that it has, or copies it.
//     Shown by 10_lost_rank_disk, watched by Monitor.book, broken by "restore does not wait for a running
//     job".
//   E-3: An update that is decided is applied once by every rank that goes on from its step. Shown by
//     12_lost_rank_member, watched by Monitor.audit, broken by "a decided update is not applied".

// A rank that ends and comes back begins a new epoch of membership: all ranks go to one state, and messages,
// credits and jobs of the epoch before mean nothing any more.

// wanted is the state that a rank goes to.
type wanted struct {
	step    int64
	source  int32
	given   bool           // it comes in a message
	verdict []float64      // of that step, for a rank that has not applied it yet
	place   string         // of the data after that step, for the loader
	state   actors.Payload // what was given
	asked   bool           // the device is at work on it
	early   actors.Message // what was given before the rank has heard of the epoch
}

// rewind leaves the epoch: whatever came or waits to be sent is given back, and the rank goes to the state
// of a step as soon as the device is free.
func (r *Rank) rewind(ctx actors.Context, m *actors.Message) {
	if m.Port != r.life { // it is for the one that this rank was before it ended
		return
	}
	r.leave(m.Epoch)
	switch {
	case m.Segment != FromMember || m.Member == 1: // what it holds is going to be replaced
		r.last = remembered{holds: none, pending: none}
	case r.last.pending == m.Step:
		r.update = owed
	}
	early := r.target.early
	r.target = wanted{step: m.Step, source: m.Segment, given: m.Member == 1 && m.Segment != FromDisk,
		verdict: m.Values, place: m.Text}
	r.dropCopies(func(c *copied) bool { return c.step > m.Step })
	r.restore(ctx)
	if early.Payload != nil {
		r.given(ctx, &early)
	}
}

// remembered is what a rank can tell another coordinator.
type remembered struct {
	holds   int64     // the step whose update its parameters hold, none if they are not whole
	pending int64     // the step for which it was ready and whose update it has not made, or none
	verdict []float64 // of the newest step of which it has heard one
	half    bool      // it waits for what others have made of the update
}

// none is no step.
const none = -1

// leave ends an epoch for the rank: the step under way is void, unless it is decided.
func (r *Rank) leave(epoch uint32) {
	if r.phase == working && r.step > 0 {
		if r.update != applied {
			r.last.pending = r.step
		}
		r.last.half = r.update == applied
		if r.verdict != nil {
			r.last.verdict = r.verdict
		}
	}
	r.clear()
	r.epoch, r.phase = epoch, behind
	r.hungry, r.under = false, 0
	r.settled = r.jobs
}

// made takes in that the update of a step is made.
func (r *Rank) made(step int64, verdict []float64) {
	if r.update == owed {
		r.update = undecided
	}
	r.last.holds, r.last.pending, r.last.verdict = step, none, verdict
}

// restore goes to the state that is wanted, once no job of the epoch before computes with the rank's state
// or copies it. An update that is decided and not applied yet is applied before.
func (r *Rank) restore(ctx actors.Context) {
	t := &r.target
	switch {
	case r.running != 0 || r.copying() || t.asked || t.given && t.state == nil:
		return
	case r.update == owed && t.source == FromMember:
		n := int32(slices.IndexFunc(r.l.Update, func(s Segment) bool { return s.Ready })) + 1
		r.do(ctx, &actors.Job{Kind: actors.UpdatePhase, Engine: actors.Compute, Step: t.step,
			Action: stepAction, Segment: n, Values: t.verdict})
		r.applying, r.last.verdict = r.running, t.verdict
		return
	}
	r.update = undecided
	j := actors.Job{Kind: actors.RestoreJob, Engine: actors.IO, Step: t.step, Segment: t.source}
	switch {
	case t.given:
		j.In = []actors.Input{{Comm: -1, Port: -1, Payload: t.state}}
		t.state = nil
	case t.source == FromCopy:
		p, _ := r.copyOf(ctx.Self(), t.step)
		j.In = []actors.Input{{Comm: -1, Port: -1, Payload: p}}
	}
	t.asked = true
	r.do(ctx, &j)
}

// caughtUp takes in that the update is done that was decided in an epoch before.
func (r *Rank) caughtUp(ctx actors.Context, m *actors.Message) {
	drop(m)
	r.running = 0
	r.made(r.target.step, r.target.verdict)
	r.restore(ctx)
}

// given takes the state of the wanted step from another rank. A copy is kept as the rank's own.
func (r *Rank) given(ctx actors.Context, m *actors.Message) {
	t := &r.target
	switch {
	case m.Epoch > r.epoch:
		drop(&t.early)
		t.early = *m
		return
	case m.Epoch < r.epoch || r.phase != behind || !t.given || t.asked || t.state != nil || t.step != m.Step:
		drop(m)
		return
	}
	if r.target.source == FromCopy {
		m.Payload.Retain()
		r.copies = append(r.copies, copied{ctx.Self(), m.Step, m.Payload, m.Values})
	}
	r.target.state = m.Payload
	r.restore(ctx)
}

// discardStale takes in the end of a job that was started before the rank went back: nobody wants its results.
func (r *Rank) discardStale(ctx actors.Context, m *actors.Message) {
	drop(m)
	if m.Job == r.running {
		r.running = 0
	}
	if m.Job == r.applying && r.last.pending == m.Step {
		r.made(m.Step, r.last.verdict)
	}
	r.io = slices.DeleteFunc(r.io, func(j ioJob) bool { return j.id == m.Job })
	if r.phase == behind {
		r.restore(ctx)
	}
}

// Release gives back everything that the rank holds.
func (r *Rank) Release() {
	r.clear()
	drop(&r.target.early)
	r.target.early = actors.Message{}
	r.dropCopies(func(*copied) bool { return true })
}

// clear gives back what belongs to the step under way.
func (r *Rank) clear() {
	r.inbox.release()
	for i := range r.edges {
		e := &r.edges[i]
		for k := range e.queue[e.first:] {
			drop(&e.queue[int(e.first)+k])
		}
		*e = edge{}
	}
	r.edges = r.edges[:0]
	if r.target.state != nil {
		r.target.state.Release()
		r.target.state = nil
	}
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
