package cli

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
)

// TestHeard: the first request to stop ends a process whose command does not listen to it, and leaves one
// that does to itself.
func TestHeard(t *testing.T) {
	const role = "LFACTOR_TEST_HEARD"
	if listens := os.Getenv(role); listens != "" {
		ctx, stop := Interruptible()
		defer stop()
		done := make(<-chan struct{})
		if listens == "yes" {
			done = ctx.Done()
		}
		fmt.Println("ready")
		<-done
		os.Exit(7)
	}
	for listens, code := range map[string]int{"yes": 7, "no": exit.Interrupted} {
		for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			c := exec.Command(os.Args[0], "-test.run=^TestHeard$")
			c.Env = append(os.Environ(), role+"="+listens)
			out, err := c.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, c.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "ready\n", line)
			require.NoError(t, c.Process.Signal(sig))
			_ = c.Wait()
			require.Equal(t, code, c.ProcessState.ExitCode(), "listens: %s, %v", listens, sig)
		}
	}
}
