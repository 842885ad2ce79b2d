package cluster_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// TestClusterHung: a device never comes back in a process that says that it lives, of the process that leads or
// of another: the head ends that process, an event says why, and the run goes on to the state of one that was left
// alone.
func TestClusterHung(t *testing.T) {
	args := []string{"train", "run.yaml", "--cluster", "hung", "plan.procs=2", "plan.dp=1", "train.steps=20",
		"log.stall=0.5"}
	home := t.TempDir()
	env := clusterHome(t, home, "hung")
	code, out := runIn(t, home, env, "cluster", "up", "--local", "2", "--name", "hung")
	require.Zero(t, code, out)
	quiet := tinyRun(t)
	code, out = runIn(t, quiet, env, args...)
	require.Zero(t, code, out)
	want := stateOf(t, quiet, 20)
	for rank, event := range []string{"process 0 of job", "process 1 of job"} {
		dir := tinyRun(t)
		fault := run.EnvFault + "=stuck=" + []string{"0@9", "1@9"}[rank]
		code, out = runIn(t, dir, append([]string{fault}, env...), args...)
		require.Zero(t, code, out)
		require.Contains(t, out, "is ended, and another takes its place")
		require.Equal(t, want, stateOf(t, dir, 20), out)
		log, err := os.ReadFile(filepath.Join(home, "home", "clusters", "hung", "head", "log"))
		require.NoError(t, err)
		require.Regexp(t, "hung "+event+` \d+ on h\d is ended: no step for \d+ s, because rank`, string(log))
	}
}
