package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestPoolsWhy: who asks a run what it waits for is told of samplers and judges beside its ranks, each an actor of its
// own. Of judges that hang the one that has said nothing for the longest time is the root, and stands behind the loader
// that waits for it.
func TestPoolsWhy(t *testing.T) {
	t.Parallel()
	dir := clitest.DrawnRun(t, 1000)
	c := exec.Command(built(t), "train", "run.yaml", "reward.kind=model", "reward.model="+clitest.DrawnJudge(t),
		"reward.judges=2", "rollout.samplers=1", "rollout.silence=60", "rollout.staleness=1",
		"rollout.span=0", `reward.pattern=""`)
	said := &heard{}
	c.Dir, c.Stderr, c.Stdout = dir, said, said
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()         // as above
	})
	var pids []int
	require.Eventually(t, func() bool {
		pids = nil
		for _, m := range regexp.MustCompile(`(?m)^judge process: pid (\d+)$`).FindAllStringSubmatch(said.String(), -1) {
			pid, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			pids = append(pids, pid)
		}
		return len(pids) == 2 && sizeOf(filepath.Join(dir, "run", "rollouts.jsonl")) > 0
	}, time.Minute, 10*time.Millisecond, said)
	for _, pid := range pids {
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // the run may have ended it
	}
	hangs := regexp.MustCompile(`loader.* which waits for 1 results of judge [23].*, which has said nothing for`)
	var all []host.Status
	var root string
	require.Eventually(t, func() bool {
		var err error
		all, _, err = host.AskWhy(filepath.Join(dir, "run"), time.Second)
		require.NoError(t, err)
		root = host.Diagnose(all).Root
		stuck := 0
		for _, s := range all {
			if s.Ref >= rollout.FirstMember && s.Stuck {
				stuck++
			}
		}
		return hangs.MatchString(root) && stuck == 2
	}, time.Minute, 100*time.Millisecond, "%s", said)
	names, waited := map[string]bool{}, actors.None
	for _, s := range all {
		names[regexp.MustCompile(` \(.*`).ReplaceAllString(s.Name, "")] = true
		if s.Wait.Busy && s.Wait.For != actors.None {
			waited = s.Wait.For
		}
	}
	for _, name := range []string{"coordinator", "rank 0", "sampler 1", "judge 2", "judge 3"} {
		require.True(t, names[name], "%s among %v", name, names)
	}
	require.GreaterOrEqual(t, waited, rollout.FirstMember, root)
}
