package run

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestBadPictures: samples of diffusion that cannot be trained are set aside one by one with their reason, and the run
// goes on with the others.
func TestBadPictures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var good bytes.Buffer
	require.NoError(t, png.Encode(&good, image.NewRGBA(image.Rect(0, 0, 8, 8))))
	var small bytes.Buffer
	require.NoError(t, png.Encode(&small, image.NewRGBA(image.Rect(0, 0, 4, 4))))
	cut := good.Bytes()[:good.Len()/2]
	files := [][2]string{
		{"a.png", good.String()}, {"a.txt", "fine"},
		{"b.png", string(cut)}, {"b.txt", "cut"},
		{"c.png", "no picture"}, {"c.txt", "text"},
		{"d.png", good.String()},
		{"e.png", good.String()}, {"e.json", `{"title": "no caption"}`},
		{"f.png", good.String()}, {"f.json", `{"caption": 7}`},
		{"g.png", good.String()}, {"g.jpg", good.String()}, {"g.txt", "two"},
		{"h.txt", "nothing to see"},
		{"i.png", small.String()}, {"i.txt", "small"},
		{"j.mp4", "no clip"}, {"j.txt", "broken"},
		{"k.png", good.String()}, {"k.json", `{"caption": "fine too"}`},
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}))
		_, err := w.Write([]byte(f[1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.tar"), b.Bytes(), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [%q], seq_len: 16, split: [1, 0, 0]}\n"+
		"diffusion: {autoencoder: pixels, sizes: [8x8], text_encoder: none, upscale: false}\n"+
		"train: {steps: 4, global_batch: 2, micro_batch: 1}\nlog: {dir: %q}\n",
		filepath.Join(dir, "model.yaml"), filepath.Join(dir, "a.tar"), filepath.Join(dir, "log"))
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text)})
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "log"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "log", "quarantine.jsonl"),
		[]byte(`{"source":"other","document":3,"file":"other","offset":0,"reason":"of a run before"}`+"\n"), 0o600))
	steps := 0
	require.NoError(t, Train(context.Background(), cfg, Options{Step: func(Metrics) { steps++ }}))
	require.Equal(t, 4, steps)
	entries, err := os.ReadFile(filepath.Join(dir, "log", "quarantine.jsonl"))
	require.NoError(t, err)
	require.NotContains(t, string(entries), "of a run before")
	reasons := map[int]string{1: "b.png: PNG image", 2: "c.png: 10 bytes that begin with",
		3: "there is no caption",
		4: "json has no caption", 5: "json has no caption", 6: "two images or clips, g.png and g.jpg",
		7: "no image and no clip",
		8: "fit none of diffusion.sizes", 9: "j.mp4"}
	for line := range strings.Lines(string(entries)) {
		var e struct {
			Document int
			Reason   string
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		require.Contains(t, e.Reason, reasons[e.Document], "document %d", e.Document)
		require.NotEmpty(t, reasons[e.Document])
		delete(reasons, e.Document)
	}
	require.Empty(t, reasons)
}
