package jobs

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLineShown: what a job writes moves no terminal.
func TestLineShown(t *testing.T) {
	var out bytes.Buffer
	Line{Host: "h1", Text: "a\x1b]0;t\x07\rb"}.print(&out)
	require.Equal(t, "h1 0│ a\\x1b]0;t\\x07\\x0db\n", out.String())
}
