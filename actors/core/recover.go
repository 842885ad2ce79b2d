package core

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
)

// kept is what the coordinator goes back to.
type kept struct {
	step    int64
	updates int64
	scale   LossScale
}

// lose begins a new epoch when a rank has ended that will come back: the step under way is void, and so is a save that is not
// complete. A rank that ends again and again without a step in between ends the run.
func (c *Coordinator) lose(ctx actors.Context, m *actors.Message) {
	if c.deaths[m.From]++; c.deaths[m.From] > c.l.Restarts && c.l.Restarts > 0 {
		c.fail(ctx, &actors.Message{Kind: actors.Failed, Err: fmt.Errorf("rank %d has ended %d times at step %d and is not started again (train.restarts=%d); the last time: %s",
			c.place[m.From], c.deaths[m.From], c.step, c.l.Restarts, m.Text)})
		return
	}
	if !c.lost {
		c.lost, c.since = true, ctx.Now()
	}
	c.epoch++
	c.gone[m.From] = true
	c.left, c.unready, c.queued, c.eval, c.rewinding = 0, 0, 0, 0, 0
	c.verdict = nil
	if c.writing && c.durable > 0 {
		c.writing, c.job = false, 0
	}
}

// joined takes a rank back.
func (c *Coordinator) joined(ctx actors.Context, m *actors.Message) {
	if c.gone[m.From] {
		delete(c.gone, m.From)
		c.goBack(ctx)
	}
}

// goBack sends everyone to the newest saved state, when no rank is missing and it is settled which state that is: a checkpoint whose
// parts are written is still committed, for what it replaces may be removed.
func (c *Coordinator) goBack(ctx actors.Context) {
	if len(c.gone) > 0 || c.writing || c.rewinding > 0 {
		return
	}
	c.rewinding, c.back = len(c.l.Ranks), make([]bool, len(c.l.Ranks))
	place := ""
	if c.l.Place != nil {
		place = c.l.Place(c.kept.step)
	}
	for _, r := range c.l.Ranks {
		ctx.Send(r, actors.Message{Kind: actors.Rewind, Epoch: c.epoch, Step: c.kept.step, Text: place})
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
	ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicBack, Step: c.kept.step, Values: []float64{float64(ctx.Now() - c.since)}})
	c.ended, c.step, c.updates, c.l.LossScale = false, c.kept.step, c.kept.updates, c.kept.scale
	c.waitSave, c.lost = false, false
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
