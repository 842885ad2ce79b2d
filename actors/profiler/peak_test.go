package profiler

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeepPeaks: a machine's peak is the highest that was measured on it; another machine's does not count,
// and a damaged file is written anew.
func TestKeepPeaks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "peaks.json")
	require.Equal(t, peaks{5, 9}, keep(file, "a", peaks{5, 9}))
	require.Equal(t, peaks{7, 9}, keep(file, "a", peaks{7, 2}), "a disturbed measurement lowers nothing")
	require.Equal(t, peaks{1, 1}, keep(file, "b", peaks{1, 1}))
	require.Equal(t, peaks{7, 9}, keep(file, "a", peaks{}))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	for _, text := range []string{"nonsense", "null", `{"a": 3}`} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.Equal(t, peaks{2, 3}, keep(file, "a", peaks{2, 3}), text)
		require.Equal(t, peaks{2, 3}, keep(file, "a", peaks{}), text)
	}
}
