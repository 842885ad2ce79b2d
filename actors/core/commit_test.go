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
	require.Equal(t, []float64{4, 0.5 / (4 + 1e-6), 0, 0.3, 8, 3, 0, 3, 8, 2, 0, 0}, c.verdict,
		"the loss is the sum of both ranks', and eight updates are made then")
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
