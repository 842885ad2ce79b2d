package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// ended is a process that has ended: by itself with a code, or by a signal.
func ended(t *testing.T, code int, sig syscall.Signal) (*os.ProcessState, error) {
	c := exec.Command("sh", "-c", fmt.Sprint("exit ", code))
	if sig != 0 {
		c = exec.Command("sleep", "1000")
	}
	require.NoError(t, c.Start())
	if sig != 0 {
		require.NoError(t, c.Process.Signal(sig))
	}
	err := c.Wait()
	return c.ProcessState, err
}

// TestChildrenEnd: one of the processes that SIGKILL has ended is said to be the system's for each that the
// counters tell of, in either version of control groups and without any; others are somebody's, and so are
// all that ended by other signals.
func TestChildrenEnd(t *testing.T) {
	for _, x := range []struct {
		file, text, says string
		group            bool
	}{
		{"sys/fs/cgroup/memory/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill %d\n",
			"by the system: its control group had used the 512 MiB", true},
		{"sys/fs/cgroup/user/memory.events", "low 3\noom 9\noom_kill %d\n",
			"by the system: its control group had used the 512 MiB", true},
		{"proc/vmstat", "nr_free_pages 1\noom_kill %d\npgfault 4\n",
			"by the system, which had no memory left", false},
	} {
		root := t.TempDir()
		put := func(file, text string) {
			path := filepath.Join(root, file)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		put("proc/meminfo", "MemTotal:       1048576 kB\n")
		put("proc/self/cgroup", "9:memory:/a\n0::/user\n")
		put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "536870912\n")
		put(x.file, fmt.Sprintf(x.text, 5))
		c := &Children{root: root, seen: kills(root)}
		end := func(code int, sig syscall.Signal) (string, int) {
			return c.End(ended(t, code, sig))
		}
		text, code := end(3, 0)
		require.Equal(t, "ended with exit code 3", text)
		require.Equal(t, 3, code)
		text, code = end(0, syscall.SIGKILL)
		require.Equal(t, "was killed by signal 9 (killed)", text, "somebody did")
		require.Equal(t, -1, code)
		put(x.file, fmt.Sprintf(x.text, 7))
		text, _ = end(0, syscall.SIGTERM)
		require.Equal(t, "was killed by signal 15 (terminated)", text)
		for range 2 {
			text, _ = end(0, syscall.SIGKILL)
			require.Contains(t, text, "was killed by signal 9 (killed) "+x.says)
		}
		text, _ = end(0, syscall.SIGKILL)
		require.Equal(t, "was killed by signal 9 (killed)", text, "two were the system's")
	}
	text, code := NewChildren().End(ended(t, 0, 0))
	require.Equal(t, "ended with exit code 0", text)
	require.Zero(t, code)
}
