package cluster_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClusterFewFiles: a cluster is not brought up where too few files may be open. One that has just enough
// answers while connections that say nothing come without end, and keeps files for its store; an agent that
// has none left says so with the limit and the remedy, loses none by it, and goes on when it may have more.
func TestClusterFewFiles(t *testing.T) {
	dir := tinyRun(t)
	v := verbs{t, dir, clusterHome(t, dir, "test")}
	up := func(files int) (string, error) {
		c := exec.Command("sh", "-c", `ulimit -n "$0" && exec "$@"`, fmt.Sprint(files), builtHead(t), "cluster", "up",
			"--local", "2", "--name", "test")
		c.Dir, c.Env = dir, append(os.Environ(), v.env...)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := up(95)
	require.ErrorContains(t, err, "exit status 5")
	require.Contains(t, out, "error: a head has to open 96 files, and may open 95 (ulimit -n): raise that")
	out, err = up(96)
	require.NoError(t, err, out)
	var s struct {
		Addr  string `json:"head"`
		Pid   int
		Hosts []struct{ Pid int }
	}
	v.json(&s, "cluster", "status")
	files := func(pid int) int {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		require.NoError(t, err)
		return len(all)
	}
	limit := func(pid, n int) {
		limitFiles(t, pid, n, 96)
	}
	var silent []net.Conn
	for range 200 {
		c, err := net.Dial("tcp", s.Addr)
		require.NoError(t, err)
		silent = append(silent, c)
	}
	head := s.Pid
	// one that knocks while the head still drops the silent ones may be dropped with them, and asks again
	require.Eventually(t, func() bool {
		code, _, _ := streamsEnv(t, v.dir, v.env, "cluster", "status", "-o", "json")
		return code == 0
	}, 2*time.Minute, 100*time.Millisecond)
	v.json(&s, "cluster", "status")
	require.Equal(t, head, s.Pid, "it is the same head")
	require.Less(t, files(head), 80)
	for _, c := range silent {
		c.Close()
	}
	had := files(s.Hosts[0].Pid)
	for _, h := range s.Hosts {
		limit(h.Pid, files(h.Pid)+2)
	}
	train := []string{"train", "run.yaml", "--cluster", "test", "plan.procs=4", "train.steps=2", "-q"}
	for range 3 {
		code, out := runIn(t, dir, v.env, train...)
		require.Equal(t, 5, code, out)
		require.Equal(t, 1, strings.Count(out, "error:"), out)
		require.Regexp(t, `error: .* cannot start on h\d: .*too many open files; pid \d+ may have \d+, `+
			`as ulimit -n says where it is started: raise that`, out)
	}
	require.Eventually(t, func() bool { return files(s.Hosts[0].Pid) <= had }, 2*time.Minute,
		10*time.Millisecond, "what could not be started holds no file")
	for _, h := range s.Hosts {
		limit(h.Pid, 96)
	}
	v.verb(0, train...)
	v.verb(0, "cluster", "down")
}
