package store

import (
	"container/list"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// More files than may be open at once are all readable, by many at once, and the pool holds its bound.
func TestPoolBound(t *testing.T) {
	p := &pool{max: 4, open: list.New()}
	dir := t.TempDir()
	var all []*local
	for i := range 40 {
		path := filepath.Join(dir, fmt.Sprint(i))
		require.NoError(t, os.WriteFile(path, []byte(fmt.Sprintf("content %02d", i)), 0o600))
		l, err := p.add(path)
		require.NoError(t, err)
		all = append(all, l)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			b := make([]byte, 2)
			for k := range 400 {
				i := (k*7 + w*11) % len(all)
				if _, err := all[i].ReadAt(b, 8); err != nil || string(b) != fmt.Sprintf("%02d", i) {
					t.Errorf("file %d: %q %v", i, b, err)
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, p.open.Len(), 4)
	for _, l := range all {
		require.NoError(t, l.Close())
	}
	require.Zero(t, p.open.Len())
}

// The bound leaves most of the files that a process may have to everything else.
func TestOpenFiles(t *testing.T) {
	for limit, want := range map[int64]int{0: 512, 16: 8, 256: 64, 1024: 256, 1 << 20: 512} {
		require.Equal(t, want, openFiles(limit))
	}
}

// A file that was replaced while it was closed is not read as the old one.
func TestPoolChangedFile(t *testing.T) {
	p := &pool{max: 1, open: list.New()}
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	require.NoError(t, os.WriteFile(a, []byte("old"), 0o600))
	require.NoError(t, os.WriteFile(b, []byte("other"), 0o600))
	l, err := p.add(a)
	require.NoError(t, err)
	_, err = p.add(b)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(a, []byte("new"), 0o600))
	require.NoError(t, os.Chtimes(a, time.Unix(1, 0), time.Unix(1, 0)))
	_, err = l.ReadAt(make([]byte, 3), 0)
	require.ErrorContains(t, err, "was changed while it was in use")
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"https://user:secret@host/a/b.tar?X-Amz-Signature=secret#frag": "https://host/a/b.tar",
		"s3://bucket/key":        "s3://bucket/key",
		"/plain/path?with=query": "/plain/path?with=query",
		"https://%zz":            "https://…",
	} {
		require.Equal(t, want, Redact(in))
	}
	_, err := Open("gopher://user:secret@host/x")
	require.ErrorContains(t, err, "gopher://host/x")
	require.NotContains(t, err.Error(), "secret")
}
