package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAs: what is done as a user has no more than that user's rights to files, and what follows has
// this process's again.
func TestAs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root becomes others")
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "x")
	require.NoError(t, os.WriteFile(name, []byte("x"), 0o600))
	var err error
	As(12345, 12345, func() { _, err = os.ReadFile(name) })
	require.ErrorIs(t, err, os.ErrPermission)
	_, err = os.ReadFile(name)
	require.NoError(t, err)
}

// TestOutermost: directories within others are left out.
func TestOutermost(t *testing.T) {
	require.Equal(t, []string{"/a", "/b/c"}, Outermost([]string{"/a", "/a/x", "/b/c", "/a/x/y"}))
	require.Equal(t, []string{"/"}, Outermost([]string{"/a", "/"}))
}
