package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
)

// visionModel writes a folder with a tokenizer, a chat template and a processor of Qwen's kind.
func visionModel(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	b, err := token.Train(token.TrainConfig{VocabSize: 300, Special: []string{"<|im_start|>", "<|im_end|>",
		"<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|endoftext|>"}},
		slices.Values([]string{"what is shown here it is an image"}))
	require.NoError(t, err)
	template := `{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`
	conf, err := json.Marshal(map[string]any{"chat_template": template, "eos_token": "<|im_end|>"})
	require.NoError(t, err)
	for name, b := range map[string][]byte{"tokenizer.json": b, "tokenizer_config.json": conf,
		"preprocessor_config.json": []byte(`{"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 50176}`)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
}

// ingestData writes annotations of n entries, some with images and a few that cannot be used, and a job.
func ingestData(t *testing.T, dir string, n int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "img"), 0o755))
	visionModel(t, filepath.Join(dir, "model"))
	var lines strings.Builder
	for i := range n {
		m := image.NewRGBA(image.Rect(0, 0, 40+i%90, 30+i%50))
		m.Set(1, 1, color.RGBA{uint8(i), 9, 9, 255})
		f, err := os.Create(filepath.Join(dir, "img", fmt.Sprintf("%d.img", i)))
		require.NoError(t, err)
		if i%2 == 0 {
			require.NoError(t, jpeg.Encode(f, m, nil))
		} else {
			require.NoError(t, png.Encode(f, m))
		}
		require.NoError(t, f.Close())
		name := fmt.Sprintf("%d.img", i)
		if i%37 == 5 {
			name = "missing.jpg"
		}
		fmt.Fprintf(&lines, `{"messages":[{"role":"user","content":"<image>what is shown here %s"},{"role":"assistant","content":"it is image %d"}],"image":"%s"}`+"\n", strings.Repeat("x", i%70), i, name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.jsonl"), []byte(lines.String()), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(ingestYAML), 0o644))
}

const ingestYAML = `
output: out
sources:
  - {json: a.jsonl, image_dir: img, sample_type: multi_mix_qa}
  - {json: a.jsonl, image_dir: img, sample_type: chat_mix}
maxcount: 50
workers: 2
pack: {model: model, max_tokens: 256}
`

// treeOf hashes the files of a folder that are data: not locks.
func treeOf(t *testing.T, dir string) map[string]string {
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ".lock" {
			return err
		}
		b, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = hashOf(b)
		return err
	}))
	return out
}

// A job that is killed at random moments ends with the bytes of one that nobody disturbed.
func TestIngestKilled(t *testing.T) {
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
