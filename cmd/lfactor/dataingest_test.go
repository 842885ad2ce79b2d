package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
)

// A job that is killed at random moments ends with the bytes of one that nobody disturbed.
func TestIngestKilled(t *testing.T) {
	t.Parallel()
	kills := 5
	if *long {
		kills = 20
	} else {
		t.Log("5 of 20 kills; all of them with -long")
	}
	whole, dir := t.TempDir(), t.TempDir()
	ingestData(t, whole, 300)
	ingestData(t, dir, 300)
	code, out := runIn(t, whole, nil, "data", "ingest", "job.yaml")
	require.Zero(t, code, out)
	require.Contains(t, out, "train on out/packed")
	require.Contains(t, out, "of 300 entries set aside")
	want := treeOf(t, filepath.Join(whole, "out"))
	rng := rand.New(rand.NewPCG(3, uint64(kills)))
	for range kills {
		c := exec.Command(built(t), "data", "ingest", "job.yaml")
		c.Dir = dir
		require.NoError(t, c.Start())
		for end := time.Now().Add(time.Duration(10+rng.IntN(120)) * time.Millisecond); time.Now().Before(end); {
		}
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()         // it was killed
	}
	code, out = runIn(t, dir, nil, "data", "ingest", "job.yaml")
	require.Zero(t, code, out)
	require.Equal(t, want, treeOf(t, filepath.Join(dir, "out")))
	code, out = runIn(t, dir, nil, "data", "lint", "out/packed")
	require.Zero(t, code, out)
}

// Jobs that cannot be carried out are refused with what is wrong, before anything is written.
func TestIngestRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for text, want := range map[string]string{
		"sources: [{json: a}]": "output is not given",
		"output: o":            "no sources",
		"output: o\nsources: [{json: a, shards: b}]":    "want either json or shards",
		"output: o\nsources: [{json: a, iamge_dir: b}]": "field iamge_dir not found",
		"output: o\nsources: [{shards: a}]\npack: {model: m}": "pack needs a model and " +
			"max_tokens",
		"output: o\nsources: [{shards: a}]\nworkers: -1":                    "negative",
		"output: " + dir + "/o\nsources: [{json: missing, sample_type: x}]": "no folder of images is given",
	} {
		path := filepath.Join(dir, "j.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		out, code := dataCommand(t, "ingest", path)
		require.Contains(t, out, want)
		require.NotZero(t, code)
	}
	_, err := os.Stat("o")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// The page of a preview has the conversations and images in it, escaped, and nothing that loads or runs.
func TestPreview(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ingestData(t, dir, 6)
	f, err := os.OpenFile(filepath.Join(dir, "a.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, `{"messages":[{"role":"user","content":"<script>alert(1)</script> <image>"},{"role":"assistant","content":"<b>no</b>"}],"image":"evil.svg"}`)
	require.NoError(t, w.Flush())
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "img/evil.svg"),
		[]byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(2)</script></svg>`), 0o600))
	out, code := dataCommand(t, "convert", "--output_dir", dir+"/out", "--json_file", dir+"/a.jsonl",
		"--image_dir", dir+"/img", "--sample_type", "multi_mix_qa", "--media", "image")
	require.Zero(t, code, out)
	require.Contains(t, out, "6 samples in 1 shards")
	page, code := dataCommand(t, "preview", dir+"/out", "--html", "-", "-n", "100")
	require.Zero(t, code)
	require.Contains(t, page, "6 of 6 samples")
	require.Contains(t, page, "data:image/jpeg;base64,/9j/")
	require.Contains(t, page, "data:image/png;base64,")
	require.Contains(t, page, "it is image 3")
	require.Contains(t, page, "&lt;script&gt;alert(1)")
	require.NotContains(t, page, "<script")
	require.NotContains(t, page, "svg+xml")
	require.NotContains(t, page, "src=\"http")
}

// With a model stat counts the tokens that training sees, images among them.
func TestStatTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ingestData(t, dir, 4)
	out, code := dataCommand(t, "convert", "--output_dir", dir+"/out", "--json_file", dir+"/a.jsonl",
		"--image_dir", dir+"/img", "--sample_type", "multi_mix_qa")
	require.Zero(t, code, out)
	enc, err := setup.VisionEncoder(dir+"/model", "", "")
	require.NoError(t, err)
	s, err := dataset.Open(dir+"/out", dataset.Options{})
	require.NoError(t, err)
	defer s.Close()
	want, images := 0, 0
	for i := range s.Len() {
		d, err := s.Read(i)
		require.NoError(t, err)
		samples, err := enc.EncodeSample(&d)
		require.NoError(t, err)
		want += len(samples[0].Tokens)
		images += int(samples[0].Media[0].Spans[0].To - samples[0].Media[0].Spans[0].From)
	}
	require.Positive(t, images)
	out, code = dataCommand(t, "stat", dir+"/out", "--model", dir+"/model")
	require.Zero(t, code, out)
	require.Contains(t, out, fmt.Sprintf("4 documents (parts), 0 bad, %d tokens", want))
}
