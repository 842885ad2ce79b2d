package machine

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGuarded: a program that hears and reads nothing, and one that it has begun, end with the process that
// has begun them, when that is killed, also where somebody has killed the guard before; and what a program
// leaves behind ends when it is given back.
func TestGuarded(t *testing.T) {
	const hangs = `trap "" TERM HUP INT; sleep 600 & echo $$ $!; while :; do wait; done`
	if os.Getenv("LFACTOR_TEST_GUARDED") != "" {
		for range 2 {
			c := exec.Command("sh", "-c", hangs)
			c.Stdout = os.Stdout
			_, err := StartGuarded(c)
			require.NoError(t, err)
			guarded.mu.Lock()
			for _, p := range guardsOf(os.Getpid()) { // the next program's is another
				require.NoError(t, syscall.Kill(p, syscall.SIGKILL))
			}
			_ = guarded.to.Close()
			guarded.mu.Unlock()
		}
		c := exec.Command("sh", "-c", hangs)
		c.Stdout = os.Stdout
		_, err := StartGuarded(c)
		require.NoError(t, err)
		fmt.Println("ready")
		select {}
	}
	if !Exists("/proc/self/stat") {
		t.Skip("finding the guard needs /proc")
	}
	c := exec.Command(os.Args[0], "-test.run=^TestGuarded$")
	c.Env = append(os.Environ(), "LFACTOR_TEST_GUARDED=1")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	var pids []int
	for lines, ready := bufio.NewScanner(out), false; (len(pids) < 6 || !ready) && lines.Scan(); {
		var a, b int
		if lines.Text() == "ready" {
			ready = true
			continue
		}
		_, err := fmt.Sscan(lines.Text(), &a, &b)
		require.NoError(t, err, lines.Text())
		pids = append(pids, a, b)
	}
	require.Len(t, pids, 6)
	for _, p := range pids {
		require.NoError(t, syscall.Kill(p, 0))
	}
	require.NoError(t, c.Process.Kill())
	_ = c.Wait() // it was killed
	for _, p := range pids {
		require.Eventually(t, func() bool { return gone(p) }, 2*time.Minute, 5*time.Millisecond, "%d", p)
	}
	says := filepath.Join(t.TempDir(), "left")
	c = exec.Command("sh", "-c", `sleep 600 & echo $! > "$0"`, says)
	release, err := StartGuarded(c)
	require.NoError(t, err)
	require.NoError(t, c.Wait())
	release()
	said, err := os.ReadFile(says)
	require.NoError(t, err)
	var left int
	_, err = fmt.Sscan(string(said), &left)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return gone(left) }, 2*time.Minute, 5*time.Millisecond)
}

// gone reports whether a process has ended, whoever is to hear of it.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(after, "Z")
}

// guardsOf are the guards of a process.
func guardsOf(pid int) (out []int) {
	entries, _ := os.ReadDir("/proc") // it is there
	for _, e := range entries {
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		before, after, _ := strings.Cut(string(text), ") ")
		var state string
		var parent, id int
		if _, err := fmt.Sscan(after, &state, &parent); err != nil || parent != pid || state == "Z" {
			continue
		}
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline") // it may have ended
		if _, err := fmt.Sscan(before, &id); err == nil && strings.HasPrefix(string(line), guardWord) {
			out = append(out, id)
		}
	}
	return out
}

// TestWatch: groups that were begun and not given back are ended, whatever else is said.
func TestWatch(t *testing.T) {
	var ended []int
	watch(strings.NewReader("+7\n+8\n-7\nnonsense\n0\n+9\n-9\n"), func(g int) { ended = append(ended, g) })
	require.Equal(t, []int{8}, ended)
}
