package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStillness: a process that is stopped for 160 of 200 ms stands still for two thirds of the time and
// more, whether it computes between or not; one whose clock is late because its own kernels have the
// threads, or because other work has the processors, which is counted later, does not at all.
func TestStillness(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		name        string
		ticks       []time.Duration // what passes before each, in turn
		cores       float64         // that it has in that time,
		waits       float64         // and that its threads wait for
		least, most float64         // share of the time
	}{
		{"stopped", []time.Duration{160 * ms, 20 * ms, 20 * ms}, 0, 0, .65, .8},
		{"stopped, and computes between", []time.Duration{180 * ms, 20 * ms}, .2, 0, .5, .8},
		{"stopped for longer than it runs at all", []time.Duration{185 * ms}, 0, 0, .8, 1},
		{"its own kernels", []time.Duration{120 * ms, 20 * ms, 20 * ms}, 1, 0, 0, 0},
		{"a crowded host", []time.Duration{150 * ms, 20 * ms, 20 * ms}, .1, .9, 0, 0},
		{"in time", []time.Duration{20 * ms, 25 * ms}, .1, 0, 0, 0},
	} {
		now := time.Now()
		s := stillness{from: now, last: now}
		var had, queued, uncounted float64
		var stood, passed time.Duration
		for n := range 1000 {
			by := x.ticks[n%len(x.ticks)]
			now, passed = now.Add(by), passed+by
			had += x.cores * by.Seconds()
			queued, uncounted = queued+uncounted, x.waits*by.Seconds() // it is counted with the next tick
			stood += s.tick(now, had, func() float64 { return queued })
		}
		share := stood.Seconds() / passed.Seconds()
		require.GreaterOrEqual(t, share, x.least, x.name)
		require.LessOrEqual(t, share, x.most, x.name)
	}
}
