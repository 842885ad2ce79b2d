package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// TestReach: what sums in fixed point have room for follows from the norm of the step before, stays where there was
// nothing, and grows behind a step that is given up because it was too little.
func TestReach(t *testing.T) {
	s := LossScale{FixedPoint: true, Reach: ReachFirst}
	s.follow(3, false)
	require.Equal(t, 12.0, s.Reach, "3 lies below 2^2")
	s.follow(0, false)
	require.Equal(t, 12.0, s.Reach)
	require.False(t, s.beyond(4095))
	require.True(t, s.beyond(4096))
	s.follow(1e9, true)
	require.Equal(t, 28.0, s.Reach)
	plain := LossScale{}
	plain.follow(3, false)
	require.Equal(t, LossScale{}, plain)
	require.False(t, plain.beyond(1e30))
}

// TestBeyondReach: a step whose norm is beyond it is given up, is not counted, and leaves more room in the next, which
// opens with it; so do what a checkpoint and another coordinator are told.
func TestBeyondReach(t *testing.T) {
	ctx := &tape{}
	c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5}, Observer: 1, First: 1, Last: 3, Norms: [][]int32{{0}},
		LR: func(int64) float64 { return 1 }, LossScale: LossScale{Scale: 1, FixedPoint: true, Reach: 5}})
	c.Receive(ctx, &actors.Message{Kind: actors.Started})
	c.Receive(ctx, &actors.Message{Kind: actors.Ready, From: 5, Step: 1, Values: lossy(1, 32*32)})
	v := VerdictOf(c.verdict)
	require.True(t, v.Overflow)
	require.Zero(t, v.Factor)
	require.ErrorContains(t, c.void, "the gradient norm of 32 is so far above those before")
	require.Equal(t, 21.0, v.after.scale.Reach)
	require.Zero(t, v.after.updates)
	require.Equal(t, v.after.scale.Reach, keptOf(v.after.append(nil), LossScale{}).scale.Reach)
	require.Equal(t, 21.0, FiledOf(filed(v.after, Laid{})).Reach)
	require.Equal(t, Opening{Scale: 2, Reach: 21}, OpeningOf(Opening{Scale: 2, Reach: 21}.Values()))
}
