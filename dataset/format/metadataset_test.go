package format

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// Blends of both versions, nested, by weights, repetitions and end to end, give each set its share.
//
//lfvet:long a table of cases
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
	write("reps.yaml", "MetadatasetV2\nsplits: {train: {blend_epochized: [{repetitions: 3, path: a}, "+
		"{repetitions: 0.5, path: b, subset: {range: [0, 20]}}]}}")
	for text, want := range map[string][]float64{
		"Metadataset\nsplits: {train: {datasets: [{weight: 5, path: a, subflavors: {x: 1}}, {weight: 2, " +
			"path: ./b}, {weight: 1, path: " + dir + "/c}]}}": {.625, .25, .125},
		"MetadatasetV2\nsplits: {train: {path: a}}": {1},
		"MetadatasetV2\nsplits: {train: {blend: [{weight: 1, path: inner.yaml}, {weight: 3, path: " +
			"c}]}}": {.1875, .0625, .75},
		"MetadatasetV2\nsplits: {train: {blend_epochized: [{repetitions: 6, path: a}, {repetitions: " +
			"0.5, path: c}]}}": {60. / 90, 30. / 90},
		"MetadatasetV2\nsplits: {train: {concat: [{path: a}, {path: b}]}}": {.25, .75},
		"MetadatasetV2\nsplits: {train: {concat: [{path: a, subset: {range: [0%, 50%]}}, {path: b, " +
			"subset: {range: ['15', end]}}]}}": {.25, .75},
		// repetitions multiply, and what is empty has no share
		"MetadatasetV2\nsplits: {train: {blend_epochized: [{repetitions: 2, path: reps.yaml}, {path: c}]}}": {
			60. / 140, 20. / 140, 60. / 140},
		"MetadatasetV2\nsplits: {train: {blend: [{weight: 5, path: a, subset: {range: [0%, 0%]}}, " +
			"{path: b}, {path: c}]}}": {.5, .5},
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
		"MetadatasetV2\nsplits: {train: {join: [{path: a}]}}": "want " +
			"two and more",
		"MetadatasetV2\nsplits: {train: {join: {x: {path: a}}}}": "want a list",
		"MetadatasetV2\nsplits: {train: {path: a, joiner: {__class__: X}}}": "joiner " +
			"is of nodes with a join",
		"MetadatasetV2\nsplits: {train: {join: [{path: a}, {path: a, weight: 2}]}}":    `no key "weight"`,
		"MetadatasetV2\nsplits: {train: {join: [{path: a}, {path: a, nonmatch: no}]}}": `nonmatch "no"`,
		"MetadatasetV2\nsplits: {train: {join: [{path: a, nonmatch: skip}, {path: a}]}}": "join 0: " +
			"nonmatch is of",
		"MetadatasetV2\nsplits: {train: {join: [{path: a}, {path: m.yaml}]}}": "is no " +
			"folder with .nv-meta",
		"MetadatasetV2\nsplits: {train: {join: [{path: a}, {path: a}], split_config: x}}": "are of " +
			"the data sets that are joined",
		"MetadatasetV2\nsplits: {train: {join: [{path: a}, {path: a}], joiner: {__module__: mine, " +
			"__class__: Pair}}}": "mine.Pair is code in " +
			"Python, which is not run; name one of CaptioningSample, VQASample of megatron.energon",
		"MetadatasetV2\nsplits: {train: {blend: [{weight: -1, path: a}]}}":       "a weight of -1",
		"MetadatasetV2\nsplits: {train: {blend: [{wieght: 1, path: a}]}}":        "wieght",
		"MetadatasetV2\nsplits: {train: {path: a, subset: {range: [60%, 50%]}}}": "start ≤ end",
		"MetadatasetV2\nsplits: {train: {path: a, subset: {range: ['3', 50%]}}}": "both are percentages",
		"MetadatasetV2\nsplits: {train: {path: a, subset: {range: [3, 11]}}}":    "samples 3 to 11 of 10",
		"MetadatasetV2\nsplits: {train: {subset: {range: [0%, 50%]}, blend: [{path: a, subset: " +
			"{range: [1, 2]}}, {path: inner.yaml, aux: {x: y}}]}}": "aux names data",
		"MetadatasetV2\nsplits: {train: {blend: [{path: a, repetitions: 2}]}}":      "repetitions are of",
		"MetadatasetV2\nsplits: {train: {blend_epochized: [{path: a, weight: 2}]}}": "weight is of",
		"MetadatasetV2\nsplits: {train: {blend: [{path: a}], split_part: train}}": "split_part " +
			"is of nodes",
		"MetadatasetV2\nsplits: {train: {path: a, shuffle_over_epochs_multiplier: 3}}": "leave it out",
		"MetadatasetV2\nsplits: {train: {blend: [{path: reps.yaml}]}}": "by " +
			"repetitions, not by both",
		"MetadatasetV2\nsplits: {train: {path: a, split_config: none.yaml}}":       "none.yaml",
		"MetadatasetV2\nsplits: {train: {path: inner.yaml, split_config: x.yaml}}": "not of metadatasets",
		"MetadatasetV2\nsplits: {train: {path: a, split_config: ../x.yaml}}":       "lies outside",
		"Metadataset3\nsplits: {}": `class is "Metadataset3"`,
	} {
		_, err := dataset.OpenBlend(write("m.yaml", text), dataset.Options{})
		require.ErrorContains(t, err, want, text)
	}
	// of 10
	for percent, want := range map[string]int64{"[0%, 39%]": 3, "[39%, 58%]": 2, "[5.9%, end]": 10,
		"[19.9%, 100%]": 9, "['3', 9]": 6} {
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

// A subset around a blend is of each of its parts, and shares of several levels are multiplied before
// samples are counted: 125 of 250 and not 124, 40 % of 100 and not 39. Other descriptions than split.yaml
// decide what is held out, and a subset counts samples before those that are excluded.
func TestMetadatasetParts(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, n int) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		var docs []dataset.Document
		for i := range n {
			docs = append(docs, dataset.Document{Key: fmt.Sprintf("%s%03d", name, i),
				Parts: []dataset.Part{{Name: "txt", Bytes: []byte("x")}, {Name: "jpg", Bytes: []byte("j")}}})
		}
		_, _, err := writeEnergon(filepath.Join(dir, name), docs)
		require.NoError(t, err)
	}
	put("a", 125)
	put("b", 100)
	meta := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	meta("a/.nv-meta/held.yaml", "split_parts: {train: [shard-000001.tar], val: [shard-000000.tar]}\n"+
		"exclude: [shard-000001.tar/a064]\n")
	meta("a/.nv-meta/texts.yaml", "__module__: megatron.energon\n__class__: CrudeWebdataset\n"+
		"part_filter: [txt]\nsubflavors: {sample_type: caption}\n")
	head := "__module__: megatron.energon\n__class__: MetadatasetV2\nsplits: "
	meta("inner.yaml", head+"{train: {path: b, subset: {range: [10%, 89%]}}}")
	for text, want := range map[string][]string{
		"{train: {subset: {range: [0%, 50%]}, blend: [{path: a}, {path: b}]}}": {"a000-a061", "b000-b049"},
		"{train: {path: inner.yaml, subset: {range: [0%, 51%]}}}":              {"b010-b049"},
		"{train: {subset: {range: [50%, 100%]}, blend: [{path: a, subset: {range: [1, 8]}}]}}": {
			"a004-a007"},
		"{train: {path: a, split_config: held.yaml}}":                               {"a062-a124"},
		"{train: {path: a, split_config: held.yaml, subset: {range: [0, 4]}}}":      {"a062-a065"},
		"{train: {path: a, split_config: held.yaml, split_part: val}}":              {"a000-a061"},
		"{train: {path: a, dataset_config: texts.yaml, subset: {range: [5%, 6%]}}}": {"a006-a006"},
	} {
		meta("m.yaml", head+text)
		list, err := dataset.OpenBlend(filepath.Join(dir, "m.yaml"), dataset.Options{})
		require.NoError(t, err, text)
		var got []string
		for _, w := range list {
			first, err := w.Source.Read(0)
			require.NoError(t, err)
			last, err := w.Source.Read(w.Source.Len() - 1)
			require.NoError(t, err)
			got = append(got, first.Key+"-"+last.Key)
			require.Len(t, first.Parts, map[bool]int{true: 1, false: 2}[first.Layout != nil])
			if first.Layout != nil {
				require.Equal(t, "caption", first.Layout.Type)
			}
			require.NoError(t, w.Source.Close())
		}
		require.Equal(t, want, got, text)
	}
	meta("m.yaml", head+"{train: {path: a, split_config: held.yaml, subset: {range: [0, 4]}}}")
	s := formattest.Open(t, filepath.Join(dir, "m.yaml"), dataset.Options{})
	require.EqualValues(t, 3, s.Len(), "one of the four is excluded")
}

// FuzzYAMLData holds the readers of metadatasets and jobs to an error or sources, whatever a file says.
func FuzzYAMLData(f *testing.F) {
	f.Add("__class__: MetadatasetV2\nsplits: {train: {blend: [{weight: 1, path: a, subset: {range: [0%, 50%]}}]}}")
	f.Add("output: o\nsources: [{json: a.jsonl, sample_type: x}]\npack: {model: m, max_tokens: 5}")
	f.Add("__class__: Metadataset\nsplits: {train: {datasets: []}}")
	f.Fuzz(func(t *testing.T, text string) {
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
	})
}
