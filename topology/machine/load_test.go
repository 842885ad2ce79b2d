package machine

import (
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLoad: what another program works is seen, and never more than there is.
func TestLoad(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says what processors have worked")
	}
	other := exec.Command("sh", "-c", "while :; do :; done")
	require.NoError(t, other.Start())
	defer func() {
		require.NoError(t, other.Process.Kill())
		_ = other.Wait() // it was killed
	}()
	l := NewLoad()
	require.Eventually(t, func() bool { return l.Others() > 0.05/float64(runtime.NumCPU()) }, 2*time.Minute,
		20*time.Millisecond)
	// the system counts in hundredths of a second, of which a short time has too few
	for time.Since(l.began) < time.Second {
		runtime.Gosched()
	}
	require.LessOrEqual(t, l.Others(), 1.2)
}
