package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/format"
)

// TestDataKind: without data.kind a run reads what lint reads, document by document, whatever the files are called;
// a kind that the files deny is a fault of the key data.kind that names the file, before anything is read as raw bytes.
func TestDataKind(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	yaml, err := os.ReadFile(in("run.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(in("run.yaml"),
		[]byte(strings.Replace(string(yaml), "kind: text, ", "", 1)), 0o600))
	var lines []string
	var docs []map[string]string
	for i := range 40 {
		docs = append(docs, map[string]string{"text": fmt.Sprintf("func f%d() int { return %d }\n", i, i*i)})
		b, err := json.Marshal(docs[i])
		require.NoError(t, err)
		if i%9 == 4 {
			b = []byte(`{"title":"no text"}`)
		}
		lines = append(lines, string(b))
	}
	text := []byte(strings.Join(lines, "\n"))
	array, err := json.Marshal(docs)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(in("a.jsonl"), text, 0o600))
	require.NoError(t, os.WriteFile(in("plain"), text, 0o600))
	require.NoError(t, os.WriteFile(in("b.json"), array, 0o600))
	require.NoError(t, os.WriteFile(in("raw.txt"), text, 0o600))
	require.NoError(t, os.WriteFile(in("code.go"), []byte("package a\n"), 0o600))
	writeShard(t, in("s.tar"), "a", "b")

	count := regexp.MustCompile(`(\d+) documents, (\d+) findings`)
	for path, want := range map[string]string{"a.jsonl": "40 documents, 4 findings",
		"plain": "40 documents, 4 findings", "b.json": "40 documents, 0 findings",
		"raw.txt": "1 documents, 0 findings", "code.go": "1 documents, 0 findings"} {
		_, alone := runIn(t, dir, nil, "data", "lint", path)
		_, run := runIn(t, dir, nil, "data", "lint", "--config", "run.yaml", "data.paths=["+path+"]",
			"data.split=[1,0,0]")
		require.Equal(t, want, count.FindString(alone), alone)
		require.Equal(t, want, count.FindString(run), run)
	}
	for path, c := range map[string]struct{ kind, looks string }{"a.jsonl": {"text", "jsonl"},
		"b.json": {"text", "jsonl"}, "plain": {"text", "jsonl"}, "s.tar": {"text", "webdataset"},
		"s.tar ": {"jsonl", "webdataset"}, "a.jsonl ": {"parquet", "jsonl"}} {
		path = strings.TrimSpace(path)
		for _, verb := range [][]string{{"train", "run.yaml"}, {"data", "lint", "--config", "run.yaml"}} {
			code, out := runIn(t, dir, nil, append(verb, "data.paths=["+path+"]", "data.kind="+c.kind)...)
			require.Equal(t, exit.Usage, code, out)
			require.Contains(t, out, "data.kind")
			require.Contains(t, out, path+" as "+c.kind+": the file looks like "+c.looks)
		}
	}
	code, out := runIn(t, dir, nil, "train", "run.yaml", "data.paths=[a.jsonl,s.tar]")
	require.Equal(t, exit.Usage, code, out)
	require.Contains(t, out, "a.jsonl holds text and s.tar holds parts; a run reads one kind")
}

// TestIDsNeedNoTokenizer: ids of a .bin file are final, so that a run on them needs no tokenizer where the
// model says how many there are; where it does not, one is asked for.
func TestIDsNeedNoTokenizer(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	w, err := format.NewIndexedWriter(filepath.Join(dir, "ids"), 70_000)
	require.NoError(t, err)
	for i := range int32(60) {
		ids := make([]int32, 50)
		for k := range ids {
			ids[k] = (i*7 + int32(k)) % 390
		}
		require.NoError(t, w.Add(ids))
		w.EndDocument()
	}
	require.NoError(t, w.Close())
	args := []string{"train", "run.yaml", "data.kind=auto", "data.paths=[ids]", "train.steps=4",
		"checkpoint.interval=2", "train.eval_interval=2"}
	_, with := runIn(t, dir, nil, append(args, "log.dir=with", "checkpoint.dir=a")...)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "tok")))
	code, without := runIn(t, dir, nil, append(args, "data.tokenizer=''", "log.dir=without",
		"checkpoint.dir=b")...)
	require.Zero(t, code, without)
	loss := regexp.MustCompile(`loss +\S+`)
	require.NotEmpty(t, loss.FindAllString(without, -1))
	require.Equal(t, loss.FindAllString(with, -1), loss.FindAllString(without, -1))
	code, out := runIn(t, dir, nil, append(args, "data.tokenizer=''", "data.kind=text", "data.paths=[text]",
		"log.dir=other")...)
	require.Equal(t, exit.Usage, code, out)
	require.Contains(t, out, "no tokenizer is given")
}
