package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// copyDir copies testdata/sharded, to be damaged.
func copyDir(t *testing.T, from string) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	return dir
}

func edit(t *testing.T, path, old, new string) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), old)
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), old, new)), 0o644))
}

//lfvet:long a table of cases
func TestOpenDirNamesTheFault(t *testing.T) {
	const first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		fault  Fault
		want   []string
	}{
		"missing shard": {func(t *testing.T, dir string) {
			require.NoError(t,
				os.Remove(filepath.Join(dir, second)))
		},
			Missing, []string{second + ": missing: the index places 2 tensors in it, layer.2.weight first"}},
		"extra shard": {func(t *testing.T, dir string) {
			require.NoError(t, os.Link(filepath.Join(dir, first),
				filepath.Join(dir, "model-00003-of-00003.safetensors")))
		}, Extra, []string{"model-00003-of-00003.safetensors: extra: no index names this shard"}},
		"tensor not in its shard": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, indexName), `"layer.3.weight"`, `"layer.4.weight"`)
		}, Missing, []string{second + ": tensor layer.4.weight: missing", second +
			": tensor layer.3.weight: extra"}},
		"tensor in another shard": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, indexName), `"layer.3.weight": "`+second, `"layer.3.weight": "`+first)
		}, Missing, []string{first + ": tensor layer.3.weight: missing", second +
			": tensor layer.3.weight: extra"}},
		"name that leaves": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, indexName), second,
				"../"+second)
		},
			Unsafe, []string{`index.json: tensor layer.2.weight: unsafe: file name "../` + second,
				"leaves the directory"}},
		"absolute name": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, indexName), second,
				"/etc/passwd")
		},
			Unsafe, []string{`file name "/etc/passwd" leaves`}},
		"link to a pipe": {func(t *testing.T, dir string) {
			outside := filepath.Join(t.TempDir(), "pipe")
			require.NoError(t, os.Remove(filepath.Join(dir, second)))
			require.NoError(t, syscall.Mkfifo(outside, 0o644))
			require.NoError(t, os.Symlink(outside, filepath.Join(dir, second)))
		}, Unsafe, []string{second + ": unsafe: is not a regular file"}},
		"pipe": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, second)))
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, second), 0o644))
		}, Unsafe, []string{second + ": unsafe: is not a regular file"}},
		"truncated shard": {func(t *testing.T, dir string) {
			require.NoError(t,
				os.Truncate(filepath.Join(dir, second), 380))
		},
			Truncated, []string{second +
				": tensor layer.3.weight: truncated: ends at byte 256 of the data, the file has "}},
		"index twice the same": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, indexName), `"layer.3.weight"`, `"layer.2.weight"`)
		}, Malformed, []string{"tensor layer.2.weight appears twice"}},
		"index without a map": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, indexName), "weight_map", "weights")
		}, Malformed, []string{"no weight_map"}},
		"huge index": {func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, indexName), 1<<30))
		}, Malformed, []string{"1073741824 bytes, limit 67108864"}},
		"nothing": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, indexName)))
		}, Missing, []string{"neither model.safetensors nor model.safetensors.index.json is here"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, "testdata/sharded")
			c.damage(t, dir)
			_, err := OpenDir(dir)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.fault, e.Fault, err)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestOpenDirFollowsLinksInside(t *testing.T) {
	dir := copyDir(t, "testdata/sharded")
	const name = "model-00001-of-00002.safetensors"
	require.NoError(t, os.Rename(filepath.Join(dir, name), filepath.Join(dir, "blob")))
	require.NoError(t, os.Symlink("blob", filepath.Join(dir, name)))
	d, err := OpenDir(dir)
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

func TestMatchReportsEverything(t *testing.T) {
	have := []Info{{Name: "a", DType: F32, Shape: []int{2}, File: "f"},
		{Name: "b", DType: F32, Shape: []int{2, 3}, File: "f"},
		{Name: "x", DType: F32, Shape: []int{1}, File: "f"}, {Name: "t", DType: BF16, Shape: []int{1},
			File: "f"}}
	want := []Info{{Name: "a", Shape: []int{2}}, {Name: "b", Shape: []int{3, 2}},
		{Name: "c", Shape: []int{4}}, {Name: "t", DType: F32, Shape: []int{1}}}
	require.NoError(t, Match("d", have, have))
	require.EqualError(t, Match("d", want, have), strings.Join([]string{
		"d/f: tensor b: misshapen: shape [2 3], the model needs [3 2]",
		"d: tensor c: missing: the model needs it, with shape [4]",
		"d/f: tensor t: misshapen: dtype BF16, want F32",
		"d/f: tensor x: extra: the model has no such parameter",
	}, "\n"))
}

func TestWriterRefusesWhatIsNotExactlyOnce(t *testing.T) {
	infos := []Info{{Name: "a", DType: F32, Shape: []int{4, 2}}, {Name: "b", DType: U8, Shape: []int{3}}}
	w, err := NewWriter(t.TempDir(), infos, 0)
	require.NoError(t, err)
	require.ErrorContains(t, w.WriteTensor("c", nil), "tensor c was not announced")
	require.ErrorContains(t, w.WriteTensor("b", make([]byte, 4)), "take 3 bytes, got 4")
	require.NoError(t, w.WriteTensor("b", make([]byte, 3)))
	require.NoError(t, w.WriteRanges("a", [][2]int{{0, 4}, {0, 1}}, make([]byte, 16)))
	require.ErrorContains(t, w.Commit(), "tensor a: 16 bytes of 32 were not written exactly once")
	require.NoError(t, w.WriteRanges("a", [][2]int{{0, 4}, {1, 2}}, make([]byte, 16)))
	require.NoError(t, w.WriteRanges("a", [][2]int{{0, 1}, {1, 2}}, make([]byte, 4)))
	require.ErrorContains(t, w.Commit(), "-4 bytes of 32")
	require.NoError(t, w.Abort())
	entries, err := os.ReadDir(w.dir)
	require.NoError(t, err)
	require.Empty(t, entries)

	_, err = NewWriter(w.dir, append(infos, infos[0]), 0)
	require.ErrorContains(t, err, "the name is taken")
}

// TestExportReplacesAnOlderOne leaves no shard of an export in more files.
func TestExportReplacesAnOlderOne(t *testing.T) {
	dir := copyDir(t, "testdata/sharded")
	w, err := NewWriter(dir, []Info{{Name: "a", DType: U8, Shape: []int{2}}}, 0)
	require.NoError(t, err)
	require.NoError(t, w.WriteTensor("a", []byte("xy")))
	require.NoError(t, w.Commit())
	d, err := OpenDir(dir)
	require.NoError(t, err)
	defer d.Close()
	require.Equal(t, map[string]string{"a": "U8xy"}, contents(t, d))
}

func TestCopySideFiles(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "export")
	for _, name := range []string{"config.json", "tokenizer.json", "qwen.tiktoken", "modeling_x.py",
		"setup.py", "model.safetensors", "weights.bin", ".git"} {
		require.NoError(t, os.WriteFile(filepath.Join(src, name), []byte(name), 0o600))
	}
	got, err := CopySideFiles(src, dst)
	require.NoError(t, err)
	require.Equal(t, []string{"config.json", "modeling_x.py", "qwen.tiktoken", "tokenizer.json"}, got)
	text, err := os.ReadFile(filepath.Join(dst, "config.json"))
	require.NoError(t, err)
	require.Equal(t, "config.json", string(text))

	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(src, "vocab.json")))
	_, err = CopySideFiles(src, dst)
	require.ErrorContains(t, err, "vocab.json: unsafe")
}

// FuzzIndex holds that no index makes OpenDir panic or read outside of its directory.
func FuzzIndex(f *testing.F) {
	text, err := os.ReadFile("testdata/sharded/" + indexName)
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{"weight_map":{"a":"../x"}}`))
	f.Add([]byte(`{"weight_map":{"a":null},"weight_map":{}}`))
	dir := f.TempDir()
	require.NoError(f, os.CopyFS(dir, os.DirFS("testdata/sharded")))
	f.Fuzz(func(t *testing.T, index []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, indexName), index, 0o644))
		d, err := OpenDir(dir)
		if err != nil {
			return
		}
		require.Len(t, d.Tensors(), 4)
		require.NoError(t, d.Close())
	})
}
