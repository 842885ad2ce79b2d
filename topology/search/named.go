package search

import (
	"cmp"
	"fmt"
)

// Program is the schedule, with the stages of a rank, the chunks of a microbatch, and what travels behind other work.
func (c *Candidate) Program() (name string) {
	if name = c.Schedule; c.Loops > 1 {
		name += fmt.Sprintf("×%d", c.Loops)
	}
	if c.Chunks > 1 {
		name += fmt.Sprintf(" in %d", c.Chunks)
	}
	if c.Pairs {
		return name + " overlapped"
	} else if c.Overlap {
		name += " overlap"
	}
	return name
}

// Shared is the level of ZeRO, with the ranks that share state out where not all do.
func (c *Candidate) Shared() string {
	if c.Groups > 0 {
		return fmt.Sprintf("%d over %d", c.Zero, c.Groups)
	}
	return fmt.Sprint(c.Zero)
}

// Seconds is the step, simulated where the plan was, else by closed forms.
func (c *Candidate) Seconds() float64 { return cmp.Or(c.Simulated, c.Step) }
