package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// TestSlowStood: a rank whose process stands still for half of the time is named within ten steps, once, and for
// nothing else, though its jobs take as long as ever; one that is stopped once or that stands still as all do is not.
func TestSlowStood(t *testing.T) {
	const ms = float64(actors.Second) / 1000
	for _, x := range []struct {
		name        string
		every       int // steps
		stood, busy float64
		all         bool
		want        int
	}{{"half of the time", 1, 130, 40, false, 1}, {"half of the time, in its jobs", 1, 130, 170, false, 1},
		{"once", 1000, 380, 40, false, 0}, {"now and then", 10, 130, 40, false, 0},
		{"everybody", 1, 130, 40, true, 0}} {
		t.Run(x.name, func(t *testing.T) {
			ctx := &hours{}
			c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6, 7}, Observer: 1, First: 1, Last: 99,
				SlowFor: actors.Second})
			var named [][]float64
			steps := 0
			for n := range 200 {
				c.step++
				c.opened = ctx.now
				took := 100 * ms
				c.closed = nil
				for i := range 3 {
					u := Usage{Busy: 40 * ms}
					if n >= 40 && n < 120 && n%x.every == 0 && (i == 1 || x.all) {
						u.Stood, u.Busy = x.stood*ms, x.busy*ms
						took = (100 + x.stood) * ms
					}
					c.closed = append(c.closed, said{used: u})
				}
				ctx.now += actors.Time(took)
				ctx.sent = nil
				c.pace.see(ctx, c, took)
				for _, m := range ctx.sent {
					named, steps = append(named, m.Values), n-40
				}
			}
			require.Len(t, named, x.want)
			for _, v := range named {
				got := SlownessOf(v)
				require.Greater(t, got.Part, stoodShare)
				got.Part = 0
				require.Equal(t, Slowness{Rank: 1, Cause: SlowStood, Now: 130 * ms, Usual: 230 * ms}, got)
				require.Less(t, steps, 10)
			}
		})
	}
}
