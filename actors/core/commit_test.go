package core

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// TestCommit: no rank hears of a commit before the last is ready, and all hear the same, with the norm
// summed over ranks and then over parameters.
func TestCommit(t *testing.T) {
	ctx := &tape{}
	c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6}, Observer: 1, First: 3, Last: 4, OptimSteps: 7,
		Clip: 1, Norms: [][]int32{{0, 2}, {2, 1}},
		LR: func(step int64) float64 { return float64(step) / 10 }, LossScale: LossScale{Scale: 2}})
	c.Receive(ctx, &actors.Message{Kind: actors.Started})
	require.Equal(t, []string{"open 3", "open 3"}, ctx.take())
	c.Receive(ctx, &actors.Message{Kind: actors.Ready, From: 6, Step: 3, Values: lossy(1, 4, 16)})
	require.Empty(t, ctx.take())
	require.Equal(t, actors.Ref(5), c.Waits().For)
	c.Receive(ctx, &actors.Message{Kind: actors.Ready, From: 5, Step: 3, Values: lossy(2, 32, 12)})
	require.Equal(t, []string{"commit 3", "commit 3"}, ctx.take())
	require.Equal(t, []float64{4, 0.5 / (4 + 1e-6), 0, 0.3, 8, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 8, 2, 0, 0, 0, 0, 0, 0},
		c.verdict, "the loss is the sum of both ranks', and eight updates are made then")
	require.Panics(t, func() {
		c.Receive(ctx, &actors.Message{Kind: actors.Ready, From: 5, Step: 3, Values: ready(32, 12)})
	})
}

// ready are the values of Ready with some norms.
func ready(norms ...float64) []float64 { return lossy(0, norms...) }

// lossy are the same with a loss.
func lossy(loss float64, norms ...float64) []float64 {
	x := Usage{Loss: loss}
	return append(x.Values(), norms...)
}

// TestClipFactor: figures of torch.nn.utils.clip_grad_norm_ (bench/golden/kernels_torch.py's first gradient,
// at a largest norm of 1.5), and gradients that are not finite.
func TestClipFactor(t *testing.T) {
	norm, factor, over := ClipFactor(38.550317443894215, 1, 1.5)
	require.InDelta(t, 6.208890194221042, norm, 1e-12)
	require.InDelta(t, 0.24158902984096947, factor, 1e-12)
	require.False(t, over)
	_, factor, over = ClipFactor(9, 8, 10)
	require.Equal(t, 0.125, factor, "within the limit only the loss scale is taken out")
	require.False(t, over)
	_, factor, _ = ClipFactor(1e12, 8, 0)
	require.Equal(t, 0.125, factor, "no limit")
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		_, factor, over = ClipFactor(bad, 8, 1)
		require.Zero(t, factor)
		require.True(t, over)
	}
}

// judging is a coordinator of three ranks in step 2, whose loss scale goes down after one overflow.
func judging(first int64) (*Coordinator, *letters) {
	ctx := &letters{}
	c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6, 7}, Observer: 1, First: first, Last: 9,
		OptimSteps: 4,
		Norms:      [][]int32{{0}, {1}, {2}}, LR: func(int64) float64 { return 1 },
		LossScale: LossScale{Dynamic: true, Scale: 8, Min: 1, Window: 4, Hysteresis: 1, Good: 2, Left: 1}})
	c.Receive(ctx, &actors.Message{Kind: actors.Started})
	return c, ctx
}

// wild is what a rank says that is ready for a step whose router failed.
func wild(step int64, from actors.Ref, why string, x Usage) *actors.Message {
	return &actors.Message{Kind: actors.Ready, From: from, Step: step, Text: why, Values: append(x.Values(),
		4)}
}

// TestVoided: a step that is given up says nothing of the loss scale and makes no update; one that overflows
// lowers the scale.
func TestVoided(t *testing.T) {
	for _, given := range []bool{true, false} {
		c, ctx := judging(2)
		x, norm := Usage{}, math.Inf(1)
		if given {
			x, norm = Usage{Wild: 1}, 4
		}
		c.Receive(ctx, wild(2, 5, "", Usage{}))
		c.Receive(ctx, wild(2, 6, "", Usage{}))
		c.Receive(ctx, &actors.Message{Kind: actors.Ready, From: 7, Step: 2, Values: append(x.Values(),
			norm)})
		v := VerdictOf(c.verdict)
		require.True(t, v.Overflow)
		require.Zero(t, v.Factor)
		want := kept{2, 4, LossScale{Scale: 8, Good: 2, Left: 1}}
		if !given {
			want.scale = LossScale{Scale: 4}
		}
		require.Equal(t, want, v.after)
	}
}

// TestObjections: of several ranks that have a reason to give a step up the lowest one's is told, in
// whichever order they say so.
func TestObjections(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {1, 0, 2}} {
		c, ctx := judging(2)
		for _, i := range order {
			x, why := Usage{}, ""
			if i > 0 {
				x, why = Usage{Over: float64(i - 1), Wild: 1}, []string{"", "first", "second"}[i]
			}
			c.Receive(ctx, wild(2, actors.Ref(5+i), why, x))
		}
		require.Equal(t, &VoidError{Step: 2, Rank: 1, Why: "first"}, c.void, "%v", order)
	}
}

// TestVoidsInARow: steps that are given up count in a row by their numbers, so that one which is taken again
// after a loss does not count twice.
func TestVoidsInARow(t *testing.T) {
	c, ctx := judging(2)
	c.void = &VoidError{Why: "x"}
	for _, x := range []struct {
		step int64
		goOn bool
	}{{3, true}, {4, true}, {3, true}, {4, true}, {2, true}, {3, true}, {4, false}} {
		c.step = x.step
		require.Equal(t, x.goOn, c.givenUp(ctx), "step %d", x.step)
	}
	require.Equal(t, over, c.phase)
}
