package format

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// Samples are those that mosaicml-streaming has written, by bench/golden/mds.py, plain and compressed.
func TestMDS(t *testing.T) {
	var want []map[string]any
	b, err := os.ReadFile("testdata/mds/want.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &want))
	for _, name := range []string{"plain", "zstd", "gz"} {
		s := formattest.Open(t, "testdata/mds/"+name, dataset.Options{})
		require.Equal(t, int64(len(want)), s.Len())
		for i, w := range want {
			d, err := s.Read(int64(i))
			require.NoError(t, err)
			require.Equal(t, w["text"], d.Text)
			raw, _, err := s.(dataset.Columned).Columns(int64(i))
			require.NoError(t, err)
			var have map[string]any
			require.NoError(t, json.Unmarshal(raw, &have))
			require.Equal(t, w, have, "%s %d", name, i)
		}
	}
}

// A folder without index is what its shards say themselves, with the same samples; a shard without header is named.
func TestMDSWithoutIndex(t *testing.T) {
	for _, name := range []string{"plain", "zstd", "gz"} {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/mds/"+name)))
		require.NoError(t, os.Remove(filepath.Join(dir, "index.json")))
		want, s := formattest.Open(t, "testdata/mds/"+name, dataset.Options{}), formattest.Open(t, dir, dataset.Options{})
		require.Equal(t, want.Len(), s.Len())
		for i := range s.Len() {
			a, _, err := want.(dataset.Columned).Columns(i)
			require.NoError(t, err)
			b, _, err := s.(dataset.Columned).Columns(i)
			require.NoError(t, err)
			require.Equal(t, string(a), string(b))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "shard.00009.mds"), []byte("\xff\xff\xff\x0fno shard"), 0o600))
		_, err := dataset.Open(dir, dataset.Options{})
		require.ErrorContains(t, err, "shard.00009.mds, in a folder without index.json: it tells 268435455 samples")
	}
}

// Damage is an error with the shard, or a bad sample with its place.
func TestMDSDamaged(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/mds/plain")))
	shard := filepath.Join(dir, "shard.00001.mds")
	index := filepath.Join(dir, "index.json")
	good, err := os.ReadFile(shard)
	require.NoError(t, err)
	text, err := os.ReadFile(index)
	require.NoError(t, err)
	try := func(shardIs []byte, indexIs, want string) {
		t.Helper()
		require.NoError(t, os.WriteFile(shard, shardIs, 0o600))
		require.NoError(t, os.WriteFile(index, []byte(indexIs), 0o600))
		s, err := dataset.Open(dir, dataset.Options{})
		if err == nil {
			defer s.Close()
			for i := int64(0); err == nil && i < s.Len(); i++ {
				_, err = s.Read(i)
			}
		}
		require.ErrorContains(t, err, want)
	}
	try(good[:len(good)-1], string(text), "shard 1 of index.json: shard.00001.mds has")
	try(append([]byte{9}, good[1:]...), string(text), "shard.00001.mds has 9 samples, and the index says")
	broken := append([]byte{}, good...)
	broken[8], broken[9] = 0xff, 0xff
	try(broken, string(text), "it lies at")
	try(good, strings.Replace(string(text), "shard.00001.mds", "../shard.mds", 1),
		"is no name of a file in the folder")
	try(good, strings.ReplaceAll(string(text), `"str"`, `"pkl"`),
		`it has no column "text" of texts; its columns are id, meta`)
	try(good, strings.Replace(string(text), `"version": 2}`, `"version": 3}`, 1), "is read")
}
