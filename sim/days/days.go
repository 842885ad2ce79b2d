// Package days runs weeks of training on many devices in virtual time: devices are lost, hosts are repaired,
// checkpoints are saved, steps are taken again.
//
// Steps between two events are all alike and take no time to simulate, so that 54 days of 16,384 devices take
// milliseconds. What a step and a save take comes from elsewhere: a rehearsal of the run, or the run itself. Losses are
// independent of each other, at one rate a device, and hit restarts as well. [Run] is a pure function of a [World].
package days

import (
	"math"
	"math/rand/v2"
)

// World is what happens, and what is done about it. All times are seconds.
type World struct {
	Time     float64 // that is simulated
	Devices  int
	Step     float64
	MTBF     float64   // of a device; 0: none is lost
	Losses   []float64 // instead: when one is lost
	Planned  float64   // from one planned interruption to the next, which saves first; 0: there is none
	Interval float64   // from the beginning of a save to the next one's, which waits until the first is on disk
	Save     float64   // for which a save keeps devices from training
	Durable  float64   // from the beginning of a save until it is on disk
	Restart  float64   // from a loss to the first step behind it, without a wait for a host
	Spares   int       // hosts that wait; below 0 there are enough
	Away     float64   // share of losses that take a host away
	Repair   float64   // until it is back
	Seed     uint64
}

// Result is how the time was spent. Shares are of all of it, and add up to 1.
type Result struct {
	Steps      int64   `json:"steps"`       // that count
	Unexpected int     `json:"unexpected"`  // interruptions
	Planned    int     `json:"planned"`     //
	Goodput    float64 `json:"goodput"`     // steps that count
	Again      float64 `json:"taken_again"` // steps that were lost, and were taken again
	Saves      float64 `json:"saves"`       // devices waited for copies of their state
	Restarts   float64 `json:"restarts"`
	Waiting    float64 `json:"waiting"` // no spare host was left
	HostsAway  int     `json:"hosts_away"`
}

// Effective is the share of time in which steps ran, also those that were taken again.
func (r *Result) Effective() float64 { return r.Goodput + r.Again }

// underWay is a run under way.
type underWay struct {
	World
	Result
	rand  *rand.Rand
	now   float64
	loss  float64   // when the next device is lost
	plan  float64   // when the next planned interruption is
	away  []float64 // when hosts come back, ascending
	every int64     // steps between saves
}

// Run simulates a world.
func Run(w World) Result {
	l := &underWay{World: w, rand: rand.New(rand.NewPCG(w.Seed, 0)), plan: math.Inf(1),
		every: max(1, int64(math.Round((max(w.Interval, w.Durable)-w.Save)/w.Step)))}
	if w.Planned > 0 {
		l.plan = w.Planned
	}
	for l.next(); l.now < w.Time; {
		l.stretch()
	}
	for _, x := range []*float64{&l.Goodput, &l.Again, &l.Saves, &l.Restarts, &l.Waiting} {
		*x /= w.Time
	}
	return l.Result
}

// next draws when the next device is lost.
func (l *underWay) next() {
	switch {
	case len(l.Losses) > 0:
		l.loss, l.Losses = l.Losses[0], l.Losses[1:]
	case l.MTBF > 0:
		l.loss = max(l.loss, l.now) + l.rand.ExpFloat64()*l.MTBF/float64(l.Devices)
	default:
		l.loss = math.Inf(1)
	}
}

// stretch trains until something happens, and gets over it.
func (l *underWay) stretch() {
	cycle := float64(l.every)*l.Step + l.Save
	until := min(l.loss, l.plan, l.Time)
	span := max(0, until-l.now)
	cycles := math.Floor(span / cycle)
	taken := int64(cycles)*l.every + min(l.every, int64((span-cycles*cycle)/l.Step))
	saves := cycles * l.Save
	kept := taken
	if l.loss <= min(l.plan, l.Time) { // all behind the newest save that is durable is lost
		kept = l.every * int64(max(0, math.Floor((span-max(l.Durable-l.Save, 0))/cycle)))
	}
	l.Steps += kept
	l.Goodput += float64(kept) * l.Step
	l.Saves += saves
	l.Again += span - saves - float64(kept)*l.Step
	l.now = max(l.now, until) // what was due in a restart comes behind it
	switch {
	case until >= l.Time:
	case until == l.plan:
		l.Result.Planned++
		l.plan += l.World.Planned
		l.spend(&l.Saves, l.Save)
		l.spend(&l.Restarts, l.Restart)
	default:
		l.Unexpected++
		l.next()
		l.host()
		for l.now < l.Time && l.loss < l.now+l.Restart { // it begins anew
			l.spend(&l.Restarts, l.loss-l.now)
			l.Unexpected++
			l.next()
			l.host()
		}
		l.spend(&l.Restarts, l.Restart)
	}
}

// host waits for one in place of a lost one, if that is away.
func (l *underWay) host() {
	if l.rand.Float64() >= l.Away {
		return
	}
	for len(l.away) > 0 && l.away[0] <= l.now {
		l.away = l.away[1:]
	}
	l.away = append(l.away, l.now+l.Repair) // all take the same time: it stays sorted
	l.HostsAway = max(l.HostsAway, len(l.away))
	if l.Spares >= 0 && len(l.away) > l.Spares {
		l.spend(&l.Waiting, l.away[len(l.away)-1-l.Spares]-l.now)
	}
}

// spend lets time pass, up to the end.
func (l *underWay) spend(on *float64, t float64) {
	t = min(max(0, t), max(0, l.Time-l.now))
	*on += t
	l.now += t
}

// Young and Daly are intervals between the beginnings of saves that lose the least time, by the first-order and the
// higher-order estimate of Daly (A higher order estimate of the optimum checkpoint interval for restart dumps, 2006).
func Young(save, mtbf float64) float64 { return math.Sqrt(2*save*mtbf) + save }

// Daly is the estimate of higher order.
func Daly(save, mtbf float64) float64 {
	if save >= 2*mtbf {
		return mtbf + save
	}
	x := save / (2 * mtbf)
	return math.Sqrt(2*save*mtbf) * (1 + math.Sqrt(x)/3 + x/9)
}

// Mean is what worlds of so many seeds give on average, from a world's own on, with the least and the greatest goodput.
func Mean(w World, seeds int) (mean Result, least, most float64) {
	least = 1
	var all [3]int
	for range seeds {
		r := Run(w)
		w.Seed++
		least, most = min(least, r.Goodput), max(most, r.Goodput)
		n := float64(seeds)
		mean.Goodput += r.Goodput / n
		mean.Again += r.Again / n
		mean.Saves += r.Saves / n
		mean.Restarts += r.Restarts / n
		mean.Waiting += r.Waiting / n
		mean.Steps += r.Steps
		for i, x := range []int{r.Unexpected, r.Planned, r.HostsAway} {
			all[i] += x
		}
	}
	mean.Steps /= int64(seeds)
	mean.Unexpected, mean.Planned, mean.HostsAway = all[0]/seeds, all[1]/seeds, all[2]/seeds
	return mean, least, most
}

// Best is the interval between saves with the greatest mean goodput over some seeds, and that goodput. Each that is
// tried is a twelfth longer than the one before.
func Best(w World, seeds int) (interval, goodput float64) {
	for x := max(w.Step+w.Save, w.Durable); x < w.Time; x *= 13.0 / 12 {
		w.Interval = x
		if m, _, _ := Mean(w, seeds); m.Goodput > goodput {
			interval, goodput = x, m.Goodput
		}
	}
	return interval, goodput
}

// Needed is how many spare hosts bring the mean goodput to within a thousandth of what enough of them give.
func Needed(w World, seeds int) int {
	w.Spares = -1
	enough, _, _ := Mean(w, seeds)
	for w.Spares = 0; w.Spares < enough.HostsAway*4; w.Spares++ {
		if m, _, _ := Mean(w, seeds); m.Goodput >= enough.Goodput-1e-3 {
			break
		}
	}
	return w.Spares
}
