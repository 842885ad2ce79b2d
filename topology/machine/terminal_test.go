package machine

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTerminal: nobody types into /dev/null, although it is a character device, nor into a file.
func TestTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	require.False(t, Terminal(null))
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	require.False(t, Terminal(f))
	if tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err == nil {
		defer tty.Close()
		require.True(t, Terminal(tty))
	}
}
