package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/data"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// dataCommand runs `lfactor data …` and returns what it printed and its exit code.
func dataCommand(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	c := root()
	c.SetOut(&out)
	c.SetArgs(append([]string{"data"}, args...))
	err := c.ExecuteContext(t.Context())
	if err != nil && out.Len() == 0 {
		return err.Error(), cli.ExitCode(err)
	}
	return out.String(), cli.ExitCode(err)
}

func writeShard(t *testing.T, path string, keys ...string) {
	w, err := format.CreateShard(path)
	require.NoError(t, err)
	for i, k := range keys {
		require.NoError(t, w.Add(k, []dataset.Part{{Name: "txt", Bytes: bytes.Repeat([]byte("x"), i)},
			{Name: "jpg", Bytes: []byte("j")}}))
	}
	require.NoError(t, w.Close())
}

func TestDataShards(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeShard(t, filepath.Join(dir, "s-0.tar"), "a", "b", "c", "d")
	writeShard(t, filepath.Join(dir, "s-1.tar"), "e")
	all := filepath.Join(dir, "s-{0..1}.tar")
	out, code := dataCommand(t, "-o", "json", "stat", all)
	require.Zero(t, code)
	require.JSONEq(t, `{"kind":"parts","documents":5,"bad":0,"units":11,"histogram":[0,2,2,1],"parts":{"jpg":{"count":5,"bytes":5},"txt":{"count":5,"bytes":6}},"modality":{"1 image":5}}`, out)
	out, code = dataCommand(t, "lint", all)
	require.Equal(t, "5 documents, 0 findings\n", out)
	require.Zero(t, code)
	out, code = dataCommand(t, "index", all)
	require.Zero(t, code)
	require.Contains(t, out, "s-0.tar.idx: 4 samples\n")
	require.FileExists(t, filepath.Join(dir, "s-1.tar.idx"))

	writeShard(t, filepath.Join(dir, "s-1.tar"), "e", "b", "f")
	b, err := os.ReadFile(filepath.Join(dir, "s-1.tar"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s-1.tar"), b[:5*1024], 0o600))
	require.NoError(t, os.Remove(filepath.Join(dir, "s-1.tar.idx")))
	out, code = dataCommand(t, "lint", all)
	require.Equal(t, exit.Data, code)
	require.Contains(t, out, `s-1.tar at byte 1536: the key "b" is there before`)
	require.Contains(t, out,
		`s-1.tar at byte 3584: sample "f": at byte 4608 a member of 1 bytes is announced and 0 bytes are left`)
	require.Contains(t, out, "7 documents, 2 findings")
}

// TestTokenizeCounts: what is told is how many documents have ids, and how many were read.
func TestTokenizeCounts(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	path := filepath.Join(dir, "a.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{\"text\":\"a b\"}\nbroken\n{\"text\":\"c\"}\n"), 0o600))
	out, code := dataCommand(t, "tokenize", "--input", path, "--hf-tokenizer-path", filepath.Join(dir,
		"tok"),
		"--output-prefix", filepath.Join(dir, "ids"))
	require.Zero(t, code, out)
	require.Contains(t, out, "2 of 3 documents have ids; 1 set aside are empty there")
}

// TestManyShards: a process that may have few files open reads many shards: 300 with 128 files, and with
// -long 10,000 with 256. It counts the samples of archives, with and without their indexes, and trains on
// documents.
func TestManyShards(t *testing.T) {
	t.Parallel()
	shards, files := 300, 128
	if *long {
		shards, files = 10000, 256
	} else {
		t.Log("300 shards instead of 10,000: add -long")
	}
	dir := tinyRun(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "many"), 0o700))
	for i := range shards {
		name := filepath.Join(dir, "many", fmt.Sprintf("s-%05d", i))
		writeShard(t, name+".tar", fmt.Sprintf("k%d", i))
		text := fmt.Sprintf("{\"text\": \"func f%d() int { return %d * %d }\"}\n", i, i, i+1)
		require.NoError(t, os.WriteFile(name+".jsonl", []byte(text), 0o600))
	}
	few := func(args ...string) string {
		t.Helper()
		sh := exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, files),
			built(t)}, args...)...)
		sh.Dir = dir
		began := time.Now()
		out, err := sh.CombinedOutput()
		require.NoError(t, err, string(out))
		t.Logf("%d shards, at most %d files open: %.60v takes %.2f s", shards, files, args,
			time.Since(began).Seconds())
		return string(out)
	}
	all := fmt.Sprintf("%d documents (parts), 0 bad", shards)
	require.Contains(t, few("data", "stat", "many/s-*.tar"), all)
	require.Equal(t, shards, strings.Count(few("data", "index", "many/s-*.tar"), ".tar.idx: 1 samples\n"))
	require.Contains(t, few("data", "stat", "many/s-*.tar"), all)
	require.Contains(t, few("data", "lint", "many/s-*.tar"), fmt.Sprintf("%d documents, 0 findings", shards))
	require.Contains(t, few("data", "stat", "many/s-*.jsonl"), fmt.Sprintf("%d documents", shards))
	few("train", "run.yaml", "-q", "data.kind=auto", "data.paths=['many/s-*.jsonl']", "train.steps=4")
	require.Len(t, metrics(t, dir), 4)
}

func TestDataLintEnergon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeShard(t, filepath.Join(dir, "s-0.tar"), "a", "b")
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".nv-meta"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".nv-meta", "split.yaml"),
		[]byte("split_parts: {train: [s-0.tar]}"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".nv-meta", ".info.json"),
		[]byte(`{"shard_counts": {"s-0.tar": 3}}`), 0o600))
	out, code := dataCommand(t, "lint", dir)
	require.Equal(t, exit.Data, code)
	require.Contains(t, out, "s-0.tar: it holds 2 samples, .info.json says 3")
	_, code = dataCommand(t, "index", dir)
	require.Zero(t, code)
	require.FileExists(t, filepath.Join(dir, "s-0.tar.idx"))
}

func TestDataOfRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := dataset.OpenLedger(filepath.Join(dir, "samples.ledger"))
	require.NoError(t, err)
	require.NoError(t, l.Append(1, dataset.Position{Order: "o"}, []int64{0, 5, 3}))
	require.NoError(t, l.Append(2, dataset.Position{Order: "o", Sample: 8}, []int64{9}))
	require.NoError(t, l.Close())
	out, code := dataCommand(t, "blame", dir, "1")
	require.Zero(t, code)
	require.Contains(t, out,
		"step 1 began at sample 0 of order o and saw 3 samples:\n0\n5\n3\nwhere they come from is not "+
			"known: ")
	out, _ = dataCommand(t, "-o", "json", "blame", dir, "last")
	require.Contains(t, out, `"samples":[9]`)
	out, code = dataCommand(t, "blame", dir, "7")
	require.Equal(t, exit.Failed, code)
	require.Contains(t, out, "step 7 is not recorded; the last recorded is 2")

	q, err := dataset.OpenQuarantine(filepath.Join(dir, "quarantine.jsonl"))
	require.NoError(t, err)
	require.NoError(t, q.Add(dataset.Bad{Source: "s", Document: 3,
		Place: dataset.Place{File: "s.tar", Offset: 512}, Reason: "it is there twice"}))
	require.NoError(t, q.Close())
	out, code = dataCommand(t, "quarantine", dir)
	require.Zero(t, code)
	require.Equal(t, "s document 3: s.tar at byte 512: it is there twice\n1 bad samples\n", out)
}

// Blame reads a step of a run again and names the files and places; the samples are those that the ledger has.
func TestBlameNamesPlaces(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "train.steps=3")
	require.Zero(t, code, out)
	before := treeOf(t, filepath.Join(dir, "run"))
	code, out = runIn(t, dir, nil, "data", "blame", "run", "2", "-o", "json")
	require.Zero(t, code, out)
	var b data.Blame
	require.NoError(t, json.Unmarshal([]byte(out), &b))
	require.Empty(t, b.Missing)
	require.Len(t, b.Samples, 8)
	seen := map[int64]bool{}
	for _, o := range b.Origins {
		require.FileExists(t, filepath.Join(dir, o.File))
		seen[o.Sample] = true
	}
	for _, s := range b.Samples {
		require.True(t, seen[s], "sample %d has no origin", s)
	}
	require.Equal(t, before, treeOf(t, filepath.Join(dir, "run")), "nothing is written")
}
