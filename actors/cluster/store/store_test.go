package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStore: values survive the member's end, revisions only rise, and what may happen once happens once.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, Log: filepath.Join(dir, "etcd.log")}
	s, err := Open(o)
	require.NoError(t, err)
	a, err := s.Put("jobs/1", map[string]int{"x": 1})
	require.NoError(t, err)
	b, err := s.Create("tokens/t", true)
	require.NoError(t, err)
	require.Greater(t, b, a)
	_, err = s.Create("tokens/t", true)
	require.ErrorIs(t, err, ErrConflict)
	s.Close()
	s, err = Open(o)
	require.NoError(t, err)
	defer s.Close()
	var v map[string]int
	ok, err := s.Get("jobs/1", &v)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 1, v["x"])
	var yes bool
	ok, err = s.Take("tokens/t", &yes)
	require.NoError(t, err)
	require.True(t, ok && yes)
	ok, err = s.Take("tokens/t", &yes)
	require.NoError(t, err)
	require.False(t, ok, "a second taker gets nothing")
	c, err := s.Put("jobs/2", v)
	require.NoError(t, err)
	require.Greater(t, c, b)
	var keys []string
	require.NoError(t, s.List("jobs/", func(k string, _ []byte) error {
		keys = append(keys,
			k)
		return nil
	}))
	require.Equal(t, []string{"1", "2"}, keys)
}

// TestRestore: a backup brings back what there was, with revisions that nobody has had; anything else
// is not a backup.
func TestRestore(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, Log: filepath.Join(dir, "etcd.log")}
	s, err := Open(o)
	require.NoError(t, err)
	_, err = s.Put("a", 1)
	require.NoError(t, err)
	file := filepath.Join(dir, "backup")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, s.Backup(f))
	require.NoError(t, f.Close())
	later, err := s.Put("a", 2)
	require.NoError(t, err)
	s.Close()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, bad := range [][]byte{nil, []byte("x"), text[:len(text)/2],
		append([]byte{text[0] ^ 1}, text[1:]...)} {
		require.NoError(t, os.WriteFile(file+".bad", bad, 0o600))
		require.ErrorContains(t, Restore(file+".bad", dir), "not a backup of a cluster")
	}
	require.NoError(t, Restore(file, dir))
	s, err = Open(o)
	require.NoError(t, err)
	defer s.Close()
	var v int
	ok, err := s.Get("a", &v)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 1, v)
	next, err := s.Put("a", 3)
	require.NoError(t, err)
	require.Greater(t, next, later)
}
