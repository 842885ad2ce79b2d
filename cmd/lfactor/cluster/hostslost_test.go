package cluster_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestClusterHostsLost: six processes on three hosts, two each, without a checkpoint and with ZeRO, so that no rank has
// the state of another. The leader's host and one other are lost together, with four of the processes; these go on
// on hosts that are left, and there the leader's host is lost again. Each time what is left has all states in copies: at
// most one step is taken again, and the run ends with the losses and the state of one that nobody disturbed.
func TestClusterHostsLost(t *testing.T) {
	longOnly(t, "hosts with several processes each are lost two at a time; TestHostsLost of sim has that")
	const steps = 60
	args := []string{"train", "run.yaml", "plan.pp=3", "plan.layers=[2,1,1]", "plan.procs=6", "plan.zero=1", "checkpoint.interval=0",
		"train.buddy=1", fmt.Sprint("train.steps=", steps)}
	quiet := tinyRun(t)
	code, out := runIn(t, quiet, nil, append(args, "-q")...)
	require.Zero(t, code, out)
	dir := tinyRun(t)
	r := onRig(t, dir, 5)
	r.on(0, "cluster", "drain", "h1") // the head is there
	r.on(0, "cluster", "drain", "h5")
	r.onWith(0, clitest.Gated(t, dir, 20), append(args, "--cluster", "rig", "--detach")...)
	hosts := func() (at []string, alive bool) {
		var s head.Status
		require.NoError(t, json.Unmarshal([]byte(r.on(0, "cluster", "status", "-o", "json")), &s))
		alive = true
		for _, p := range s.Jobs[0].Procs {
			at, alive = append(at, p.Host), alive && p.Pid > 0 && !p.Over
		}
		return at, alive
	}
	began, back := r.on(0, "events"), 0
	for round, kill := range [][]int{{0, 2}, {0}} { // processes whose hosts are lost
		require.Eventually(t, func() bool { return clitest.Steps(t, dir) >= 20*(round+1) }, 2*time.Minute, 10*time.Millisecond)
		at, _ := hosts()
		t.Log("processes on", at)
		if round == 0 {
			require.Equal(t, []string{"h2", "h2", "h3", "h3", "h4", "h4"}, at)
			r.on(0, "cluster", "drain", "h5", "--back")
		}
		for _, p := range kill {
			r.Hosts[at[p][1]-'1'].Kill()
		}
		clitest.Gate(t, dir, 20*(round+2))
		require.Eventually(t, func() bool {
			now, alive := hosts()
			return alive && !slices.ContainsFunc(kill, func(p int) bool { return slices.Contains(now, at[p]) })
		}, 2*time.Minute, 50*time.Millisecond)
		r.waitEvent(began, "moves from")
	}
	said := r.on(0, "attach")
	lines := regexp.MustCompile(`recovered after .*`).FindAllString(said, -1)
	for _, line := range lines {
		t.Log(line)
		require.Regexp(t, `from (copies in memory|another replica); (no step is|1 step\(s\) are) taken again`, line)
		back++
	}
	require.GreaterOrEqual(t, back, 2, said)
	t.Log(r.on(0, "events")[len(began):])
	same(t, metrics(t, quiet), metrics(t, dir))
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, dir, steps), said)
}
