package core

import "github.com/lfactor/lfactor/actors"

// A rank whose process is stopped for part of the time need not be late in its jobs: it may be stopped while
// it waits for others, who then wait for it. What its own clock has missed shows it, whatever it was doing.

const (
	stoodWindow = actors.Second // twice that is looked back on
	stoodShare  = .3            // of the time is too much,
	stoodSteps  = 4             // in so many steps at least
)

// stoodFor is for how long in a step rank i's process stood still longer than those of others, in nanoseconds.
func (c *Coordinator) stoodFor(i int) float64 {
	own := c.closed[i].used.Stood
	if own == 0 || len(c.closed) == 1 {
		return 0
	}
	var others []float64
	for j := range c.closed {
		if j != i {
			others = append(others, c.closed[j].used.Stood)
		}
	}
	return own - median(others)
}

// standsStill reports a rank whose process stands still for much of the time, once until it does not, and
// says whether it does. One that is known to be slow is not named for this as well.
func (p *pace) standsStill(ctx actors.Context, c *Coordinator, i int, took float64) bool {
	d, lost := &p.stood[i], min(c.stoodFor(i), took)
	share := d.add(ctx.Now(), stoodWindow, lost, took)
	d.named = d.named && share > stoodShare/2
	known := d.named || p.named[i][SlowCompute] || p.duties[i].named
	if known || lost <= 0 || share < stoodShare || d.steps[0]+d.steps[1] < stoodSteps ||
		d.took[0]+d.took[1] < float64(c.l.SlowFor) {
		return d.named
	}
	d.named = true
	x := Slowness{Rank: i, Cause: SlowStood, Now: lost, Usual: took, Had: c.closed[i].used.processors(),
		Wants: median(p.had[i]), Part: share}
	ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicSlow, Step: c.step, Values: x.Values()})
	return true
}
