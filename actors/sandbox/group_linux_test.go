package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGroup: memory and processes are bounded of all that a program has begun, where control groups can be
// had, and no group is left.
func TestGroup(t *testing.T) {
	if err := Check(); err != nil {
		t.Skip(err) // likewise
	}
	l := Limits{Memory: 256 << 20, Processes: 20}.usual()
	g := newGroup(l)
	defer g.remove()
	if len(g.dirs) == 0 {
		t.Skip("this process may make no control group")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	four := `python3 -c "
import os
kids = []
for i in range(4):
    pid = os.fork()
    if pid == 0:
        b = bytearray(150 << 20)
        for i in range(0, len(b), 4096): b[i] = 1
        import time; time.sleep(1)
        os._exit(0)
    kids.append(pid)
for pid in kids: assert os.waitpid(pid, 0)[1] == 0
print('finished')"`
	out, err := run(t, l, time.Minute, four)
	require.Error(t, err, out)
	require.NotContains(t, out, "finished")
	out, err = run(t, Limits{Memory: 1 << 30, Processes: 20}, time.Minute, four)
	require.NoError(t, err, out)
	out, err = run(t, l, time.Minute, "for i in $(seq 60); do sleep 2 & done; echo begun; wait")
	require.NotEqual(t, "begun\n", out, "%v", err)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(g.dirs[0]), fmt.Sprintf("lfactor-%d-*",
		os.Getpid())))
	require.NoError(t, err)
	require.Equal(t, g.dirs[:1], left)
	elsewhere := t.TempDir() // no control groups, though a folder can be made
	require.Empty(t, groupOf(l, elsewhere, "0::/\n").dirs)
	none, err := os.ReadDir(elsewhere)
	require.NoError(t, err)
	require.Empty(t, none)
}

// TestNobody: a program that has nothing to do with the caller's folder reads neither root's files nor those
// of the machine's users, and where its interpreter is among these it runs all the same.
func TestNobody(t *testing.T) {
	if err := Check(); err != nil {
		t.Skip(err) // likewise
	}
	users, err := os.ReadFile("/proc/self/uid_map")
	require.NoError(t, err)
	if os.Getuid() == 0 && slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"}) {
		out, err := run(t, Limits{}, time.Minute, "id -u") // whatever drops says
		require.NoError(t, err, out)
		require.Equal(t, fmt.Sprintln(other), out, "root's programs are nobody's on a machine with all users")
	}
	wd, err := os.Getwd()
	require.NoError(t, err)
	out, err := run(t, Limits{}, time.Minute, "cat /etc/shadow || cat "+filepath.Join(wd,
		"doc.go")+" || ls /home/* || ls /root/.ssh")
	if drops(Limits{}) {
		require.Error(t, err, out)
		require.NotContains(t, out, "package sandbox")
	}
	out, err = run(t, Limits{Here: true}, time.Minute, "cat "+filepath.Join(wd, "doc.go"))
	require.NoError(t, err, out)
	if python, err := exec.LookPath("python3"); err == nil {
		out, err := run(t, Limits{}, time.Minute, python+" -c 'import json, ctypes, unittest; print(1)'")
		if prefix(python) == "" {
			require.NoError(t, err, out)
		}
	}
}
