package recipe

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// shardOf writes samples.
func shardOf(t *testing.T, path string, docs ...dataset.Document) string {
	t.Helper()
	w, err := format.CreateShard(path)
	require.NoError(t, err)
	for _, d := range docs {
		require.NoError(t, w.Add(d.Key, d.Parts))
	}
	require.NoError(t, w.Close())
	return path
}

func part(name, text string) dataset.Part { return dataset.Part{Name: name, Bytes: []byte(text)} }

// pictures are samples of all shapes: captions, conversations, lists, images alone.
func pictures(t *testing.T) (docs []dataset.Document) {
	image := func(n, side int, speck bool) dataset.Part {
		return dataset.Part{Name: "png", Bytes: drawn(t, n, side, side, speck)}
	}
	for i := range 8 {
		docs = append(docs,
			dataset.Document{Key: fmt.Sprintf("cap%d", i), Parts: []dataset.Part{image(i, 96, false),
				part("txt", fmt.Sprintf("a picture %d of me@here.org", i)), part("json", fmt.Sprintf(`{ "id": %d, "a": "b" }`, i))}},
			dataset.Document{Key: fmt.Sprintf("again%d", i), Parts: []dataset.Part{part("json", fmt.Sprintf(`{"text":"again %d", "id": 1}`, i)),
				image(i, 192, i%2 == 0)}},
			dataset.Document{Key: fmt.Sprintf("talk%d", i), Parts: []dataset.Part{image(100+i, 64, false),
				part("json", fmt.Sprintf(`{"messages": [{"role":"user","content":"<image>What is it?"},`+
					`{"role":"assistant","content":"talk %d"}]}`, i))}},
			dataset.Document{Key: fmt.Sprintf("list%d", i), Parts: []dataset.Part{image(200+i, 64, false),
				part("json", "[1, 2]")}},
			dataset.Document{Key: fmt.Sprintf("tiny%d", i), Parts: []dataset.Part{image(300+i, 8, false)}})
	}
	return docs
}

const samplesRecipe = `output: %s
workers: %d
inputs: [{name: a, path: %q}, {name: b, path: %q}]
steps: [{step: image_size, min_side: 16}, {step: image_dedup, distance: 6}, pii, {step: sample, fraction: 0.95}]
outputs: [{format: webdataset, documents: 7, compress: %q}]
`

// readShards reads all samples that a recipe has written.
func readShards(t *testing.T, pattern string) (out []dataset.Document) {
	t.Helper()
	s, err := dataset.Open(pattern, dataset.Options{})
	require.NoError(t, err)
	defer s.Close()
	for i := range s.Len() {
		d, err := s.Read(i)
		require.NoError(t, err)
		out = append(out, d)
	}
	return out
}

// Shards go through steps that look at images and texts, behind steps with state too, and come out as shards:
// what no step has changed has its bytes, whoever does the work and however it is compressed. Damaged samples are in
// the ledger with their place.
func TestSamples(t *testing.T) {
	dir := t.TempDir()
	docs := pictures(t)
	a := shardOf(t, filepath.Join(dir, "a.tar"), docs[:21]...)
	bad := append([]dataset.Document{{Key: "notjson", Parts: []dataset.Part{part("json", `{"text": `)}},
		{Key: "notutf", Parts: []dataset.Part{part("txt", "\xff\xfe")}}}, docs[21:]...)
	b := shardOf(t, filepath.Join(dir, "b.tar.gz"), bad...)
	recipe := func(workers int, compress string) func(to string) string {
		return func(to string) string { return fmt.Sprintf(samplesRecipe, to, workers, a, b, compress) }
	}
	r, err := load(t, dir, recipe(2, "")(filepath.Join(dir, "here")))
	require.NoError(t, err)
	rep, err := Run(t.Context(), r, nil, dataset.Remote{})
	require.NoError(t, err)
	require.Equal(t, int64(2), rep.Inputs[1].Unreadable)
	require.Equal(t, int64(8), rep.Steps[0].Dropped["small_image"])
	require.Equal(t, int64(8), rep.Steps[1].Dropped["like_image"])
	want := files(t, filepath.Join(dir, "here"))
	require.Contains(t, want["/"+LedgerName], `"detail":"sample \"notjson\": its json is not JSON"`)
	require.Contains(t, want["/"+LedgerName], `"detail":"sample \"notutf\": its txt is not UTF-8"`)

	was := map[string]dataset.Document{}
	for _, d := range docs {
		was[d.Key] = d
	}
	have := readShards(t, filepath.Join(dir, "here", "data-*.tar"))
	require.Equal(t, rep.Outputs[0].Documents, int64(len(have)))
	require.Greater(t, len(have), 20)
	for _, d := range have {
		for i, p := range d.Parts {
			old := was[d.Key].Parts[i]
			require.Equal(t, old.Name, p.Name)
			if p.Name == "txt" {
				require.Equal(t, strings.Replace(string(old.Bytes), "me@here.org", "email@example.com", 1),
					string(p.Bytes))
			} else {
				require.True(t, bytes.Equal(old.Bytes, p.Bytes), "%s.%s", d.Key, p.Name)
			}
		}
		require.Len(t, d.Parts, len(was[d.Key].Parts))
	}
	made, _ := elsewhere(t, dir, recipe(2, ""))
	require.NotZero(t, made[1], "what lies behind image_dedup")
	sameRun(t, "elsewhere", files(t, filepath.Join(dir, "there")), want)
	r, err = load(t, dir, recipe(1, "zstd")(filepath.Join(dir, "zstd")))
	require.NoError(t, err)
	_, err = Run(t.Context(), r, nil, dataset.Remote{})
	require.NoError(t, err)
	require.Equal(t, have[3].Parts, readShards(t, filepath.Join(dir, "zstd", "data-*.tar.zst"))[3].Parts)
}

// A shard that is cut off has its last sample in the ledger, and one that ends while it is read stops the recipe.
func TestSamplesTorn(t *testing.T) {
	dir := t.TempDir()
	docs := pictures(t)
	path := shardOf(t, filepath.Join(dir, "a.tar"), docs...)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b[:len(b)*2/3], 0o600))
	r, err := load(t, dir, fmt.Sprintf("output: %s\ninputs: [%q]\noutputs: [{format: webdataset}]\n",
		filepath.Join(dir, "out"), path))
	require.NoError(t, err)
	rep, err := Run(t.Context(), r, nil, dataset.Remote{})
	require.NoError(t, err)
	require.Equal(t, int64(1), rep.Inputs[0].Unreadable)
	require.Greater(t, rep.Outputs[0].Documents, int64(15))
	ledger, err := os.ReadFile(filepath.Join(dir, "out", LedgerName))
	require.NoError(t, err)
	require.Regexp(t, `"file":".*a.tar","offset":\d+,"step":"input-0","reason":"unreadable"`, string(ledger))
}

// Steps that write columns put them into the json of a sample, or make one; a conversation that a step would change is
// dropped, since what was said cannot be written back.
func TestSampleColumns(t *testing.T) {
	dir := t.TempDir()
	a := shardOf(t, filepath.Join(dir, "a.tar"),
		dataset.Document{Key: "one", Parts: []dataset.Part{part("txt", "some text"), part("json", `{"id": 1}`)}},
		dataset.Document{Key: "two", Parts: []dataset.Part{part("txt", "more text")}},
		dataset.Document{Key: "three", Parts: []dataset.Part{part("json", `{"caption": "c", "text": "of the json"}`)}},
		dataset.Document{Key: "four", Parts: []dataset.Part{part("json", `{"messages": [{"role":"user","content":"me@here.org?"},`+
			`{"role":"assistant","content":"yes"}]}`)}})
	r, err := load(t, dir, fmt.Sprintf("output: %s\ninputs: [%q]\nsteps: [pii]\noutputs: [{format: "+
		"webdataset}, {name: lines}]\n",
		filepath.Join(dir, "out"), a))
	require.NoError(t, err)
	rep, err := Run(t.Context(), r, nil, dataset.Remote{})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"unwritable": 1}, rep.Steps[0].Dropped)
	lines, err := os.ReadFile(filepath.Join(dir, "out", "lines-00000.jsonl"))
	require.NoError(t, err)
	require.Equal(t, `{"text":"some text","id":1}`+"\n"+`{"text":"more text"}`+"\n"+`{"text":"of the json","caption":"c"}`+"\n", string(lines))
	back := write(t, dir, "b.jsonl", `{"text":"a b","image":{"bytes":"iVBORw0KGgo="},"n":3}`+"\n"+`{"text":"c"}`+"\n")
	r, err = load(t, dir, fmt.Sprintf("output: %s\ninputs: [{name: x.y, path: %q}]\noutputs: "+
		"[{format: webdataset}]\n", filepath.Join(dir, "back"), back))
	require.NoError(t, err)
	_, err = Run(t.Context(), r, nil, dataset.Remote{})
	require.NoError(t, err)
	have := readShards(t, filepath.Join(dir, "back", "data-*.tar"))
	require.Equal(t, "x_y-000000000", have[0].Key)
	require.Equal(t, []dataset.Part{part("png", "\x89PNG\r\n\x1a\n"), part("txt", "a b"), part("json", `{"n":3}`)}, have[0].Parts)
	require.Equal(t, []dataset.Part{part("txt", "c")}, have[1].Parts)
}
