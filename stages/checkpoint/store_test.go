package checkpoint

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func steps(t *testing.T, root string) []int64 {
	entries, err := List(root)
	require.NoError(t, err)
	var out []int64
	for _, e := range entries {
		out = append(out, e.Step)
	}
	return out
}

func TestListLatestAndPrune(t *testing.T) {
	root := filepath.Join(t.TempDir(), "ckpt")
	require.Empty(t, steps(t, root), "a root that does not exist has none")
	_, err := Latest(root)
	require.ErrorIs(t, err, ErrNone)
	_, err = Open(root)
	require.ErrorIs(t, err, os.ErrNotExist)
	for step := int64(1); step <= 5; step++ {
		require.NoError(t, saveStep(quick, root, step))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "step-abc"), nil, 0o644))
	entries, err := List(root)
	require.NoError(t, err)
	require.Len(t, entries, 5)
	require.Equal(t, Entry{Step: 5, Path: StepDir(root, 5), Latest: true, Bytes: entries[0].Bytes,
		Saved: entries[0].Saved}, entries[0])
	require.Positive(t, entries[0].Bytes)
	require.False(t, entries[0].Saved.IsZero())
	require.False(t, entries[1].Latest)

	removed, err := Prune(quick, root, 3)
	require.NoError(t, err)
	require.Equal(t, []string{StepDir(root, 2), StepDir(root, 1)}, removed)
	require.Equal(t, []int64{5, 4, 3}, steps(t, root))
	_, err = Prune(quick, root, 0)
	require.ErrorContains(t, err, "at least one")
}

func TestPruneKeepsWhatLatestNames(t *testing.T) {
	root := t.TempDir()
	for step := int64(1); step <= 4; step++ {
		require.NoError(t, saveStep(quick, root, step))
	}
	require.NoError(t, Rewind(quick, root, 2))
	removed, err := Prune(quick, root, 1)
	require.NoError(t, err)
	require.Equal(t, []string{StepDir(root, 3), StepDir(root, 1)}, removed)
	requireWhole(t, root, 2, "")

	require.NoError(t, os.WriteFile(filepath.Join(root, "latest"), []byte("../../etc"), 0o644))
	_, err = Prune(quick, root, 1)
	require.ErrorContains(t, err, "which is not a step")
	require.Equal(t, []int64{4, 2}, steps(t, root))
}

// TestPruneFailsAtEveryOperation holds that a pruning that stops half-way leaves no half checkpoint under its name.
func TestPruneFailsAtEveryOperation(t *testing.T) {
	for n := 1; ; n++ {
		root := t.TempDir()
		for step := int64(1); step <= 3; step++ {
			require.NoError(t, saveStep(quick, root, step))
		}
		fs := newFaultFS(n, true)
		_, err := Prune(fs, root, 1)
		for _, step := range steps(t, root) {
			require.NoError(t, openAndVerify(StepDir(root, step)), "operation %d", n)
		}
		requireWhole(t, root, 3, "")
		if err == nil {
			require.Greater(t, n, 4)
			return
		}
	}
}

func TestRewindAndSaveAgain(t *testing.T) {
	root := t.TempDir()
	for step := int64(1); step <= 3; step++ {
		require.NoError(t, saveStep(quick, root, step))
	}
	require.ErrorIs(t, saveStep(quick, root, 3), ErrExists)
	require.NoError(t, Rewind(quick, root, 1))
	requireWhole(t, root, 1, "")
	require.NoError(t, saveStep(quick, root, 3), "a future that was given up is replaced")
	requireWhole(t, root, 3, "")
	requireNoRubbish(t, root)
	require.ErrorIs(t, Rewind(quick, root, 9), os.ErrNotExist)
}

func TestRecoverFallsBackToTheLastGood(t *testing.T) {
	root := t.TempDir()
	_, _, err := Recover(root)
	require.ErrorIs(t, err, ErrNone)
	for step := int64(1); step <= 4; step++ {
		require.NoError(t, saveStep(quick, root, step))
	}
	require.NoError(t, Rewind(quick, root, 3))
	at := func(want int64, faults int) {
		t.Helper()
		r, found, err := Recover(root)
		require.NoError(t, err)
		defer r.Close()
		require.Equal(t, want, r.Step())
		require.Len(t, found, faults)
	}
	at(3, 0) // 4 is newer than latest
	edit(t, filepath.Join(StepDir(root, 3), "rank-00001.safetensors"), "0123"[:0]+string(stepBytes(3, 4)),
		"\x00\x00\x00\x00")
	at(2, 1)
	require.NoError(t, os.RemoveAll(StepDir(root, 2)))
	at(1, 1)
	require.NoError(t, os.WriteFile(filepath.Join(root, "latest"), []byte("garbage"), 0o644))
	at(4, 1)
	require.NoError(t, os.WriteFile(filepath.Join(root, "latest"), []byte("step-00000003"), 0o644))
	require.NoError(t, os.RemoveAll(StepDir(root, 1)))
	_, faults, err := Recover(root)
	require.ErrorIs(t, err, ErrNone)
	require.Len(t, faults, 1)
	require.ErrorContains(t, faults[0], "rank-00001.safetensors: altered: its hash is not the manifest's")
}

func TestOpenLatestNamesADanglingPointer(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, saveStep(quick, root, 1))
	require.NoError(t, os.RemoveAll(StepDir(root, 1)))
	_, err := Open(root)
	require.ErrorContains(t, err, "step-00000001: missing: latest names it")
}

// TestFormatsRoundTrip holds every format to its claim, on tensors of every type.
func TestFormatsRoundTrip(t *testing.T) {
	src, err := OpenFile("testdata/types.safetensors")
	require.NoError(t, err)
	defer src.Close()
	want := contents(t, src)
	for _, f := range formats {
		t.Run(f.Name, func(t *testing.T) {
			require.NotEmpty(t, f.Spec)
			dir := filepath.Join(t.TempDir(), "out")
			require.False(t, IsDir(dir))
			aborted, err := f.Create(dir, src.Tensors())
			require.NoError(t, err)
			require.NoError(t, aborted.Abort())
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, entries, "Abort leaves nothing")

			dst, err := f.Create(dir, src.Tensors())
			require.NoError(t, err)
			require.ErrorContains(t, dst.WriteRanges("none", nil, nil), "none was not announced")
			require.ErrorContains(t, dst.Commit(), "not written exactly once")
			require.NoError(t, Copy(dst, src))
			require.NoError(t, dst.Commit())
			require.NoError(t, dst.Commit(), "once committed it stays so")
			require.NoError(t, dst.Abort(), "after Commit it does nothing")
			require.Equal(t, f.Name == "safetensors", IsDir(dir))
			back, err := f.Open(dir)
			require.NoError(t, err)
			require.Equal(t, want, contents(t, back))
			diff, err := Diff(src, back)
			require.NoError(t, err)
			require.Empty(t, diff)
			require.NoError(t, back.Close())
		})
	}
}

// memory is a Source of float32 tensors of one axis.
type memory map[string][]byte

func (m memory) Close() error { return nil }
func (m memory) Tensors() (out []Info) {
	for _, k := range SortedKeys(m) {
		out = append(out, Info{Name: k, DType: F32, Shape: []int{len(m[k]) / 4}})
	}
	return out
}
func (m memory) ReadRanges(name string, r [][2]int, dst []byte) error {
	copy(dst, m[name][r[0][0]*4:])
	return nil
}

func TestDiffSaysWhatDiffers(t *testing.T) {
	b := memory{"same": f32(1, 2), "value": f32(1, 2.5, 7), "nan": f32(float32(math.NaN())), "shape": f32(1),
		"new": f32(0)}
	a := memory{"same": f32(1, 2), "value": f32(1, 2, 3), "nan": f32(1), "shape": f32(1, 2), "old": f32(0)}
	got, err := Diff(a, b)
	require.NoError(t, err)
	var lines []string
	for _, d := range got {
		lines = append(lines, d.String())
	}
	require.Equal(t, []string{
		"nan: 1 elements differ, by at most +Inf",
		"new: only in the second (F32 [1])",
		"old: only in the first (F32 [1])",
		"shape: F32 [2], then F32 [1]",
		"value: 2 elements differ, by at most 4",
	}, lines)
}
