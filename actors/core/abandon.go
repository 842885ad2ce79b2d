package core

import "github.com/lfactor/lfactor/actors"

// HaltNow is the Text of a Halt to the coordinator that does not wait for the step under way.
const HaltNow = "now"

// abandon ends the run without the step or the evaluation under way, which may never end: data that does not
// come, a credit that is lost. No rank has changed its state for a step that is not committed, so that what
// the ranks hold is the step before; it is saved. A committed step is waited for.
func (c *Coordinator) abandon(ctx actors.Context) {
	switch c.phase {
	case stepping:
		c.step--
	case between, evaluating:
	default:
		return
	}
	c.asked, c.eval, c.left = abandons, 0, 0
	c.end(ctx)
}
