package machine

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStartHangs: while a program takes long to start, others are given back.
func TestStartHangs(t *testing.T) {
	c := exec.Command("true")
	release, err := StartGuarded(c)
	require.NoError(t, err)
	require.NoError(t, c.Wait())
	held, begun := make(chan struct{}), make(chan error)
	starter.jobs <- func() { <-held } // what starts programs is at one that hangs
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
	close(held)
	require.NoError(t, <-begun)
}
