package process

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	stoodTick  = 20 * time.Millisecond // a clock of this process ticks so often
	stoodLeast = 50 * time.Millisecond // a tick that is later than that has been held up
)

var stood struct {
	once sync.Once
	late atomic.Int64 // nanoseconds
}

// StoodStill is for how long this process has not run although it wanted to, since the first call: by how
// much the ticks of a clock of its own were late, of those that were late by more than 50 ms. A process that
// is stopped, frozen or over its quota stands still; so does one that waits for a processor, which
// QueuedSeconds tells.
func StoodStill() time.Duration {
	stood.once.Do(func() {
		go func() {
			last := time.Now()
			for range time.Tick(stoodTick) {
				came := time.Now()
				if late := came.Sub(last) - stoodTick; late > stoodLeast {
					stood.late.Add(int64(late))
				}
				last = came
			}
		}()
	})
	return time.Duration(stood.late.Load())
}
