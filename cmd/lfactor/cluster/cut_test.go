package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestClusterCut: a host is cut off for two seconds while it trains: both ways, one way and the other. Its
// processes go on elsewhere, what it still says is refused, and it takes part again when the network is
// back. Weights, optimizer state and ledger are those of a run that nobody disturbed.
func TestClusterCut(t *testing.T) {
	longOnly(t, "hosts that are cut off, both ways and one way: sim/heads and TestPartitions of sim "+
		"have that in virtual time")
	const steps = 120
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", fmt.Sprint("train.steps=", steps))
	require.Zero(t, code, out)
	want := stateOf(t, dir, steps)
	r := onRig(t, dir, 3)
	h1, h2, h3 := r.Hosts[0], r.Hosts[1], r.Hosts[2]
	between := func(a, b []*Host) (cut, heal func()) { // what a sends to b
		do := func(f func(h *Host, to ...*Host)) func() {
			return func() {
				for _, h := range a {
					f(h, b...)
				}
			}
		}
		return do((*Host).Cut), do((*Host).Heal)
	}
	mine, others := []*Host{h2}, []*Host{h1, h3}
	for name, ways := range map[string][][2][]*Host{
		"both ways":       {{mine, others}, {others, mine}},
		"it is not heard": {{mine, others}},
		"it hears nobody": {{others, mine}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "run")))
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
			r.onWith(0, clitest.Gated(t, dir, steps/2), "train", "run.yaml", "--cluster", "rig", "--detach",
				"plan.procs=2", fmt.Sprint("train.steps=", steps))
			require.Eventually(t, func() bool { return clitest.Steps(t, dir) > 2 }, 2*time.Minute,
				time.Millisecond, "the run does not start")
			before := r.on(0, "events")
			var heals []func()
			for _, w := range ways {
				cut, heal := between(w[0], w[1])
				cut()
				heals = append(heals, heal)
			}
			r.waitEvent(before, "host h2 is lost")
			<-time.After(time.Second) // what was placed anew is under way
			for _, heal := range heals {
				heal()
			}
			clitest.Gate(t, dir, clitest.Open)
			out := r.on(0, "attach")
			require.Equal(t, want, stateOf(t, dir, steps), out)
			r.waitReady(3)
			events := strings.TrimPrefix(r.on(0, "events"), before)
			require.Regexp(t, `host h2 is lost: silent for [\d.]+m?s`, events, out)
			require.Contains(t, events, "moves from h2 to h3")
			require.Contains(t, events, "host h2 is connected again")
			t.Log(events)
		})
	}
}

// TestClusterFlaps: the link of a host comes and goes while it trains. That is one loss, or two: its
// processes go on elsewhere and stay there, and the host takes part again when its link is steady.
func TestClusterFlaps(t *testing.T) {
	longOnly(t, "a link that comes and goes: sim/heads has that in virtual time")
	const steps = 90
	flaps := 3
	if *long {
		flaps = 10
	} else {
		t.Log("the link goes 3 times instead of 10: add -long")
	}
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", fmt.Sprint("train.steps=", steps*flaps))
	require.Zero(t, code, out)
	want := stateOf(t, dir, int64(steps*flaps))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "run")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
	r := onRig(t, dir, 3)
	r.onWith(0, clitest.Gated(t, dir, steps*flaps/2), "train", "run.yaml", "--cluster", "rig", "--detach",
		"plan.procs=2", fmt.Sprint("train.steps=", steps*flaps))
	require.Eventually(t, func() bool { return clitest.Steps(t, dir) > 2 }, 2*time.Minute, time.Millisecond,
		"the run does not start")
	before := r.on(0, "events")
	for n := range flaps {
		r.Hosts[1].Link(false)
		if n == 0 { // on a machine with more work than processors that takes longer
			r.waitEvent(before, "host h2 is lost")
		}
		<-time.After(time.Second)
		r.Hosts[1].Link(true)
		<-time.After(time.Second)
	}
	clitest.Gate(t, dir, clitest.Open)
	out = r.on(0, "attach")
	require.Equal(t, want, stateOf(t, dir, int64(steps*flaps)), out)
	r.waitReady(3)
	events := r.on(0, "events")
	t.Log(events)
	moves := strings.Count(events, " moves from ")
	require.Positive(t, moves)
	require.LessOrEqual(t, moves, 2)
	require.LessOrEqual(t, strings.Count(out, "recovered after"), 2, out)
}
