package checkpoint

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is testdata/types.json: what torch and the Python safetensors library say of types.safetensors.
type golden map[string]struct {
	DType  DType
	Shape  []int
	Bytes  string
	Slices []struct {
		Ranges [][2]int
		Bytes  string
	}
}

func readGolden(t *testing.T) golden {
	text, err := os.ReadFile("testdata/types.json")
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(text, &g))
	require.Greater(t, len(g), 15)
	return g
}

func unhex(t *testing.T, s string) []byte {
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// readAll returns a whole tensor of a source.
func readAll(t *testing.T, s Source, info Info) []byte {
	n, err := ByteSize(info.DType, info.Shape)
	require.NoError(t, err)
	dst := make([]byte, n)
	require.NoError(t, s.ReadRanges(info.Name, Whole(info.Shape), dst), info.Name)
	return dst
}

// contents returns every tensor of a source.
func contents(t *testing.T, s Source) map[string]string {
	out := map[string]string{}
	for _, info := range s.Tensors() {
		out[info.Name] = string(info.DType) + string(readAll(t, s, info))
	}
	return out
}

func TestReadsWhatPythonWrote(t *testing.T) {
	f, err := OpenFile("testdata/types.safetensors")
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
	want := readGolden(t)
	require.Len(t, f.Tensors(), len(want))
	for _, info := range f.Tensors() {
		w := want[info.Name]
		require.Equal(t, w.DType, info.DType, info.Name)
		require.Equal(t, w.Shape, info.Shape, info.Name)
		require.Equal(t, unhex(t, w.Bytes), readAll(t, f, info), info.Name)
		for _, s := range w.Slices {
			dst := make([]byte, len(s.Bytes)/2)
			require.NoError(t, f.ReadRanges(info.Name, s.Ranges, dst), "%s %v", info.Name, s.Ranges)
			require.Equal(t, unhex(t, s.Bytes), dst, "%s %v", info.Name, s.Ranges)
		}
	}
}

// TestWritesWhatPythonWrites holds the writer to the Python library's file, byte for byte.
func TestWritesWhatPythonWrites(t *testing.T) {
	dir := t.TempDir()
	var infos []Info
	want := readGolden(t)
	for name, w := range want {
		infos = append(infos, Info{Name: name, DType: w.DType, Shape: w.Shape})
	}
	w, err := NewWriter(dir, infos, 0)
	require.NoError(t, err)
	for name, tensor := range want {
		require.NoError(t, w.WriteTensor(name, unhex(t, tensor.Bytes)))
	}
	require.NoError(t, w.Commit())
	got, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	python, err := os.ReadFile("testdata/types.safetensors")
	require.NoError(t, err)
	require.Equal(t, python, got)
}

func TestReadSliceAndReadInto(t *testing.T) {
	f, err := OpenFile("testdata/types.safetensors")
	require.NoError(t, err)
	defer f.Close()
	want := readGolden(t)["all.f32"]
	dst := make([]byte, 3*1*5*4)
	require.NoError(t, f.ReadSlice("all.f32", 1, 2, 3, dst))
	require.Equal(t, unhex(t, want.Slices[1].Bytes), dst)
	require.NoError(t, f.ReadInto("all.f32", 20, 80, dst))
	require.Equal(t, unhex(t, want.Bytes)[20:80], dst)

	require.ErrorContains(t, f.ReadSlice("all.f32", 3, 0, 1, dst), "has no axis 3")
	require.ErrorContains(t, f.ReadSlice("all.f32", 1, 2, 5, dst),
		"range [2,5) of axis 1 lies outside of its 4")
	require.ErrorContains(t, f.ReadSlice("all.f32", 1, 0, 4, dst), "take 240 bytes, the buffer has 60")
	require.ErrorContains(t, f.ReadInto("all.f32", 200, 260, dst), "bytes [200,260) of 240")
	require.ErrorContains(t, f.ReadInto("none", 0, 60, dst), "none: missing")
}

func TestReadsShardedDirectory(t *testing.T) {
	d, err := OpenDir("testdata/sharded")
	require.NoError(t, err)
	defer d.Close()
	var names, files []string
	for _, info := range d.Tensors() {
		names, files = append(names, info.Name), append(files, info.File)
		require.Len(t, readAll(t, d, info), 128)
	}
	require.Equal(t, []string{"layer.0.weight", "layer.1.weight", "layer.2.weight", "layer.3.weight"}, names)
	require.Equal(t, []string{"model-00001-of-00002.safetensors", "model-00001-of-00002.safetensors",
		"model-00002-of-00002.safetensors", "model-00002-of-00002.safetensors"}, files)
}

// TestShardedRoundTrip writes huggingface_hub's directory again: same shards, same index.
func TestShardedRoundTrip(t *testing.T) {
	d, err := OpenDir("testdata/sharded")
	require.NoError(t, err)
	defer d.Close()
	dir := t.TempDir()
	w, err := NewWriter(dir, d.Tensors(), 260)
	require.NoError(t, err)
	require.NoError(t, Copy(w, d))
	require.NoError(t, w.Commit())
	require.NoError(t, w.Abort(), "after Commit it does nothing")
	for _, name := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		want, err := os.ReadFile(filepath.Join("testdata/sharded", name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	var want, got map[string]any
	for file, v := range map[string]*map[string]any{"testdata/sharded": &want, dir: &got} {
		text, err := os.ReadFile(filepath.Join(file, indexName))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, v))
	}
	require.Equal(t, want, got)
}

func TestAdapterRoundTrip(t *testing.T) {
	c, err := ReadAdapterConfig("testdata/adapter")
	require.NoError(t, err)
	require.Equal(t, 2, c.R)
	require.Equal(t, 6.0, c.Alpha)
	require.Equal(t, 0.1, c.Dropout)
	require.Equal(t, []string{"o_proj", "q_proj"}, c.Targets.Names)
	src, err := OpenAdapter("testdata/adapter")
	require.NoError(t, err)
	defer src.Close()
	require.Equal(t, "base_model.model.o_proj.lora_A.weight", src.Tensors()[0].Name)

	dir := t.TempDir()
	dst, err := NewAdapterWriter(dir, c, src.Tensors())
	require.NoError(t, err)
	require.NoError(t, Copy(dst, src))
	require.NoError(t, dst.Commit())
	for _, name := range []string{AdapterName} {
		want, err := os.ReadFile(filepath.Join("testdata/adapter", name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	again, err := ReadAdapterConfig(dir)
	require.NoError(t, err)
	require.Equal(t, c.Targets, again.Targets)
	require.Contains(t, again.Rest, "qalora_group_size", "keys of others are kept")
}
