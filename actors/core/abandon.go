package core

import "github.com/lfactor/lfactor/actors"

// HaltNow is the Text of a Halt to the coordinator that does not wait for the step under way.
const HaltNow = "now"

// abandon ends the run without the step or the evaluation under way, which may never end: data that does not
// come, a credit that is lost. No rank has changed its state for a step that is not committed, so that what
// the ranks hold is the step before; it is saved. A committed step is waited for.
func (c *Coordinator) abandon(ctx actors.Context) {
	if c.ended || c.lost || c.left > 0 && c.eval == 0 && c.verdict != nil {
		return
	}
	if c.left > 0 && c.eval == 0 {
		c.step--
	}
	c.abandoned, c.eval, c.left = true, 0, 0
	c.end(ctx)
}

// stale reports whether a message belongs to what was abandoned.
func (c *Coordinator) stale(m *actors.Message) bool {
	if !c.abandoned {
		return false
	}
	_, rank := c.place[m.From]
	return m.Kind == actors.Ready || m.Kind == actors.Closed || m.Kind == actors.Failed && !rank
}
