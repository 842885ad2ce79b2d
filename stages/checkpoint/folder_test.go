package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLinks: a snapshot of Hugging Face's cache, whose files are links to blobs, opens and is copied like a
// directory of files; weights may lie on another disk; but a link elsewhere is not copied as a side file.
func TestLinks(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "models--a--b")
	snap := filepath.Join(repo, "snapshots", "c0ffee")
	for _, d := range []string{snap, filepath.Join(repo, "blobs")} {
		require.NoError(t, os.MkdirAll(d, 0o755))
	}
	want, err := OpenDir("testdata/sharded")
	require.NoError(t, err)
	defer want.Close()
	entries, err := os.ReadDir("testdata/sharded")
	require.NoError(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join("testdata/sharded", e.Name()))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(repo, "blobs", "b-"+e.Name()), text, 0o644))
		require.NoError(t, os.Symlink("../../blobs/b-"+e.Name(), filepath.Join(snap, e.Name())))
	}
	require.NoError(t, os.WriteFile(filepath.Join(repo, "blobs", "t"), []byte("{}"), 0o644))
	require.NoError(t, os.Symlink("../../blobs/t", filepath.Join(snap, "tokenizer.json")))
	got, err := OpenDir(snap)
	require.NoError(t, err)
	require.Equal(t, want.Tensors(), got.Tensors())
	got.Close()

	out := filepath.Join(t.TempDir(), "out")
	names, err := CopySideFiles(snap, out)
	require.NoError(t, err)
	require.Contains(t, names, "tokenizer.json")
	info, err := os.Lstat(filepath.Join(out, "tokenizer.json"))
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular())

	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("password"), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(snap, "LICENSE")))
	_, err = CopySideFiles(snap, out)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, Unsafe, e.Fault)
	require.NoFileExists(t, filepath.Join(out, "LICENSE"))

	disk := filepath.Join(t.TempDir(), "weights") // another disk
	require.NoError(t, os.Rename(filepath.Join(repo, "blobs", "b-"+entries[0].Name()), disk))
	require.NoError(t, os.Remove(filepath.Join(snap, entries[0].Name())))
	require.NoError(t, os.Symlink(disk, filepath.Join(snap, entries[0].Name())))
	got, err = OpenDir(snap)
	require.NoError(t, err)
	got.Close()
}
