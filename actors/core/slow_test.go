package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// hours is a context whose time the test sets.
type hours struct {
	letters
	now actors.Time
}

// Now implements actors.Context.
func (h *hours) Now() actors.Time { return h.now }

// TestSlowFor: a rank that is slow for eight steps is named when it has been so for long enough, once, and
// with the processors that its process had then and before; a burst that is shorter names nobody.
func TestSlowFor(t *testing.T) {
	ctx := &hours{}
	c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6, 7}, Observer: 1, First: 1, Last: 99,
		SlowFor: actors.Second})
	step := func(millis int64, busy, cpu float64) (named []float64) {
		c.step++
		c.opened = ctx.now
		ctx.now += actors.Time(millis) * actors.Time(actors.Second/1000)
		ctx.sent, c.closed = nil, nil
		for i := range 3 {
			x := Usage{Busy: 100, CPU: 90}
			if i == 1 {
				x.Busy, x.CPU = busy, cpu
			}
			c.closed = append(c.closed, said{used: x})
		}
		c.pace.see(ctx, c, float64(millis)*1e6)
		for _, m := range ctx.sent {
			require.Equal(t, TopicSlow, m.Text)
			named = m.Values
		}
		return named
	}
	for range 10 {
		require.Nil(t, step(10, 100, 80))
	}
	for range 30 {
		require.Nil(t, step(10, 500, 100), "for 0.3 s")
	}
	for range 10 {
		require.Nil(t, step(10, 100, 80))
	}
	for range 7 {
		require.Nil(t, step(200, 500, 100), "seven steps")
	}
	require.Equal(t, Slowness{Rank: 1, Now: 500, Usual: 100, Had: .2, Wants: .8}.Values(),
		step(200, 500, 100))
	for range 20 {
		require.Nil(t, step(200, 500, 100), "once")
	}
	require.Zero(t, new(Usage).processors())
}

// TestSlowCrowd: a rank whose process waits for processors for half of what it takes longer is slow because of other
// work; one that waits for less computes slowly. What it waited for before it was slow does not count.
func TestSlowCrowd(t *testing.T) {
	for _, x := range []struct {
		queued float64
		cause  Cause
	}{{201, SlowCrowd}, {199, SlowCompute}} {
		ctx := &hours{}
		c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6, 7}, Observer: 1, First: 1, Last: 99})
		var named []actors.Message
		step := func(busy, queued float64) {
			c.step++
			c.closed = nil
			for i := range 3 {
				x := Usage{Busy: 100}
				if i == 1 {
					x.Busy, x.Queued = busy, queued
				}
				c.closed = append(c.closed, said{used: x})
			}
			c.pace.see(ctx, c, 1e6)
			named, ctx.sent = append(named, ctx.sent...), nil
		}
		for range 10 {
			step(100, 90)
		}
		for range 12 {
			step(500, x.queued)
		}
		require.Len(t, named, 1)
		require.Equal(t, x.cause, SlownessOf(named[0].Values).Cause)
		for range 8 {
			step(100, 0)
		}
		for range 8 {
			step(500, x.queued)
		}
		require.Len(t, named, 2, "it was an ordinary one in between")
	}
}

// TestSlowNowAndThen: a rank that stands still in one step of ten, for as long as those ten take, is named, once;
// one that does so for less time, or because other work has the processors, is not, nor are all at once.
func TestSlowNowAndThen(t *testing.T) {
	const ms = float64(actors.Second) / 1000
	for _, x := range []struct {
		name         string
		stop, queued float64 // milliseconds
		all          bool
		want         int
	}{{"half of the time", 500, 0, false, 1}, {"a fifth", 120, 0, false, 0}, {"crowded", 500, 400, false, 0},
		{"everybody", 500, 0, true, 0}} {
		t.Run(x.name, func(t *testing.T) {
			ctx := &hours{}
			c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6, 7}, Observer: 1, First: 1, Last: 99,
				SlowFor: actors.Second})
			var named [][]float64
			for n := range 1000 {
				c.step++
				c.opened = ctx.now
				took := 50 * ms
				c.closed = nil
				for i := range 3 {
					u := Usage{Busy: 40 * ms}
					if n >= 400 && n < 800 && n%10 == 0 && (i == 1 || x.all) {
						u.Busy += x.stop * ms
						u.Queued = x.queued * ms
						took = 50*ms + x.stop*ms
					}
					c.closed = append(c.closed, said{used: u})
				}
				ctx.now += actors.Time(took)
				ctx.sent = nil
				c.pace.see(ctx, c, took)
				for _, m := range ctx.sent {
					named = append(named, m.Values)
				}
			}
			require.Len(t, named, x.want)
			for _, v := range named {
				got := SlownessOf(v)
				require.Equal(t, 1, got.Rank)
				require.Equal(t, SlowCompute, got.Cause)
				require.InDelta(t, .45, got.Part, .12)
			}
		})
	}
}
