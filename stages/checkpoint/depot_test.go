package checkpoint

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// halves saves step 1 below two roots as two hosts do: each writes its half, and a has both.
func halves(t *testing.T, a, b string) (text []byte, shards []Shard) {
	t.Helper()
	here := Here{OS}
	for i, root := range []string{a, b} {
		require.NoError(t, here.Begin(root, 1))
		p := Piece{Name: "w", Kind: Param, DType: "U8", Shape: []int{4}, Box: [][2]int{{2 * i, 2*i + 2}}}
		s, err := JoinSave(OS, root, 1).WriteShard([]string{"a", "b"}[i]+".safetensors", []Piece{p},
			func(int) ([]byte, error) { return []byte{byte(2 * i), byte(2*i + 1)}, nil })
		require.NoError(t, err)
		shards = append(shards, s)
	}
	carry(t, b, a, shards[1])
	text, err := JoinSave(OS, a, 1).Manifest(shards...)
	require.NoError(t, err)
	for _, root := range []string{a, b} {
		require.NoError(t, here.Settle(root, 1, text))
		require.NoError(t, here.Publish(root, 1, 1))
	}
	return text, shards
}

// carry copies a shard of the step under way.
func carry(t *testing.T, from, to string, s Shard) {
	t.Helper()
	f, err := Here{OS}.Fetch(from, 1, s.File)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, Here{OS}.Store(to, 1, s, f))
}

// TestDepot: a root with all shards is a checkpoint as any other; one with some is opened in part, and
// fetches what it lacks or has damaged when that is read.
func TestDepot(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	_, shards := halves(t, a, b)
	whole, err := Open(a)
	require.NoError(t, err)
	require.NoError(t, whole.Verify())
	require.NoError(t, whole.Close())
	_, err = Open(b)
	require.ErrorContains(t, err, "a.safetensors")
	h, err := Here{OS}.Holdings(b)
	require.NoError(t, err)
	require.Equal(t, int64(1), h.Latest)
	require.Equal(t, []string{"b.safetensors"}, h.Steps[0].Have)
	require.Len(t, h.Steps[0].Files, 2)

	var fetched []string
	fetch := func(s Shard) error {
		fetched = append(fetched, s.File)
		f, err := Here{OS}.Fetch(a, 1, s.File)
		require.NoError(t, err)
		defer f.Close()
		return Take(OS, b, 1, s, f)
	}
	part, err := OpenPart(StepDir(b, 1), fetch)
	require.NoError(t, err)
	got := make([]byte, 2)
	require.NoError(t, part.ReadLogical("w", Param, [][2]int{{2, 4}}, got))
	require.Equal(t, []byte{2, 3}, got)
	require.Empty(t, fetched, "what is read lies here")
	require.NoError(t, part.ReadLogical("w", Param, [][2]int{{0, 2}}, got))
	require.Equal(t, []byte{0, 1}, got)
	require.Equal(t, []string{"a.safetensors"}, fetched)
	require.NoError(t, part.Close())

	path := filepath.Join(StepDir(b, 1), "b.safetensors")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text[len(text)-1] ^= 1
	require.NoError(t, os.WriteFile(path, text, 0o600))
	part, err = OpenPart(StepDir(b, 1), fetch)
	require.NoError(t, err)
	n, err := part.Complete()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{"a.safetensors", shards[1].File}, fetched)
	require.NoError(t, part.Close())
	whole, err = Open(b)
	require.NoError(t, err)
	require.NoError(t, whole.Verify())
	require.NoError(t, whole.Close())
}

// TestDepotRefuses: a copy with other bytes is refused and leaves nothing; names that lead elsewhere are
// refused, and so is a manifest of another step.
func TestDepotRefuses(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	text, shards := halves(t, a, b)
	here := Here{OS}
	require.NoError(t, here.Begin(b, 2))
	tmp := JoinSave(OS, b, 2).tmp()
	good, err := os.ReadFile(filepath.Join(StepDir(a, 1), shards[0].File))
	require.NoError(t, err)
	for name, bytesOf := range map[string][]byte{"short": good[:len(good)-1], "long": append(good[:], 0),
		"altered": bytes.Replace(good, []byte("U8"), []byte("I8"), 1)} {
		require.ErrorContains(t, here.Store(b, 2, shards[0], bytes.NewReader(bytesOf)), "hash", name)
	}
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
	entries, err := os.ReadDir(b)
	require.NoError(t, err)
	for _, e := range entries {
		require.False(t, strings.HasPrefix(e.Name(), tmpPrefix+"take"), e.Name())
	}
	for _, name := range []string{"../latest", "/etc/passwd", "latest", "a.txt", ".lock"} {
		_, err := here.Fetch(b, 1, name)
		require.Error(t, err, name)
		require.Error(t, here.Store(b, 2, Shard{File: name}, bytes.NewReader(nil)), name)
		_, err = here.Record(b, name)
		require.Error(t, err, name)
		require.Error(t, here.Append(b, name, 0, bytes.NewReader(nil)), name)
		_, err = here.Sees(b, name)
		require.Error(t, err, name)
	}
	require.ErrorContains(t, here.Settle(b, 2, text), "step 1")
	require.Error(t, here.Publish(b, 2, 1), "it has no manifest")
	at, err := latestStep(b)
	require.NoError(t, err)
	require.Equal(t, stepName(1), at)
}

// TestAppend: a record grows by what is sent, is cut where less is true, and has no holes.
func TestAppend(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	here := Here{OS}
	for _, c := range []struct {
		at         int64
		text, want string
	}{{0, "one ", "one "}, {4, "two", "one two"}, {4, "2", "one 2"}, {0, "new", "new"}} {
		require.NoError(t, here.Append(dir, "x.ledger", c.at, strings.NewReader(c.text)))
		f, err := here.Record(dir, "x.ledger")
		require.NoError(t, err)
		got, err := io.ReadAll(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Equal(t, c.want, string(got))
	}
	require.ErrorContains(t, here.Append(dir, "x.ledger", 4, strings.NewReader("z")), "has 3 bytes")
}

// TestAdopt: the manifest of a step that other hosts have replaces one that the run has given up.
func TestAdopt(t *testing.T) {
	a, b, c := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b"), filepath.Join(t.TempDir(),
		"c")
	text, _ := halves(t, a, b)
	require.NoError(t, Adopt(OS, c, 1, text))
	require.NoError(t, Adopt(OS, c, 1, text))
	got, err := os.ReadFile(filepath.Join(StepDir(c, 1), ManifestName))
	require.NoError(t, err)
	require.Equal(t, text, got)
	other, err := JoinSave(OS, a, 1).Manifest()
	require.NoError(t, err)
	require.NoError(t, Adopt(OS, c, 1, other))
	got, err = os.ReadFile(filepath.Join(StepDir(c, 1), ManifestName))
	require.NoError(t, err)
	require.Equal(t, other, got)
	require.Error(t, Adopt(OS, c, 1, []byte("{")))
}
