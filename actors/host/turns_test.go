package host

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestTurns: a turn gets the goroutine of one that is over, or another where that is at work; all end with
// the system, or else the test hangs, which synctest finds out.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		on := func() (goroutine string) {
			turns.Schedule(func() {
				text := make([]byte, 64)
				goroutine = string(bytes.Fields(text[:runtime.Stack(text, false)])[1])
			})
			synctest.Wait()
			return goroutine
		}
		first := on()
		require.NotEmpty(t, first)
		require.Equal(t, first, on())
		busy := make(chan struct{})
		turns.Schedule(func() { <-busy })
		synctest.Wait()
		require.NotEqual(t, first, on())
		close(busy)
		close(turns.over)
	})
}
