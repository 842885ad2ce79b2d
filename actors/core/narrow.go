package core

import (
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// What always holds here (doc.go says how the lines read):
//
//   A run that ends because a rank is gone for good has made durable the newest state that those who are
//     left hold together. Shown by 24_gone_for_good, watched by Monitor.report, broken by "nothing is saved
//     when a rank is gone for good".

// A rank may be gone for good: a host is lost, and no other has room for its process. The run cannot go on as
// it is. What it can do is hand on what it holds: all that are left go to one state as after any loss, and
// write it. The part of the rank that is gone writes whoever would give that rank its state: another that
// holds the same, or its buddy, from the copy in memory. Then the run ends as if it had been asked to, and
// whoever starts it again, with fewer replicas, goes on from there. Where nobody has the state, it ends at once.

// narrows reports whether a rank is gone for good.
func (c *Coordinator) narrows() bool { return slices.Contains(c.away, true) }

// forsake takes in that nobody takes the place of a rank that has ended.
func (c *Coordinator) forsake(ctx actors.Context, m *actors.Message) {
	i := c.place[m.From]
	if c.phase == over || c.away[i] || m.Step < c.lives[i] {
		return
	}
	c.away[i] = true
	if c.phase == claiming {
		c.answered(ctx, i, nil)
		return
	}
	delete(c.back.gone, m.From)
	c.goBack(ctx)
}

// leaveOff ends the run: with a save of the state that all who are left hold, if that is newer than what is durable.
func (c *Coordinator) leaveOff(ctx actors.Context) {
	t := c.back.target
	c.phase, c.step, c.asked = ending, t.step, max(c.asked, stops)
	c.due = t.step > c.kept.step && (c.l.SaveEvery > 0 || c.l.SaveAtEnd)
	c.finish(ctx)
}

// save begins to write a part of a checkpoint: the rank's own, or that of one that is gone for good.
func (r *Rank) save(ctx actors.Context, m *actors.Message) {
	of := actors.Ref(m.Member)
	switch {
	case of == ctx.Self():
		r.do(ctx, &actors.Job{Kind: actors.SnapshotJob, Engine: actors.Copy, Step: m.Step, Text: m.Text})
	case m.Segment == FromCopy:
		p, _ := r.copyOf(actors.Ref(m.Port), m.Step)
		r.stand(ctx, of, m.Step, p)
	default:
		r.do(ctx, &actors.Job{Kind: actors.StateJob, Engine: actors.Copy, Step: m.Step})
		j := &r.io[len(r.io)-1]
		j.to, j.files = of, true
	}
}

// stand writes the part of another rank from a copy of that one's state, whose reference it takes over.
func (r *Rank) stand(ctx actors.Context, of actors.Ref, step int64, p actors.Payload) {
	ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Queued, Step: step, Epoch: r.epoch})
	r.write(ctx, &actors.Job{Step: step, In: []actors.Input{{Comm: -1, Member: int32(of), Port: -1, Payload: p}}}, of)
}

// write writes what was copied of the state of a rank.
func (r *Rank) write(ctx actors.Context, j *actors.Job, of actors.Ref) {
	j.Kind, j.Engine = actors.WriteJob, actors.IO
	r.do(ctx, j)
	r.io[len(r.io)-1].to = of
}
