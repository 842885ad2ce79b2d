package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// runCorpus writes documents, of which many are nearly copies of others, and a recipe of six steps over them.
func runCorpus(t *testing.T, dir string, documents int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(8, 8))
	words := strings.Fields("the of and to with that have be house river tree stone light water music paper glass wood")
	var texts []string
	var b strings.Builder
	for range documents {
		text := ""
		if len(texts) > 0 && rnd.IntN(3) == 0 {
			text = texts[rnd.IntN(len(texts))] + " " + words[rnd.IntN(len(words))]
		} else {
			for range 20 + rnd.IntN(150) {
				text += words[rnd.IntN(len(words))] + []string{" ", " ", " ", ". ", ".\n"}[rnd.IntN(5)]
			}
		}
		texts = append(texts, text)
		line, err := json.Marshal(map[string]string{"text": text})
		require.NoError(t, err)
		b.Write(append(line, '\n'))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.jsonl"), []byte(b.String()), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "recipe.yaml"), []byte(`output: out
memory: 1MiB
inputs: [a.jsonl]
steps: [pii, gopher_quality, exact_dedup, {step: minhash_dedup, n_grams: 3}, paragraph_dedup, {step: length, min_words: 30}]
outputs: [{documents: 700, compress: zstd}]
`), 0o600))
}

// A recipe that is killed at random moments ends with the bytes of one that nobody disturbed.
func TestRecipeKilled(t *testing.T) {
	t.Parallel()
	kills, documents := 6, 6000
	if *long {
		kills, documents = 60, 40000
	} else {
		t.Log("6 of 60 kills; all of them with -long")
	}
	whole, dir := t.TempDir(), t.TempDir()
	runCorpus(t, whole, documents)
	runCorpus(t, dir, documents)
	start := time.Now()
	code, out := runIn(t, whole, nil, "data", "run", "recipe.yaml")
	took := time.Since(start)
	require.Zero(t, code, out)
	require.Contains(t, out, "predicted from")
	want := treeOf(t, filepath.Join(whole, "out"))
	rng := rand.New(rand.NewPCG(3, uint64(kills)))
	killed := 0
	for range kills {
		c := exec.Command(built(t), "data", "run", "recipe.yaml")
		c.Dir = dir
		require.NoError(t, c.Start())
		span := max(20, took.Milliseconds()/2)
		for end := time.Now().Add(time.Duration(rng.Int64N(span)) * time.Millisecond); time.Now().Before(end); {
		}
		_ = c.Process.Kill() // it may have ended
		if c.Wait() != nil { // it was killed
			killed++
		}
	}
	t.Logf("%d of %d were killed before they ended", killed, kills)
	code, out = runIn(t, dir, nil, "data", "run", "recipe.yaml")
	require.Zero(t, code, out)
	require.Equal(t, want, treeOf(t, filepath.Join(dir, "out")))
	code, out = runIn(t, dir, nil, "data", "stat", "out/data-00000.jsonl.zst")
	require.Zero(t, code, out)
}

// The recipe of docs/corpus makes of the archive beside it what docs/data.md shows.
func TestCorpus(t *testing.T) {
	t.Parallel()
	dir, docs := t.TempDir(), filepath.Join("..", "..", "docs")
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(docs, "corpus"))))
	page, err := os.ReadFile(filepath.Join(docs, "data.md"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), "$ cd docs/corpus && lfactor data run recipe.yaml\n")
	require.True(t, ok)
	want, _, _ := strings.Cut(rest, "```")
	code, out := runIn(t, dir, nil, "data", "run", "recipe.yaml")
	require.Zero(t, code, out)
	require.Contains(t, out, want)
	text, err := os.ReadFile(filepath.Join(dir, "clean", "data-00000.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(text), "Write to email@example.com, or come to the harbour")
	require.Contains(t, string(text), `"url":"http://example.org/17"`)
}

// A recipe that cannot be carried out is refused with its place, and nothing is written; its plan alone
// writes nothing either.
func TestRecipeRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runCorpus(t, dir, 50)
	code, out := runIn(t, dir, nil, "data", "run", "--plan", "recipe.yaml")
	require.Zero(t, code, out)
	require.Contains(t, out, "stage 0  input-0 → pii → gopher_quality → exact_dedup")
	require.NoDirExists(t, filepath.Join(dir, "out"))
	bad := "output: out\ninputs: [a.jsonl]\nsteps:\n- {step: gopher_quality, min_words: 3}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte(bad), 0o600))
	code, out = runIn(t, dir, nil, "data", "run", "bad.yaml")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, `bad.yaml:4: steps[0].min_words: there is no such key`)
	require.NoDirExists(t, filepath.Join(dir, "out"))
}

// Files of another size and format have the documents of the old ones in their order, and what a flag has
// wrong is said before anything is written.
func TestReshard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runCorpus(t, dir, 250)
	code, out := runIn(t, dir, nil, "data", "reshard", "a.jsonl", "--to", "mds", "--as", "mds",
		"--documents", "60")
	require.Zero(t, code, out)
	code, out = runIn(t, dir, nil, "data", "reshard", "mds", "--to", "back", "--documents", "1000")
	require.Zero(t, code, out)
	texts := func(path string) (list []string) {
		b, err := os.ReadFile(filepath.Join(dir, path))
		require.NoError(t, err)
		for l := range strings.Lines(string(b)) {
			var d struct{ Text string }
			require.NoError(t, json.Unmarshal([]byte(l), &d))
			list = append(list, d.Text)
		}
		return list
	}
	require.Equal(t, texts("a.jsonl"), texts("back/data-00000.jsonl"))
	require.FileExists(t, filepath.Join(dir, "mds", "data-00004.mds"))

	w, err := format.CreateShard(filepath.Join(dir, "s.tar"))
	require.NoError(t, err)
	require.NoError(t, w.Add("k", []dataset.Part{{Name: "png", Bytes: []byte("x")}, {Name: "txt", Bytes: []byte("y")}}))
	require.NoError(t, w.Close())
	code, out = runIn(t, dir, nil, "data", "reshard", "s.tar", "--to", "shards")
	require.Zero(t, code, out)
	require.FileExists(t, filepath.Join(dir, "shards", "data-00000.tar"), "which keeps the picture")
	code, out = runIn(t, dir, nil, "data", "reshard", "s.tar", "--to", "lines", "--as", "jsonl")
	require.Zero(t, code, out)
	require.Contains(t, out, "1 files of samples are left out: jsonl does not keep them, and webdataset does")
	code, out = runIn(t, dir, nil, "data", "reshard", "a.jsonl", "--to", "x", "--as", "csv")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, `"csv" is not written; use one of arrow, jsonl, mds, parquet, webdataset`)
	require.NoDirExists(t, filepath.Join(dir, "x"))
}
