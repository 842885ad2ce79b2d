package machine

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStartHangs: while a program takes long to start, others start and are given back.
func TestStartHangs(t *testing.T) {
	c := exec.Command("true")
	release, err := StartGuarded(c)
	require.NoError(t, err)
	require.NoError(t, c.Wait())
	held, begun := make(chan struct{}), make(chan error)
	hangs, ended := make(chan struct{}), make(chan struct{})
	go func() {
		starters.do(func() { close(hangs); <-held }) // a start that hangs
		close(ended)
	}()
	<-hangs
	next := exec.Command("true")
	go func() {
		end, err := StartGuarded(next)
		if err == nil {
			err = next.Wait()
			end()
		}
		begun <- err
	}()
	for range 100 { // wherever the other start is by now
		require.NoError(t, standGuard())
	}
	release()
	require.NoError(t, <-begun)
	close(held)
	<-ended
}
