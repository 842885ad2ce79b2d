package recipe

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// A document that the format of an output cannot hold is dropped with its reason, behind steps with and without
// state, and ends a recipe only where none is left. Files that a format does not keep are counted.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	a := shardOf(t, filepath.Join(dir, "a.tar"),
		dataset.Document{Key: "one", Parts: []dataset.Part{part("txt", "some text of one"), part("png", "x"),
			part("cls", "1"), part("json", `{"id": 1}`)}},
		dataset.Document{Key: "list", Parts: []dataset.Part{part("txt", "other words here"), part("json", `[1]`)}})
	b := write(t, dir, "b.jsonl", `{"text":"a b","image":"https://host/x.png"}`+"\n"+`{"text":"c d"}`+"\n")
	label := "{step: language, model: " + model + ", label_only: true}"
	for _, steps := range []string{"[" + label + "]", "[exact_dedup, " + label + "]", "[" + label + ", exact_dedup]"} {
		out := filepath.Join(t.TempDir(), "out")
		r, err := load(t, dir, fmt.Sprintf("output: %s\ninputs: [{name: a, path: %q}, {name: b, path: %q}]\n"+
			"steps: %s\noutputs: [{format: webdataset}, {name: lines}]\n", out, a, b, steps))
		require.NoError(t, err)
		rep, err := Run(t.Context(), r, nil, dataset.Remote{})
		require.NoError(t, err, steps)
		require.Equal(t, map[string]int64{unwritable: 2}, rep.Outputs[0].Dropped)
		require.Zero(t, rep.Outputs[0].LeftOut)
		require.Empty(t, rep.Outputs[1].Dropped)
		require.Equal(t, int64(2), rep.Outputs[1].LeftOut, "png and cls")
		require.Equal(t, int64(4), rep.Outputs[1].Documents)
		var keys []string
		for _, d := range readShards(t, filepath.Join(out, "data-*.tar")) {
			keys = append(keys, d.Key)
		}
		require.Equal(t, []string{"one", "b-000000001"}, keys)
		ledger, err := os.ReadFile(filepath.Join(out, LedgerName))
		require.NoError(t, err)
		require.Contains(t, string(ledger), `"step":"output data","reason":"unwritable","detail":"the json of sample \"list\" is a list`)
		page, err := os.ReadFile(filepath.Join(out, pageName))
		require.NoError(t, err)
		require.Contains(t, string(page), "2 files of samples, which the format does not keep")
		require.Contains(t, string(page), "is a list, which has no room for columns")
	}
	none := write(t, dir, "none.jsonl", `{"text":"a b","image":"gone.png"}`+"\n")
	out := filepath.Join(dir, "none")
	r, err := load(t, dir, fmt.Sprintf("output: %s\ninputs: [%q]\noutputs: [{format: webdataset}]\n", out, none))
	require.NoError(t, err)
	_, err = Run(t.Context(), r, nil, dataset.Remote{})
	require.ErrorContains(t, err, `output "data": none of 1 documents can be written as webdataset, as its images: `)
}

// An input with files of several kinds keeps the files of its samples, in whatever order they stand.
func TestMixedInput(t *testing.T) {
	dir := t.TempDir()
	a := shardOf(t, filepath.Join(dir, "a.tar"), dataset.Document{Key: "one",
		Parts: []dataset.Part{part("txt", "some text of one"), {Name: "png", Bytes: drawn(t, 1, 64, 64, false)}}})
	b := write(t, dir, "b.jsonl", `{"text":"a b"}`+"\n"+`{"text":"c d"}`+"\n")
	for i, paths := range [][]string{{a, b}, {b, a}} {
		for k, steps := range []string{"[{step: length, min_chars: 1}]", "[minhash_dedup]",
			"[minhash_dedup, {step: image_size, min_side: 100}]"} {
			out := filepath.Join(dir, fmt.Sprintf("out-%d-%d", i, k))
			r, err := load(t, dir, fmt.Sprintf("output: %s\ninputs: [{paths: [%q, %q]}]\nsteps: %s\n"+
				"outputs: [{format: webdataset}]\n", out, paths[0], paths[1], steps))
			require.NoError(t, err)
			_, err = Run(t.Context(), r, nil, dataset.Remote{})
			require.NoError(t, err)
			files := map[string]int{}
			for _, d := range readShards(t, filepath.Join(out, "data-*.tar")) {
				files[d.Key] = len(d.Parts)
			}
			if k == 2 {
				require.NotContains(t, files, "one", "it is too small")
				continue
			}
			require.Len(t, files, 3)
			require.Equal(t, 2, files["one"], steps)
		}
	}
}
