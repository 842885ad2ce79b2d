package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/topology/machine"
)

// TestClusterFullDiskJoin: a host wants to join while the head's disk is full, and the head is killed then. Nobody waits
// without end: whoever is refused hears why. When there is room again the host joins, and takes part.
func TestClusterFullDiskJoin(t *testing.T) {
	longOnly(t, "a host that joins while the head's disk is full: TestClusterFullDisk has a run")
	dir := tinyRun(t)
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o700))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", home).CombinedOutput(); err != nil {
		t.Skipf("left out: a disk that is full needs a mount: %s", out)
	}
	t.Cleanup(func() { _ = syscall.Unmount(home, syscall.MNT_DETACH) }) // behind the cluster's end
	v := verbs{t, dir, clusterHome(t, dir, "test")}
	v.verb(0, "cluster", "up", "--local", "2", "--name", "test")
	tokens := []string{strings.TrimSpace(v.verb(0, "cluster", "token")), strings.TrimSpace(v.verb(0, "cluster", "token"))}
	other := append(os.Environ(), "LFACTOR_HOME="+filepath.Join(dir, "other"))
	join := func(token string) (*exec.Cmd, *strings.Builder) {
		var said strings.Builder
		c := exec.Command(clitest.BuiltHead(t), "cluster", "join", token, "--name", "h3")
		c.Dir, c.Env, c.Stderr, c.Stdout = dir, other, &said, &said
		require.NoError(t, c.Start())
		return c, &said
	}
	fill(t, filepath.Join(home, "full"))
	first, said := join(tokens[0])
	_ = syscall.Kill(machine.Holder(filepath.Join(home, "clusters", "test", "head")), syscall.SIGKILL) // it may have ended by itself
	ended := make(chan error, 1)
	go func() { ended <- first.Wait() }()
	select {
	case err := <-ended:
		require.Error(t, err)
		require.Contains(t, said.String(), "error: ", "who is refused hears why")
	case <-time.After(5 * time.Second): // it has joined, as the store has room that it took before
		require.NoError(t, first.Process.Signal(syscall.SIGTERM))
		<-ended
	}
	t.Log(said)
	require.NoError(t, os.Remove(filepath.Join(home, "full")))
	require.Eventually(t, func() bool {
		code, _ := runIn(t, dir, v.env, "cluster", "status")
		return code == 0
	}, time.Minute, 100*time.Millisecond)
	second, again := join(tokens[1])
	t.Cleanup(func() { _ = second.Process.Kill(); _ = second.Wait() }) // as the test leaves it
	require.Eventually(t, func() bool {
		_, out := runIn(t, dir, v.env, "cluster", "status")
		return strings.Count(out, "│ ready") == 3
	}, time.Minute, 100*time.Millisecond, "%s", again)
	v.verb(0, "train", "run.yaml", "--cluster", "test", "plan.procs=3", "plan.pp=3", "plan.layers=[2,1,1]", "plan.dp=1", "train.steps=2")
	t.Log(v.verb(0, "events"))
}
