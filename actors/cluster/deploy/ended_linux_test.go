package deploy

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// envEnded makes the test's program a child of TestEnded: "first" ends its first thread, and becomes "again" from another
// when its input ends.
const envEnded = "LFACTOR_TEST_ENDED"

func init() { // on the first thread
	switch os.Getenv(envEnded) {
	case "first":
		self, err := os.Executable()
		if err != nil {
			panic(err)
		}
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			panic(syscall.Exec(self, os.Args, []string{envEnded + "=again"}))
		}()
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // of this thread alone
	case "again":
		os.Exit(7)
	}
}

// TestEnded: a process whose first thread waits to be reaped while another goes on has not ended: so it stands for a moment
// where another thread makes a new program of it. One that waits to be reaped as a whole has.
func TestEnded(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self)
	c.Env = append(os.Environ(), envEnded+"=first")
	in, err := c.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	pid := c.Process.Pid
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // it may be gone
	zombie := regexp.MustCompile(`\) Z `)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.False(t, ended(pid), "%s: another thread goes on", text)
		return err == nil && zombie.Match(text)
	}, time.Minute, time.Millisecond)
	require.False(t, ended(pid))
	require.NoError(t, in.Close())
	require.Eventually(t, func() bool { return ended(pid) }, time.Minute, time.Millisecond)
	var x *exec.ExitError
	require.ErrorAs(t, c.Wait(), &x)
	require.Equal(t, 7, x.ExitCode(), "it went on as another program")
	require.True(t, ended(pid))
}
