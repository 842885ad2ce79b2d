package links

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// TestLastNews: all that a process tells at its end comes to process 0, also where this one is slow to answer
// a beat meanwhile, and finds that nobody reads its answer any more.
func TestLastNews(t *testing.T) {
	dir := t.TempDir()
	owner := func(actors.Ref) int { return 0 }
	links := make([]*Links, 2)
	for proc := range links {
		at, err := Unix(dir, proc)
		require.NoError(t, err)
		links[proc] = New(at, proc, 0, [32]byte{}, owner)
		began := time.Now()
		links[proc].clock = func() time.Duration { return time.Since(began) }
	}
	leader, worker := links[0], links[1]
	var slow atomic.Bool
	asked, telling := make(chan struct{}, 1000), make(chan struct{})
	var once sync.Once
	quick := leader.clock
	leader.clock = func() time.Duration {
		if slow.Load() {
			asked <- struct{}{}
			<-telling
		}
		return quick()
	}
	const parts = 5
	var told, heard, left atomic.Int32
	left.Store(1)
	worker.Tell = func(Offset) []byte {
		if left.Load() == 0 {
			return nil
		}
		left.Add(-1)
		if slow.Load() {
			once.Do(func() { close(telling) })
		}
		told.Add(1)
		return []byte("news")
	}
	leader.Told = func(int, []byte) { heard.Add(1) }
	leader.Serve(nil, actors.None)
	worker.Beat()
	require.Eventually(t, func() bool { return heard.Load() == 1 }, time.Minute, time.Millisecond)
	slow.Store(true)
	<-asked // a beat waits for its answer
	left.Store(parts)
	worker.Close()
	leader.Close()
	require.EqualValues(t, 1+parts, told.Load())
	require.Equal(t, told.Load(), heard.Load())
}
