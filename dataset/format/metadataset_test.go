package format

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// Blends of both versions, nested, by weights, repetitions and end to end, give each set its share.
func TestMetadataset(t *testing.T) {
	dir := t.TempDir()
	for name, n := range map[string]int{"a": 10, "b": 30, "c": 60} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		var docs []dataset.Document
		for i := range n {
			docs = append(docs, dataset.Document{Key: fmt.Sprintf("%s%d", name, i),
				Parts: []dataset.Part{{Name: "txt", Bytes: []byte("x")}}})
		}
		_, _, err := writeEnergon(filepath.Join(dir, name), docs)
		require.NoError(t, err)
	}
	head := "__module__: megatron.energon\n__class__: "
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(head+text), 0o600))
		return path
	}
	write("inner.yaml", "MetadatasetV2\nsplits: {train: {blend: [{weight: 3, path: a}, {weight: 1, "+
		"path: b}]}}")
	for text, want := range map[string][]float64{
		"Metadataset\nsplits: {train: {datasets: [{weight: 5, path: a, subflavors: {x: 1}}, {weight: 2, " +
			"path: ./b}, {weight: 1, path: " + dir + "/c}]}}": {.625, .25, .125},
		"MetadatasetV2\nsplits: {train: {path: a}}":                                                      {1},
		"MetadatasetV2\nsplits: {train: {blend: [{weight: 1, path: inner.yaml}, {weight: 3, path: c}]}}": {.1875, .0625, .75},
		"MetadatasetV2\nsplits: {train: {blend_epochized: [{repetitions: 6, path: a}, {repetitions: " +
			"0.5, path: c}]}}": {60. / 90, 30. / 90},
		"MetadatasetV2\nsplits: {train: {concat: [{path: a}, {path: b}]}}": {.25, .75},
		"MetadatasetV2\nsplits: {train: {concat: [{path: a, subset: {range: [0%, 50%]}}, {path: b, " +
			"subset: {range: ['15', end]}}]}}": {.25, .75},
	} {
		list, err := dataset.OpenBlend(write("m.yaml", text), dataset.Options{})
		require.NoError(t, err, text)
		require.Len(t, list, len(want), text)
		for i, w := range list {
			require.InDelta(t, want[i], w.Weight, 1e-12, text)
			require.NoError(t, w.Source.Close())
		}
	}
	for text, want := range map[string]string{
		"MetadatasetV2\nsplits: {val: {path: a}}":         `no split "train"`,
		"MetadatasetV2\nsplits: {train: {path: missing}}": "no such file",
		"MetadatasetV2\nsplits: {train: {path: m.yaml}}":  "over 8 deep",
		"MetadatasetV2\nsplits: {train: {}}":              "must have one of",
		"MetadatasetV2\nsplits: {train: {join: [{path: a}]}}": "joins data sets " +
			"sample by sample",
		"MetadatasetV2\nsplits: {train: {blend: [{weight: -1, path: a}]}}":       "a weight of -1",
		"MetadatasetV2\nsplits: {train: {blend: [{wieght: 1, path: a}]}}":        "wieght",
		"MetadatasetV2\nsplits: {train: {path: a, subset: {range: [60%, 50%]}}}": "is empty",
		"Metadataset3\nsplits: {}": `class is "Metadataset3"`,
	} {
		_, err := dataset.OpenBlend(write("m.yaml", text), dataset.Options{})
		require.ErrorContains(t, err, want, text)
	}
	// of 10
	for percent, want := range map[string]int64{"[0%, 39%]": 3, "[39%, 58%]": 2, "[5.9%, end]": 10,
		"[19.9%, 100%]": 9, "['3', 99.9%]": 6} {
		part, err := dataset.OpenBlend(write("m.yaml",
			"MetadatasetV2\nsplits: {train: {path: a, subset: {range: "+percent+"}}}"), dataset.Options{})
		require.NoError(t, err, percent)
		require.EqualValues(t, want, part[0].Source.Len(), percent)
	}
	plain, err := dataset.OpenBlend(filepath.Join(dir, "a"), dataset.Options{})
	require.NoError(t, err)
	require.Len(t, plain, 1)
	require.EqualValues(t, 10, plain[0].Source.Len())
}

// FuzzYAMLData holds the readers of metadatasets, jobs and LeRobot's paths to an error or sources, whatever
// a file says.
func FuzzYAMLData(f *testing.F) {
	f.Add("__class__: MetadatasetV2\nsplits: {train: {blend: [{weight: 1, path: a, subset: {range: [0%, "+
		"50%]}}]}}", "data/{episode_index:06d}")
	f.Add("output: o\nsources: [{json: a.jsonl, sample_type: x}]\npack: {model: m, max_tokens: 5}", "{x")
	f.Add("__class__: Metadataset\nsplits: {train: {datasets: []}}", "../{episode_index}")
	f.Fuzz(func(t *testing.T, text, pattern string) {
		path := filepath.Join(t.TempDir(), "x.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		if list, err := blendMetadataset(path, dataset.Options{}); err == nil {
			for _, w := range list {
				require.NoError(t, w.Source.Close())
			}
		}
		if j, err := LoadJob(path); err == nil {
			require.NotEmpty(t, j.Sources)
		}
		if p, err := (&LeRobot{}).fill(pattern, map[string]any{"episode_index": int64(7)}); err == nil {
			require.True(t, filepath.IsLocal(p))
		}
	})
}
