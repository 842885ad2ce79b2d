package core

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// stalled is a run that has taken steps of so long and takes no more; it says at which moments what happens
// until the end, looked at every StallEvery.
func stalled(s *Stall, steps int, each, until actors.Duration,
	root func(now actors.Time) StallRoot) (said, ended, anew []actors.Time) {
	now := actors.Time(0)
	s.Begin(now)
	for range steps {
		for at := now; now < at+actors.Time(each); now += actors.Time(StallEvery) {
			s.Look(now)
		}
		s.Seen(now, true)
	}
	for from := now; now < from+actors.Time(until); now += actors.Time(StallEvery) {
		if s.Look(now) != StallAsk {
			continue
		}
		switch s.Found(now, root(now)) {
		case StallSay:
			said = append(said, now-from)
		case StallEnd:
			ended = append(ended, now-from)
		case StallAnew:
			anew = append(anew, now-from)
		}
	}
	return said, ended, anew
}

// TestStall: a root that holds a run up for longer than five of its longest steps is acted on, once; one that
// changes is not, nor is one that another process would have too, nor anything before the first step.
func TestStall(t *testing.T) {
	const second = actors.Second
	hangs := func(age func(actors.Time) actors.Duration) func(actors.Time) StallRoot {
		return func(now actors.Time) StallRoot {
			return StallRoot{Proc: 1, Which: "rank 1 0B0", Cured: true, Age: age(now)}
		}
	}
	unknown := hangs(func(actors.Time) actors.Duration { return 0 })
	known := hangs(func(now actors.Time) actors.Duration { return actors.Duration(now) - 4*second })
	said, ended, _ := stalled(new(Stall), 4, second, 300*second, known)
	require.Equal(t, []actors.Time{actors.Time(StallUsual + StallEvery)}, said)
	require.Equal(t, []actors.Time{actors.Time(StallUsual + 3*StallEvery)}, ended)
	said, ended, _ = stalled(new(Stall), 4, 60*second, 1000*second, unknown)
	require.Equal(t, []actors.Time{actors.Time(300*second + StallEvery)}, said)
	require.Equal(t, []actors.Time{actors.Time(600*second + StallEvery)}, ended, "it has held for the bound")

	_, ended, _ = stalled(&Stall{Limit: second}, 4, 60*second, 250*second, unknown)
	require.Empty(t, ended, "what a run says when is not what ends a process")
	_, ended, _ = stalled(new(Stall), 0, second, 900*second, unknown)
	require.Equal(t, []actors.Time{actors.Time(StallUsual + StallFirst + StallEvery)}, ended, "before the first step")
	_, ended, _ = stalled(new(Stall), 4, second, 300*second, func(now actors.Time) StallRoot {
		r := known(now)
		r.Cured = false
		return r
	})
	require.Empty(t, ended, "data that does not come")
	_, ended, _ = stalled(new(Stall), 4, second, 300*second, func(now actors.Time) StallRoot {
		r := unknown(now)
		r.Proc = int(now/actors.Time(10*second)) % 2
		return r
	})
	require.Empty(t, ended, "the root changes: work goes on, slowly")
}

// TestStallCycle: actors that wait for each other have lost a message. Connections are made anew once, soon, and where
// that does not help a process is ended as late as for anything else; before the first step nobody knows what is soon.
func TestStallCycle(t *testing.T) {
	const second = actors.Second
	cycle := func(now actors.Time) StallRoot { return StallRoot{Which: "cycle", Cured: true, Cycle: true} }
	_, ended, anew := stalled(new(Stall), 4, second, 300*second, cycle)
	require.Equal(t, []actors.Time{actors.Time(10*second + StallEvery)}, anew, "ten of the wait after five of silence")
	require.Len(t, ended, 1)
	_, _, anew = stalled(new(Stall), 4, StallEvery, 300*second, cycle)
	require.Len(t, anew, 1)
	require.LessOrEqual(t, anew[0], actors.Time(6*second))
	said, _, anew := stalled(new(Stall), 0, second, 29*second, cycle)
	require.Empty(t, anew)
	require.Empty(t, said)
	n := 0
	_, _, anew = stalled(new(Stall), 4, second, 29*second, func(now actors.Time) StallRoot {
		n++
		return StallRoot{Which: fmt.Sprint("cycle", n/2), Cycle: true}
	})
	require.Empty(t, anew, "what is on its way comes")
}

// TestStallAsleep: time in which the process that looks stood still is nobody's fault.
func TestStallAsleep(t *testing.T) {
	var s Stall
	s.Begin(0)
	s.Seen(actors.Time(actors.Second), true)
	require.Equal(t, StallGoes, s.Look(actors.Time(100*actors.Second)))
	require.Equal(t, StallGoes, s.Look(actors.Time(101*actors.Second)))
	for now := 101 * actors.Second; now < 140*actors.Second; now += StallEvery {
		s.Look(actors.Time(now))
	}
	require.Equal(t, StallAsk, s.Look(actors.Time(140*actors.Second)))
	s.Seen(actors.Time(141*actors.Second), false)
	require.Equal(t, StallGoes, s.Look(actors.Time(141*actors.Second)))
}
