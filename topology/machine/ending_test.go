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

// machineOf writes files of the system below a folder.
func machineOf(t *testing.T) (root string, put func(file, text string)) {
	root = t.TempDir()
	put = func(file, text string) {
		path := filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	put("proc/meminfo", "MemTotal:       1048576 kB\n")
	put("proc/uptime", "100.00 100.00\n")
	put("proc/self/cgroup", "9:memory:/a\n0::/user\n")
	put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "536870912\n")
	return root, put
}

// killedBy is how a process that has lived while something happened ends with a signal, or with a code.
func killedBy(t *testing.T, c *Children, put func(file, text string), code int, sig syscall.Signal,
	meanwhile func(pid int)) (string, int) {
	p := exec.Command("sh", "-c", fmt.Sprint("exit ", code))
	if sig != 0 {
		p = exec.Command("sleep", "1000")
	}
	require.NoError(t, p.Start())
	put(fmt.Sprintf("proc/%d/cgroup", p.Process.Pid), "9:memory:/a\n0::/user\n")
	c.Began(p.Process.Pid)
	meanwhile(p.Process.Pid)
	if sig != 0 {
		require.NoError(t, p.Process.Signal(sig))
	}
	err := p.Wait()
	return c.End(p.ProcessState, err)
}

// TestChildrenEnd: a process that SIGKILL has ended is said to be the system's where its control group, of
// either version, has counted a kill while it lived, once for each kill. Kills before that, elsewhere on the
// machine, and ends by other signals say nothing of it.
func TestChildrenEnd(t *testing.T) {
	for file, text := range map[string]string{
		"sys/fs/cgroup/memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill %d\n",
		"sys/fs/cgroup/user/memory.events.local":    "low 3\noom 9\noom_kill %d\n",
	} {
		root, put := machineOf(t)
		count := func(n int) { put(file, fmt.Sprintf(text, n)) }
		count(5)
		c := NewChildren()
		c.root, c.log = root, func() []string { return nil }
		const plain = "was killed by signal 9 (killed)"
		end := func(code int, sig syscall.Signal, meanwhile func(pid int)) (string, int) {
			return killedBy(t, c, put, code, sig, meanwhile)
		}
		nothing := func(int) {}
		said, code := end(3, 0, nothing)
		require.Equal(t, "ended with exit code 3", said)
		require.Equal(t, 3, code)
		said, code = end(0, syscall.SIGKILL, nothing)
		require.Equal(t, plain, said, "somebody did")
		require.Equal(t, -1, code)
		said, _ = end(0, syscall.SIGKILL, func(int) {
			put("proc/vmstat", "oom_kill 9\n")
			put("sys/fs/cgroup/user/memory.events", "oom_kill 9\n") // of the groups below too
		})
		require.Equal(t, plain, said, "the system has killed others, elsewhere")
		said, _ = end(0, syscall.SIGTERM, func(int) { count(6) })
		require.Equal(t, "was killed by signal 15 (terminated)", said)
		said, _ = end(0, syscall.SIGKILL, nothing)
		require.Equal(t, plain, said, "the group had counted it before the process began")
		said, _ = end(0, syscall.SIGKILL, func(int) {
			count(7)
			other, _ := end(0, syscall.SIGKILL, nothing)
			require.Equal(t, plain, other)
		})
		require.Contains(t, said, plain+" by the system: its control group had used the 512 MiB")
		said, _ = end(0, syscall.SIGKILL, func(int) {
			other, _ := end(0, syscall.SIGKILL, func(int) { count(8) })
			require.Contains(t, other, plain+" by the system")
		})
		require.Equal(t, plain, said, "that one was the other's")
	}
	text, code := NewChildren().End(ended(t, 0, 0))
	require.Equal(t, "ended with exit code 0", text)
	require.Zero(t, code)
	text, _ = NewChildren().End(ended(t, 0, syscall.SIGKILL))
	require.Equal(t, "was killed by signal 9 (killed)", text, "nobody looked after it")
}

// TestChildrenNamed: where the system's log names whom it killed, that decides: the process, since it began.
func TestChildrenNamed(t *testing.T) {
	root, put := machineOf(t)
	count := func(n int) { put("sys/fs/cgroup/user/memory.events.local", fmt.Sprintf("oom_kill %d\n", n)) }
	count(1)
	var log []string
	c := NewChildren()
	c.root, c.log = root, func() []string { return log }
	killed := func(pid int, at int, how string) {
		log = append(log, "6,12,17,-;usb 1-1: new device",
			fmt.Sprintf("3,811,%d,-,caller=T1;%s: Killed process %d (lfactor) "+
				"total-vm:91kB, anon-rss:1kB", at*1_000_000, how, pid))
	}
	end := func(meanwhile func(pid int)) string {
		said, _ := killedBy(t, c, put, 0, syscall.SIGKILL, meanwhile)
		return said
	}
	const plain = "was killed by signal 9 (killed)"
	require.Contains(t, end(func(pid int) { killed(pid, 101, "Out of memory") }),
		plain+" by the system, which had no memory left")
	require.Contains(t, end(func(pid int) { killed(pid, 102, "Memory cgroup out of memory"); count(2) }),
		plain+" by the system: its control group had used the 512 MiB")
	log = nil
	require.Equal(t, plain, end(func(pid int) { killed(pid, 99, "Out of memory") }),
		"another process, of this number")
	require.Equal(t, plain, end(func(pid int) { killed(pid+1, 103, "Out of memory"); count(3) }),
		"another process")
}
