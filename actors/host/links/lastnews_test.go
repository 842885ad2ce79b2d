package links

import (
	"net"
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

// TestLastWord: a process that has said its last is not taken for silent while it closes what it has, and is where
// it does not end then; a later life of it is not held to what the one before has said.
func TestLastWord(t *testing.T) {
	l := New(nil, 0, 0, [32]byte{}, nil)
	leader, worker := net.Pipe()
	go func() {
		_, _ = worker.Write([]byte{lastFrame})
		worker.Close()
	}()
	began := time.Now()
	l.listen(leader, 1, 3)
	require.Empty(t, l.quiet(began.Add(lastWord), 0))
	require.Len(t, l.quiet(time.Now().Add(lastWord+silentMost), 0), 1)
	l.heard(1, 4, true)
	l.ending(1, 3)
	require.Len(t, l.quiet(time.Now().Add(silentMost), 0), 1)
}
