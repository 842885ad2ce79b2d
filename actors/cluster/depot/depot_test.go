package depot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/edge"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// identity is that of a node of a cluster.
func identity(t *testing.T, ca *trust.CA, name string, role trust.Role) *trust.Identity {
	t.Helper()
	dir := t.TempDir()
	key, err := trust.NewKey()
	require.NoError(t, err)
	cert, err := ca.Issue(trust.Subject{Name: name, Role: role}, &key.PublicKey, time.Now(), time.Hour)
	require.NoError(t, err)
	require.NoError(t, trust.SaveIdentity(dir, ca.Cert, cert, key))
	id, err := trust.Load(dir, nil)
	require.NoError(t, err)
	return id
}

// served is a host h1 whose storage below root is served.
func served(t *testing.T) (root, addr string, ca *trust.CA) {
	t.Helper()
	ca, err := trust.NewCA("test", time.Now())
	require.NoError(t, err)
	root = filepath.Join(t.TempDir(), "ckpt")
	ln, err := edge.Listen("127.0.0.1:0", identity(t, ca, "h1", trust.Agent), edge.Options{})
	require.NoError(t, err)
	s := NewServer(checkpoint.Here{FS: checkpoint.OS}, ln.Addr(), func(dir string) bool { return dir == root }, func(_ string, do func()) { do() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.Take(c.(*edge.Conn))
		}
	}()
	t.Cleanup(func() { s.Close(); ln.Close() })
	return root, ln.Addr().String(), ca
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestDepot: another host's storage takes and gives what this host's would, also files larger than any
// buffer.
func TestDepot(t *testing.T) {
	root, addr, ca := served(t)
	c := NewClient("h1", addr, identity(t, ca, "h2", trust.Agent), 1)
	defer c.Close()
	h, err := c.Holdings(root)
	require.NoError(t, err)
	require.Equal(t, checkpoint.Holdings{Latest: -1}, h)
	require.NoError(t, c.Begin(root, 3))
	large := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	s := checkpoint.Shard{File: "rank-0.safetensors", Bytes: int64(len(large)), SHA256: sumOf(large)}
	require.NoError(t, c.Store(root, 3, s, bytes.NewReader(large)))
	f, err := c.Fetch(root, 3, s.File)
	require.NoError(t, err)
	got, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.True(t, bytes.Equal(large, got))
	require.NoError(t, c.Append(root, "x.ledger", 0, strings.NewReader("a step")))
	f, err = c.Record(root, "x.ledger")
	require.NoError(t, err)
	got, err = io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, "a step", string(got))
	marker, remove, err := checkpoint.Mark(checkpoint.OS, root, "0123456789abcdef")
	require.NoError(t, err)
	for _, want := range []bool{true, false} {
		sees, err := c.Sees(root, marker)
		require.NoError(t, err)
		require.Equal(t, want, sees)
		remove()
	}
	text, err := checkpoint.JoinSave(checkpoint.OS, root, 3).Manifest()
	require.NoError(t, err)
	require.NoError(t, c.Settle(root, 3, text))
	require.NoError(t, c.Publish(root, 3, 1))
	h, err = c.Holdings(root)
	require.NoError(t, err)
	require.Equal(t, int64(3), h.Latest)
}

// TestDepotRefuses: directories of nobody's job, stale leaders, altered copies and other roles are refused,
// and nothing of it is written.
func TestDepotRefuses(t *testing.T) {
	root, addr, ca := served(t)
	id := identity(t, ca, "h2", trust.Agent)
	old, c := NewClient("h1", addr, id, 1), NewClient("h1", addr, id, 2)
	require.NoError(t, c.Begin(root, 1))
	require.ErrorContains(t, old.Begin(root, 2), "a newer process that leads")
	require.ErrorContains(t, old.Publish(root, 1, 1), "a newer process that leads")
	s := checkpoint.Shard{File: "rank-0.safetensors", Bytes: 4, SHA256: sumOf([]byte("good"))}
	require.ErrorContains(t, c.Store(root, 1, s, strings.NewReader("evil")), "hash")
	for _, dir := range []string{root + "x", filepath.Dir(root), root + "/../ckpt", "ckpt", "/etc", ""} {
		require.ErrorContains(t, c.Begin(dir, 1), "is not a directory of a job", dir)
	}
	_, err := c.Fetch(root, 1, "rank-0.safetensors")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = c.Fetch(root, 1, "../../x.safetensors")
	require.Error(t, err)
	require.False(t, errors.Is(err, fs.ErrNotExist), "it is not even looked for: %v", err)
	require.Error(t, c.Append(root, "../x.ledger", 0, strings.NewReader("x")))
	user := NewClient("h1", addr, identity(t, ca, "me", trust.Admin), 3)
	require.Error(t, user.Begin(root, 5), "a user is not an agent")
	stranger, err := trust.NewCA("test", time.Now())
	require.NoError(t, err)
	require.Error(t, NewClient("h1", addr, identity(t, stranger, "h2", trust.Agent), 3).Begin(root, 5))
	entries, err := os.ReadDir(filepath.Join(root, ".tmp-step-00000001"))
	require.NoError(t, err)
	require.Empty(t, entries)
	entries, err = os.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, entries, 1, "the step under way alone")
}
