package machine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestThreads: a start that hangs holds nobody up while there is another thread, and where there is none
// others wait for it; threads are used again.
func TestThreads(t *testing.T) {
	x := newThreads(2)
	hangs, ended := make(chan struct{}), make(chan struct{})
	begun := make(chan struct{})
	go func() {
		x.do(func() { close(begun); <-hangs })
		close(ended)
	}()
	<-begun
	n := 0
	for range 3 { // on the other thread, one behind the other
		x.do(func() { n++ })
	}
	require.Equal(t, 3, n)
	require.Len(t, x.places, 2)
	again := make(chan struct{})
	go x.do(func() { close(again); <-hangs })
	<-again
	late := make(chan struct{})
	go func() {
		x.do(func() {})
		close(late)
	}()
	select {
	case <-late:
		t.Fatal("both threads hang, and there are no more")
	default:
	}
	close(hangs)
	<-ended
	<-late
}
