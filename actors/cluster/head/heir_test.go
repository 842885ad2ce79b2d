package head

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// TestHeadless: a job goes on without its leader if all other processes were ready once and one is left; the
// next leader hears of all of them, and of those that ended that they did.
func TestHeadless(t *testing.T) {
	lead := Proc{Host: "a", Gen: 1, Over: true}
	up := Proc{Host: "b", Gen: 2, Pid: 7, Ready: true, Env: []string{"X=1"}}
	over, young := up, up
	over.Over, young.Ready = true, false
	of := func(p ...Proc) *job { return &job{Job: Job{ID: "4", Procs: append([]Proc{lead}, p...)}} }
	require.True(t, of(up).headless())
	require.True(t, of(over, up).headless())
	require.False(t, of().headless(), "there is no other process")
	require.False(t, of(over).headless(), "none is left")
	require.False(t, of(up, young).headless(), "one may not have what it needs yet")
	require.Equal(t, []control.Proc{
		{Job: "4", Proc: 1, Gen: 2, Pid: 7, Ready: true, Over: true, Node: "b", Env: []string{"X=1"},
			Text: "ended while no process led", Code: -1},
		{Job: "4", Proc: 2, Gen: 2, Pid: 7, Ready: true, Node: "b", Env: []string{"X=1"}}},
		of(over, up).others())
}

// TestForgiven: a leader that is killed again and again ends its job, one that is killed now and then does
// not.
func TestForgiven(t *testing.T) {
	j, now := Job{}, time.Now()
	for range maxRestarts {
		j.forgive(now)
		require.Less(t, j.Recent, maxRestarts)
		j.restarted(now)
		now = now.Add(restartsLong)
	}
	j.forgive(now)
	require.Equal(t, maxRestarts, j.Recent)
	j.forgive(now.Add(time.Second))
	require.Zero(t, j.Recent)
	require.Equal(t, maxRestarts, j.Restarts)
}

// TestHush: an agent that is heard in time may be silent for 400 ms, one that never was for three of its
// gaps, and none for longer than a second.
func TestHush(t *testing.T) {
	require.Equal(t, 400*time.Millisecond, hush{}.limit())
	require.Equal(t, 400*time.Millisecond, hush{120 * time.Millisecond}.limit())
	require.Equal(t, 600*time.Millisecond, hush{200 * time.Millisecond}.limit())
	require.Equal(t, time.Second, hush{900 * time.Millisecond}.limit())
	require.EqualError(t, hush{200 * time.Millisecond}.of(os.ErrDeadlineExceeded), "silent for 600ms")
	require.Equal(t, io.EOF, hush{}.of(io.EOF))
}
