package decide

import (
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
	of := func(p ...Proc) *Job { return &Job{ID: "4", Procs: append([]Proc{lead}, p...)} }
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
// gaps, and none for longer than a second: then it is suspect. It is lost 400 ms later, if its system
// acknowledges nothing, and after three seconds if it does.
func TestHush(t *testing.T) {
	require.Equal(t, 400*time.Millisecond, Hush{}.Limit())
	require.Equal(t, 400*time.Millisecond, Hush{Gap: 120 * time.Millisecond}.Limit())
	require.Equal(t, 600*time.Millisecond, Hush{Gap: 200 * time.Millisecond}.Limit())
	require.Equal(t, time.Second, Hush{Gap: 900 * time.Millisecond}.Limit())
	for _, x := range []struct {
		silent, dead, gap int // milliseconds
		suspect, lost     bool
	}{
		{350, 350, 0, false, false},
		{400, 400, 0, true, false},
		{750, 750, 0, true, false},
		{800, 800, 0, true, true},
		{800, 750, 0, true, false}, // it has acknowledged something
		{550, 550, 200, false, false},
		{950, 950, 200, true, false},
		{1000, 1000, 200, true, true},
		{2950, 50, 0, true, false},
		{3000, 50, 0, true, true},
	} {
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		suspect, err := Hush{Gap: ms(x.gap)}.Judge(control.Quiet{For: ms(x.silent), Dead: ms(x.dead)})
		require.Equal(t, x.suspect, suspect, x)
		require.Equal(t, x.lost, err != nil, x)
	}
	_, err := Hush{}.Judge(control.Quiet{For: 812 * time.Millisecond, Dead: 812 * time.Millisecond})
	require.EqualError(t, err, "silent for 810ms")
}
