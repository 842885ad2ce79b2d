package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPatience: a connection waits for what it always did where nothing gets lost, longer on a longer way, for the tries
// that a network of so many losses wants, and never for longer than twenty seconds.
func TestPatience(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		retry time.Duration
		lost  float64
		want  time.Duration
	}{{200 * ms, 0, 2 * time.Second}, {time.Second, 0, 3 * time.Second}, {30 * ms, 0.2, 20 * time.Second},
		{30 * ms, 0.05, 30 * ms * (1<<6 - 1)}, {200 * ms, 0.05, 200 * ms * (1<<6 - 1)}, {200 * ms, 1, 20 * time.Second}} {
		want := max(c.want, CutAfter)
		require.Equal(t, want, Patience(CutAfter, c.retry, c.lost), "%v, %v", c.retry, c.lost)
	}
	last := time.Duration(0)
	for i := range 100 { // more that gets lost never means less patience
		now := Patience(CutAfter, 200*ms, float64(i)/100)
		require.GreaterOrEqual(t, now, last)
		last = now
	}
}
