package rollout

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestInFlightHeard: what a checkpoint keeps of an answer has the turns that were heard until then, and the
// environment's fault alone: what judges is asked again.
func TestInFlightHeard(t *testing.T) {
	a := &Answer{Answer: []int32{5, 1, 6}, LogProbs: make([]float32, 3), HeardFault: "gone", Fault: "busy",
		Versions: [][2]int64{{0, 1}, {2, 2}}, Heard: []Heard{{At: 2}, {At: 2}, {At: 3}}}
	require.Equal(t, "gone", a.until(2).HeardFault)
	require.Empty(t, a.until(2).Fault)
	b := a.until(1)
	require.Equal(t, a.Heard[:2], b.Heard)
	require.Empty(t, b.HeardFault)
}

// TestTalkTake: a step hears all that environments have said by then.
func TestTalkTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &conversation{heard: make(chan func() error), waits: 3}
		for range 3 {
			go func() { x.heard <- func() error { x.waits--; return nil } }()
		}
		synctest.Wait()
		require.NoError(t, x.take(false))
		require.Zero(t, x.waits)
	})
}
