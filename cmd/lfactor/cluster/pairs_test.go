package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestClusterPairsLost: with ZeRO, where no rank has the state of another, and without a checkpoint, the process that
// leads is killed together with each of the others in turn. Each time the run goes on from copies in memory and takes
// at most one step again, and ends with the losses and the state of one that nobody disturbed.
func TestClusterPairsLost(t *testing.T) {
	t.Parallel()
	others := []int{1, 3, 2}
	if !*long {
		others = others[:1]
		t.Log("one pair instead of three: add -long")
	}
	steps := 20 * (len(others) + 1)
	quiet := tinyRun(t)
	train := []string{"train", "run.yaml", "plan.procs=4", "plan.zero=1", "checkpoint.interval=0", "train.buddy=1",
		fmt.Sprint("train.steps=", steps)}
	code, out := runIn(t, quiet, nil, append(train, "-q")...)
	require.Zero(t, code, out)
	alone, want := metrics(t, quiet), stateOf(t, quiet, int64(steps))
	dir := tinyRun(t)
	env := clusterHome(t, dir, "test")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
	require.Zero(t, code, out)
	cmd := exec.Command(builtHead(t), append(train, "--cluster", "test")...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.Stdout = dir, &said, &said
	cmd.Env = slices.Concat(os.Environ(), env, clitest.Gated(t, dir, 20))
	require.NoError(t, cmd.Start())
	for i, other := range others {
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
			return err == nil && bytes.Contains(text, fmt.Appendf(nil, `"step":%d,`, 20*(i+1)))
		}, 2*time.Minute, time.Millisecond)
		var s head.Status
		code, out, errs := streamsEnv(t, dir, env, "cluster", "status", "-o", "json")
		require.Zero(t, code, errs)
		require.NoError(t, json.Unmarshal([]byte(out), &s))
		for _, n := range []int{0, other} {
			require.NoError(t, syscall.Kill(s.Jobs[0].Procs[n].Pid, syscall.SIGKILL))
		}
		clitest.Gate(t, dir, 20*(i+2))
	}
	require.NoError(t, cmd.Wait(), said.String())
	back := regexp.MustCompile(`recovered after .*`).FindAllString(said.String(), -1)
	require.Len(t, back, len(others), said.String())
	for _, line := range back {
		t.Log(line)
		require.Regexp(t, `from copies in memory; (no step is|1 step\(s\) are) taken again`, line)
	}
	same(t, alone, metrics(t, dir))
	require.Equal(t, want, stateOf(t, dir, int64(steps)), said.String())
}
