package core

import (
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// TopicSlow names a rank that has become slow, or is from the beginning. Step is the newest, Values are as
// listed.
const TopicSlow = "slow"

// Layout of the values of a TopicSlow report.
const (
	SlowRank  = iota
	SlowCause // SlowCompute or SlowData
	SlowNow   // nanoseconds a step that it takes
	SlowUsual // nanoseconds that it took before, or that the ranks take that do the same work
	SlowTwin  // 1 where SlowUsual is that of other ranks
	SlowLen
)

// Causes of slowness.
const (
	SlowCompute = iota // its jobs take longer
	SlowData           // it waits for its loader
)

const (
	slowSteps  = 8  // in a row make a rank slow, and as many others make it an ordinary one again
	slowTimes  = 2  // as long as usual is slow
	slowKeeps  = 32 // steps decide what is usual
	slowLearns = 8  // of them are enough to judge by
	slowTwins  = 8  // ranks that do the same work are looked at, not all of thousands
	slowShare  = .5 // of a step spent waiting for data is slow, where others wait half as long at most
)

// pace is what is known of how fast ranks are. A rank is held to its own past, less what all ranks have
// slowed down by, and to those that do the same work; a rank on a machine with other work is not named for
// a step or two.
type pace struct {
	past  [][]float64 // busy time of ordinary steps, by rank
	odd   [][2]int    // steps in a row that were slow, by rank and cause; below 0, ordinary ones since
	named [][2]bool
}

// see takes in a step's values and reports ranks that have become slow.
func (p *pace) see(ctx actors.Context, c *Coordinator, took float64) {
	n := len(c.closed)
	if p.past == nil {
		p.past, p.odd, p.named = make([][]float64, n), make([][2]int, n), make([][2]bool, n)
	}
	usual, times := make([]float64, n), make([]float64, 0, n)
	for i, v := range c.closed {
		if len(p.past[i]) >= slowLearns {
			usual[i] = median(p.past[i])
			times = append(times, v[ClosedBusy]/usual[i])
		}
	}
	all := max(1, median(times))
	for i, v := range c.closed {
		busy, twins := v[ClosedBusy], p.twins(c, i)
		late := usual[i] > 0 && n > 1 && busy > slowTimes*all*usual[i]
		twin := twins > 0 && busy > slowTimes*twins
		if twin && !late {
			usual[i] = twins
		}
		if !late && !twin {
			p.past[i] = append(p.past[i], busy)
			p.past[i] = p.past[i][max(0, len(p.past[i])-slowKeeps):]
		}
		r := []float64{float64(i), SlowCompute, busy, usual[i], 0}
		if twin && !late {
			r[SlowTwin] = 1
		}
		p.count(ctx, c, r, late || twin)
		others := 0.0
		waits := n > 1 && v[ClosedWait] > slowShare*took
		if waits {
			others = p.othersWait(c, i)
		}
		p.count(ctx, c, []float64{float64(i), SlowData, v[ClosedWait], others, 1},
			waits && others < v[ClosedWait]/2)
	}
}

// othersWait is the median of what all ranks but one wait for data.
func (p *pace) othersWait(c *Coordinator, i int) float64 {
	var waits []float64
	for j, v := range c.closed {
		if j != i {
			waits = append(waits, v[ClosedWait])
		}
	}
	return median(waits)
}

// twins is the median of what the ranks take that do the same work as rank i, 0 where there are none.
func (p *pace) twins(c *Coordinator, i int) float64 {
	if c.l.Same == nil {
		return 0
	}
	var busy []float64
	for _, j := range c.l.Same[i][:min(slowTwins, len(c.l.Same[i]))] {
		busy = append(busy, c.closed[j][ClosedBusy])
	}
	return median(busy)
}

// count reports a rank after enough slow steps in a row, once until it was ordinary for as long.
func (p *pace) count(ctx actors.Context, c *Coordinator, r []float64, slow bool) {
	i, cause := int(r[SlowRank]), int(r[SlowCause])
	k := &p.odd[i][cause]
	if slow {
		if *k = max(0, *k) + 1; *k == slowSteps && !p.named[i][cause] {
			p.named[i][cause] = true
			ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicSlow, Step: c.step, Values: r})
		}
		return
	}
	if *k = min(0, *k) - 1; *k == -slowSteps {
		p.named[i][cause] = false
	}
}

// median is the middle one of some values, the lower of two, 0 for none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[(len(v)-1)/2]
}
