package core

import (
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// TopicSlow names a rank that has become slow, or is from the beginning. Step is the newest, Values are a Slowness.
// In the words of the field: straggler.
const TopicSlow = "slow"

// Cause is why a rank is slow.
type Cause uint8

// Causes of slowness.
const (
	SlowCompute Cause = iota // its jobs take longer
	SlowData                 // it waits for its loader
	SlowCrowd                // its jobs take longer, because other work on its host has the processors
	// SlowStood: its process stands still for part of the time: it is stopped, frozen or over a quota
	SlowStood
)

const (
	slowSteps  = 8  // in a row make a rank slow, and as many others make it an ordinary one again
	slowTimes  = 2  // as long as usual is slow
	slowKeeps  = 32 // steps decide what is usual
	slowLearns = 8  // of them are enough to judge by
	slowTwins  = 8  // ranks that do the same work are looked at, not all of thousands
	slowShare  = .5 // of a step spent waiting for data is slow, where others wait half as long at most

	dutyWindow = 4 * actors.Second // twice that is looked back on for steps that are slow now and then
	dutyShare  = .3                // of the time lost in them is slow,
	dutySteps  = 4                 // by so many of them at least
)

// duty is what a rank has lost in single steps, in the window under way and the one before.
type duty struct {
	since      actors.Time
	lost, took [2]float64 // nanoseconds
	steps      [2]int
	named      bool
}

// add takes in a step and says which share of the time was lost, in a window that is over and the one under way.
func (d *duty) add(now actors.Time, window actors.Duration, lost, took float64) (share float64) {
	if now-d.since > actors.Time(window) {
		whole := d.since > 0
		d.since = now
		d.lost, d.took, d.steps = [2]float64{0, d.lost[0]}, [2]float64{0, d.took[0]}, [2]int{0, d.steps[0]}
		if !whole {
			d.lost, d.took, d.steps = [2]float64{}, [2]float64{}, [2]int{}
		}
	}
	d.lost[0] += lost
	d.took[0] += took
	if lost > 0 {
		d.steps[0]++
	}
	return (d.lost[0] + d.lost[1]) / (d.took[0] + d.took[1])
}

// slow is whether a share is that of one who is slow, by a window that is over and the one under way.
func (d *duty) slow(share float64) bool {
	return d.took[1] > 0 && share > dutyShare && d.steps[0]+d.steps[1] >= dutySteps
}

// pace is what is known of how fast ranks are. A rank is held to its own past, less what all ranks have
// slowed down by, and to those that do the same work. It has to be slow for some steps and for some time: a
// machine with more work than processors lets one process wait for as long as a few short steps take.
type pace struct {
	past  [][]float64 // busy time of ordinary steps, by rank
	had   [][]float64 // processors that its process had in them
	odd   [][2]int    // steps in a row that were slow, by rank and cause; below 0, ordinary ones since
	since [][2]actors.Time
	named [][3]bool
	// by rank: nanoseconds that its process has waited for processors since it is slow
	queued []float64
	duties []duty // by rank: of steps that took longer than usual,
	stood  []duty // and of time for which its process stood still
}

// see takes in a step's values and reports ranks that have become slow.
func (p *pace) see(ctx actors.Context, c *Coordinator, took float64) {
	n := len(c.closed)
	if p.past == nil {
		p.past, p.had, p.odd, p.named = make([][]float64, n), make([][]float64, n), make([][2]int, n),
			make([][3]bool, n)
		p.since, p.queued = make([][2]actors.Time, n), make([]float64, n)
		p.duties, p.stood = make([]duty, n), make([]duty, n)
	}
	usual, times := make([]float64, n), make([]float64, 0, n)
	for i := range c.closed {
		if len(p.past[i]) >= slowLearns {
			usual[i] = median(p.past[i])
			times = append(times, c.closed[i].used.Busy/usual[i])
		}
	}
	all := max(1, median(times))
	for i := range c.closed {
		x := &c.closed[i].used
		busy, twins, stands := x.Busy, p.twins(c, i), p.standsStill(ctx, c, i, took)
		late := usual[i] > 0 && n > 1 && busy > slowTimes*all*usual[i]
		twin := twins > 0 && busy > slowTimes*twins
		if twin && !late {
			usual[i] = twins
		}
		if !late && !twin {
			p.past[i], p.had[i] = recent(p.past[i], busy), recent(p.had[i], x.processors())
		}
		r := Slowness{Rank: i, Cause: SlowCompute, Now: busy, Usual: usual[i], Had: x.processors(),
			Wants: median(p.had[i])}
		if twin && !late {
			r.Twin, r.Wants = true, c.ofTwins(i, (*Usage).processors)
		}
		if p.queued[i] += x.Queued; !late && !twin {
			p.queued[i] = 0
		}
		late, twin = late && !stands, twin && !stands
		p.count(ctx, c, r, late || twin)
		p.nowAndThen(ctx, c, r, late, max(0, busy-all*usual[i]-x.Queued), took)
		others := 0.0
		waits := n > 1 && x.Wait > slowShare*took
		if waits {
			others = p.othersWait(c, i)
		}
		p.count(ctx, c, Slowness{Rank: i, Cause: SlowData, Now: x.Wait, Usual: others, Twin: true,
			Had: x.processors()}, waits && others < x.Wait/2)
	}
}

// othersWait is the median of what all ranks but one wait for data.
func (p *pace) othersWait(c *Coordinator, i int) float64 {
	var waits []float64
	for j := range c.closed {
		if j != i {
			waits = append(waits, c.closed[j].used.Wait)
		}
	}
	return median(waits)
}

// twins is the median of what the ranks take that do the same work as rank i, 0 where there are none.
func (p *pace) twins(c *Coordinator, i int) float64 {
	if c.l.Same == nil {
		return 0
	}
	return c.ofTwins(i, func(x *Usage) float64 { return x.Busy })
}

// ofTwins is the median of something over the ranks that do the same work as rank i.
func (c *Coordinator) ofTwins(i int, of func(x *Usage) float64) float64 {
	var all []float64
	for _, j := range c.l.Same[i][:min(slowTwins, len(c.l.Same[i]))] {
		all = append(all, of(&c.closed[j].used))
	}
	return median(all)
}

// recent adds a value to the last ones.
func recent(v []float64, x float64) []float64 {
	v = append(v, x)
	return v[max(0, len(v)-slowKeeps):]
}

// processors is how many of them a rank's process has had while the rank's jobs ran. A rank that computes
// for longer on as many has a slow machine, or more work; one that has fewer than before has to share them.
func (x *Usage) processors() float64 {
	if x.Busy == 0 {
		return 0
	}
	return x.CPU / x.Busy
}

// count reports a rank after enough slow steps in a row, once until it was ordinary for as long.
func (p *pace) count(ctx actors.Context, c *Coordinator, r Slowness, slow bool) {
	i, cause := r.Rank, r.Cause
	k := &p.odd[i][cause]
	if slow {
		if *k = max(0, *k) + 1; *k == 1 {
			p.since[i][cause] = c.opened
		}
		if *k < slowSteps || ctx.Now()-p.since[i][cause] < actors.Time(c.l.SlowFor) {
			return
		}
		if cause == SlowCompute && p.crowded(i, float64(*k)*(r.Now-r.Usual)) {
			cause = SlowCrowd
			r.Cause = SlowCrowd
		}
		if !p.named[i][cause] {
			p.named[i][cause] = true
			ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicSlow, Step: c.step,
				Values: r.Values()})
		}
		return
	}
	if *k = min(0, *k) - 1; *k == -slowSteps {
		p.named[i][cause] = false
		if cause == SlowCompute {
			p.named[i][SlowCrowd] = false
		}
	}
}

// nowAndThen reports a rank that is slow in some steps, with ordinary ones between, once until it is not:
// one whose process is stopped for part of the time. What it lost by waiting for processors is not its own.
func (p *pace) nowAndThen(ctx actors.Context, c *Coordinator, r Slowness, late bool, lost, took float64) {
	i := r.Rank
	if !late {
		lost = 0
	}
	d := &p.duties[i]
	if p.named[i][SlowCompute] {
		*d = duty{} // that is said already
		return
	}
	share := d.add(ctx.Now(), dutyWindow, lost, took)
	if d.named = d.named && share > dutyShare/2; !d.slow(share) || !late || d.named || p.odd[i][SlowCompute] > 1 {
		return
	}
	d.named = true
	r.Part = share
	ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicSlow, Step: c.step, Values: r.Values()})
}

// crowded reports whether a rank is slow because its process waits for processors that other work on its
// host has: about as long as the rank takes longer.
func (p *pace) crowded(i int, excess float64) bool { return p.queued[i] > excess/2 }

// median is the middle one of some values, the lower of two, 0 for none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[(len(v)-1)/2]
}
