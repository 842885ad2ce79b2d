package machine

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	stoodTick   = 20 * time.Millisecond  // a clock of this process ticks so often
	stoodLeast  = 50 * time.Millisecond  // a tick that is later than that has been held up
	stoodWindow = 100 * time.Millisecond // at least, after which ticks are judged
	stoodLong   = time.Second            // at most
)

var stood struct {
	once  sync.Once
	total atomic.Int64 // nanoseconds
}

// StoodStill is for how long this process has not run although it wanted to and no other work had the processors,
// since the first call. A process that is stopped, frozen or over its quota stands still. It is known some
// hundred milliseconds late, and rather too little: by how much the ticks of a clock of its own were late,
// of those that were late by more than 50 ms; less what it computed before them, since the clock is a goroutine,
// which waits while kernels have all threads; and less what its threads waited for processors.
func StoodStill() time.Duration {
	stood.once.Do(func() {
		go func() {
			s := stillness{from: time.Now(), last: time.Now(), had: CPUSeconds(), queued: readQueued()}
			for range time.Tick(stoodTick) {
				stood.total.Add(int64(s.tick(time.Now(), CPUSeconds(), readQueued)))
			}
		}()
	})
	return time.Duration(stood.total.Load())
}

// stillness is what is known of ticks that are not judged yet.
type stillness struct {
	from, last time.Time // of the window and of the tick before
	had        float64   // seconds of processors until then
	queued     float64   // seconds that threads waited for one, until from
	late       time.Duration
}

// tick takes in a tick and says for how long the process stood still in a window that is over. A window ends
// with a tick that is in time: what threads waited before one that is late may not have been counted.
func (s *stillness) tick(now time.Time, had float64, queued func() float64) (stood time.Duration) {
	late := now.Sub(s.last) - stoodTick
	inTime := late <= stoodLeast
	if !inTime {
		s.late += max(0, late-seconds(had-s.had))
	}
	s.last, s.had = now, had
	if window := now.Sub(s.from); window < stoodWindow || !inTime && window < stoodLong {
		return 0
	}
	waited := queued()
	stood = max(0, s.late-seconds(waited-s.queued))
	s.from, s.queued, s.late = now, waited, 0
	return stood
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
