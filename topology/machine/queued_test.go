package machine

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestQueuedSeconds: the threads of this process are found, what they have waited for never becomes less,
// and is not read more often than is worth it.
func TestQueuedSeconds(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("left out: only Linux tells how long threads wait for processors")
	}
	before := QueuedSeconds()
	for range 3 {
		queued.Lock()
		queued.read = time.Time{} // read anew
		queued.Unlock()
		now := QueuedSeconds()
		require.GreaterOrEqual(t, now, before)
		before = now
	}
	require.NotEmpty(t, queued.by, "the threads of this process")
	queued.Lock()
	queued.read, queued.total = time.Now(), 5
	queued.Unlock()
	require.Equal(t, 5.0, QueuedSeconds(), "it holds good for a while")
}
