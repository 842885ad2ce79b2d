package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/reference"
)

// TestReference: docs/reference is what the program says of itself, but for what registered_test.go registers beside it.
func TestReference(t *testing.T) {
	own := regexp.MustCompile("`?(shout|descent|halving)`?, |\\| `descent` .*\n")
	for name, want := range reference.Pages(root()) {
		want = own.ReplaceAllString(want, "")
		have, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", name))
		require.NoError(t, err)
		require.True(t, string(have) == want,
			"docs/reference/%s: run go run ./cmd/lfactor reference docs/reference", name)
	}
}

// TestManuals: every command has a manual page.
func TestManuals(t *testing.T) {
	dir := t.TempDir()
	c := root()
	c.SetArgs([]string{"reference", "--man", dir})
	require.NoError(t, c.Execute())
	found, err := filepath.Glob(filepath.Join(dir, "lfactor-*.1"))
	require.NoError(t, err)
	require.Greater(t, len(found), 50)
	text, err := os.ReadFile(filepath.Join(dir, "lfactor-train.1"))
	require.NoError(t, err)
	require.Contains(t, string(text), `.TH "LFACTOR" "1"`)
}
