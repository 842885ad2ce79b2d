package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVisible: what would move a terminal is shown and not sent, however it is cut into pieces; other text is as it
// was.
func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"a\x1b[2Jb\n": "a\\x1b[2Jb\n", "\x1b]0;t\x07": "\\x1b]0;t\\x07", "x\u009b2J": "x\\x9b2J", "a\r\tb": "a\r\tb",
		"é│✓ Â£": "é│✓ Â£", "\x7f\b\x00": "\\x7f\\x08\\x00", "\u0085": "\\x85", "\xc2\x1b": "\xc2\\x1b",
	} {
		for size := 1; size <= 8; size++ {
			var out bytes.Buffer
			w := Visible(&out, "\r")
			for b := []byte(text); len(b) > 0; {
				n := min(size, len(b))
				m, err := w.Write(b[:n])
				require.NoError(t, err)
				require.Equal(t, n, m)
				b = b[n:]
			}
			require.Equal(t, want, out.String(), "%q by %d", text, size)
		}
	}
}
