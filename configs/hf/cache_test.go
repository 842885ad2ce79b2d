package hf

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// cacheOf lays out a repository as huggingface_hub 1.2 does: blobs, links to them in a snapshot, and the
// commit of main.
func cacheOf(t *testing.T, root string, files ...string) (dir, commit string) {
	dir, commit = filepath.Join(root, "models--some--gated-1b"), "5a51f3a3"
	for _, d := range []string{"blobs", "refs", "snapshots/" + commit} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "refs", "main"), []byte(commit+"\n"), 0o644))
	for _, f := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "blobs", "b-"+f), []byte("{}"), 0o644))
		require.NoError(t, os.Symlink("../../blobs/b-"+f, filepath.Join(dir, "snapshots", commit, f)))
	}
	return
}

// TestResolve: a repository's name, with or without a revision, and the repository's folder mean the
// snapshot; other paths mean themselves, and what a cache lacks is said with how to get it.
func TestResolve(t *testing.T) {
	root := t.TempDir()
	env := func(k string) string { return map[string]string{"HF_HUB_CACHE": root}[k] }
	dir, commit := cacheOf(t, root, "config.json", "model.safetensors")
	want := filepath.Join(dir, "snapshots", commit)
	for _, path := range []string{"some/gated-1b", "some/gated-1b@main", "some/gated-1b@" + commit,
		dir, want} {
		got, err := Resolve(path, env)
		require.NoError(t, err, path)
		require.Equal(t, want, got, path)
		require.Equal(t, "some/gated-1b", RepoOf(got))
	}
	for _, path := range []string{"other/model", "no/such/dir", t.TempDir(), "../../etc"} {
		got, err := Resolve(path, env)
		require.NoError(t, err, path)
		require.Equal(t, path, got)
		require.Empty(t, RepoOf(got))
	}
	require.Contains(t, Absent("other/model", env),
		"no repository of this name in Hugging Face's cache "+root+"; `hf download other/model` fetches one")
	require.Empty(t, Absent("../../etc", env))
	require.Contains(t, Partial(want), "`hf download some/gated-1b` fetches the rest")
	require.Empty(t, Partial(root))
	_, err := Resolve("some/gated-1b@v2", env)
	require.ErrorContains(t, err,
		`no snapshot of v2 of some/gated-1b, only ["5a51f3a3"]; `+"`hf download some/gated-1b --revision v2`")
	_, err = Resolve("some/gated-1b@../../../etc", env)
	require.ErrorContains(t, err, "no snapshot")
	require.NoError(t, os.Remove(filepath.Join(dir, "blobs", "b-model.safetensors")))
	_, err = Resolve("some/gated-1b", env)
	require.ErrorContains(t, err,
		"model.safetensors links to a file that is not in the cache: the download was not finished")
	require.NoError(t, os.Remove(filepath.Join(want, "model.safetensors")))
	require.NoError(t, os.Remove(filepath.Join(want, "config.json")))
	_, err = Resolve("some/gated-1b", env)
	require.ErrorContains(t, err, "as of a gated repository whose terms were not accepted")
}
