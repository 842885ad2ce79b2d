package links

import (
	"sync"
	"time"
)

// Offset says how the clock of another process stands to that of this one. Clocks are the times since a
// process began its part of the run.
type Offset struct {
	Ahead  time.Duration // what to add to this process's time for the other's
	Within time.Duration // the most that this can be off by: half of the round trip that it was measured in
}

// clockWindow is how long a measurement counts: clocks of two hosts drift apart, by less than 100 µs a second.
const clockWindow = 10 * time.Second

// offsets estimates an Offset from round trips, as NTP does: of those of the last moments, the shortest says
// most, because the time that a message waited on its way is in the others.
type offsets struct {
	mu      sync.Mutex
	best    Offset // of the window that is over
	now     Offset // of the one under way
	since   time.Duration
	any     bool
	current bool // now holds something
	// the most that an estimate could be off by of those in which this process's times were told
	worst time.Duration
}

// told notes an estimate in which times were told, which later ones do not make more certain.
func (o *offsets) told(x Offset) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.worst = max(o.worst, x.Within)
}

// stated is what to say of the clocks: the best estimate, and how far off what was told may be.
func (o *offsets) stated() Offset {
	x, _ := o.estimate()
	o.mu.Lock()
	defer o.mu.Unlock()
	x.Within = max(x.Within, o.worst)
	return x
}

// add takes in a round trip: sent and back by this process's clock, there by the other's in between.
func (o *offsets) add(sent, there, back time.Duration) {
	if back < sent {
		return // no clock runs backwards: the answer is to another question
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current && back-o.since > clockWindow {
		o.best, o.current = o.now, false
	}
	x := Offset{Ahead: there - sent - (back-sent)/2, Within: (back-sent+1)/2 + time.Nanosecond}
	if !o.current {
		o.now, o.since, o.current = x, back, true
		if !o.any {
			o.best, o.any = x, true
		}
		return
	}
	if x.Within < o.now.Within {
		o.now = x
	}
}

// estimate is the best that is known; false before the first answer.
func (o *offsets) estimate() (Offset, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current && o.now.Within < o.best.Within {
		return o.now, true
	}
	return o.best, o.any
}
