package deploy

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// envExecs is how often the child of TestEnded becomes itself anew.
const envExecs = "LFACTOR_TEST_EXECS"

// TestEnded: a process that becomes another program, from any of its threads, has not ended meanwhile; one that waits to be
// reaped has.
func TestEnded(t *testing.T) {
	if n, err := strconv.Atoi(os.Getenv(envExecs)); err == nil {
		if n == 0 {
			os.Exit(7)
		}
		_ = os.Setenv(envExecs, strconv.Itoa(n-1)) // its name is a good one
		again()
		select {}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self, "-test.run=^TestEnded$")
	c.Env = append(os.Environ(), envExecs+"=60")
	require.NoError(t, c.Start())
	for !ended(c.Process.Pid) { // the next line says whether it was the end
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(c.Process.Pid) + "/task/" + strconv.Itoa(c.Process.Pid) + "/cmdline")
	require.NoError(t, err)
	require.Empty(t, text, "it goes on: it has become another program")
	var x *exec.ExitError
	require.ErrorAs(t, c.Wait(), &x)
	require.Equal(t, 7, x.ExitCode())
}

// again makes a process itself anew, from a thread that is not its first.
func again() {
	runtime.LockOSThread()
	if syscall.Gettid() == os.Getpid() {
		go again() // on another one
		return
	}
	_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ()) // the parent sees how the process ends
	os.Exit(1)
}
