package checkpoint

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// madeUp is a source whose bytes follow from names and places.
type madeUp struct{ infos []Info }

func (m madeUp) Tensors() []Info { return m.infos }
func (m madeUp) Close() error    { return nil }
func (m madeUp) ReadRanges(name string, box [][2]int, dst []byte) error {
	for i := range dst {
		dst[i] = byte(i*7 + len(name) + 31*box[0][0])
	}
	return nil
}

// filesOf are all files below a directory.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		out[path[len(dir):]] = string(text)
		return err
	}))
	return out
}

// plannedThree are two files of tensors and an index.
func plannedThree(t *testing.T, dir string, src Source) []Planned {
	t.Helper()
	var files []Planned
	for i := range 2 {
		f, err := plannedShard(filepath.Join(dir, fmt.Sprintf("model-%05d-of-00002.safetensors", i+1)), src,
			src.Tensors()[i*3:i*3+3])
		require.NoError(t, err)
		files = append(files, f)
	}
	return append(files, FixedFile(filepath.Join(dir, "model.safetensors.index.json"), []byte("index")))
}

// TestBuildGoesOn: a conversion that is killed before any of the things that it does, whose half-written
// bytes and whose journal are damaged besides, gives the same bytes when it is repeated, and leaves nothing
// else; parts that hold to the journal are not read again.
func TestBuildGoesOn(t *testing.T) {
	var infos []Info
	for i := range 6 {
		infos = append(infos, Info{Name: fmt.Sprintf("t%d", i), DType: BF16, Shape: []int{5, 40 + i}})
	}
	src := madeUp{infos}
	want := t.TempDir()
	require.NoError(t, Build(nil, plannedThree(t, filepath.Join(want, "d"), src), nil))
	rng := rand.New(rand.NewPCG(3, 3))
	spared := 0
	for kill, ended := 0, false; !ended; kill++ {
		dir := t.TempDir()
		dst := filepath.Join(dir, "d")
		run := func(kill int) (parts int, err error) {
			n := 0
			b := building{j: NewJournal(dst, "key"), files: plannedThree(t, dst, src)}
			b.one = true
			b.step = func(what string) error {
				if what == "part" {
					parts++
				}
				if n++; n > kill {
					return errKilled
				}
				return nil
			}
			if err = b.build(nil); err == nil {
				require.NoError(t, b.j.Drop())
			}
			if b.j.f != nil {
				require.NoError(t, b.j.f.Close()) // as the end of a process does
			}
			return parts, err
		}
		_, err := run(kill)
		if ended = err == nil; !ended {
			require.ErrorIs(t, err, errKilled)
			damage(t, rng, kill, dst)
			parts, err := run(1 << 20)
			require.NoError(t, err)
			spared += 6 - parts
		}
		require.Equal(t, filesOf(t, want), filesOf(t, dir), "killed at %d", kill)
	}
	require.Greater(t, spared, 20, "parts that were there are not written again")
}

// damage changes what a killed conversion has left: every third time a byte of a file, every third the journal's end.
func damage(t *testing.T, rng *rand.Rand, kill int, dst string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dst, "*.partial"))
	require.NoError(t, err)
	path := JournalPath(dst)
	if kill%3 == 1 && len(paths) > 0 {
		path = paths[rng.IntN(len(paths))]
	} else if kill%3 != 2 {
		return
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	if len(text) == 0 {
		return
	}
	if path == JournalPath(dst) {
		text = text[:len(text)-rng.IntN(min(len(text), 30))]
	} else if kill%2 > 0 {
		text = text[:rng.IntN(len(text))]
	} else {
		text[rng.IntN(len(text))] ^= 1
	}
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// TestBuildLeavesNothing: a source that fails leaves neither files nor a journal; another conversion's
// journal is not gone on with, and two at a time are refused.
func TestBuildLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	dst := filepath.Join(dir, "d")
	bad := errors.New("bad")
	part := Part{Name: "x", Bytes: 4, Fill: func(put func([]byte) error) error { return bad }}
	plan := []Planned{{Path: filepath.Join(dst, "a"), Size: 4, Parts: []Part{part}}}
	require.ErrorIs(t, Build(NewJournal(dst, "a"), plan, nil), bad)
	require.Empty(t, filesOf(t, dir))
	for _, n := range []int{3, 5} {
		plan[0].Parts[0].Fill = func(put func([]byte) error) error { return put(make([]byte, n)) }
		require.Error(t, Build(NewJournal(dst, "a"), plan, nil), "%d bytes of 4", n)
	}
	j := NewJournal(dst, "a")
	require.NoError(t, j.Begin())
	same, other := NewJournal(dst, "a").Begun()
	require.True(t, same && !other)
	same, other = NewJournal(dst, "b").Begun()
	require.True(t, !same && other)
	require.ErrorContains(t, NewJournal(dst, "a").Begin(), "held by another process")
	require.NoError(t, j.Drop())
}

// TestPartsOfFollow: the parts of a tensor are its bytes in order, whatever axis they are cut along.
func TestPartsOfFollow(t *testing.T) {
	for _, shape := range [][]int{{}, {7}, {3 << 20}, {2, 3, 1 << 20}, {1, 5, 1000, 900}, {4, 0}} {
		info := Info{Name: "t", DType: F32, Shape: shape}
		n, err := ByteSize(F32, shape)
		require.NoError(t, err)
		parts, err := PartsOf(rowMajorSource{}, info, 100)
		require.NoError(t, err)
		at := int64(100)
		for _, p := range parts {
			require.Equal(t, at, p.Offset)
			require.LessOrEqual(t, p.Bytes, int64(partBytes))
			require.NoError(t, p.Fill(func(b []byte) error {
				require.Len(t, b, int(p.Bytes))
				return nil
			}))
			at += p.Bytes
		}
		require.Equal(t, 100+n, at)
	}
}

// rowMajorSource checks that boxes have the bytes that are asked for.
type rowMajorSource struct{ Source }

func (rowMajorSource) ReadRanges(_ string, box [][2]int, dst []byte) error {
	n := 4
	for _, b := range box {
		n *= b[1] - b[0]
	}
	if n != len(dst) {
		return fmt.Errorf("box %v takes %d bytes, not %d", box, n, len(dst))
	}
	return nil
}
