package run

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// moving is a GIF of n frames of 8 by 8 pixels.
func moving(t *testing.T, n int) string {
	g := &gif.GIF{}
	for i := range n {
		p := image.NewPaletted(image.Rect(0, 0, 8, 8), color.Palette{color.Black, color.White})
		p.Pix[i] = 1
		g.Image, g.Delay = append(g.Image, p), append(g.Delay, 6)
	}
	var b bytes.Buffer
	require.NoError(t, gif.EncodeAll(&b, g))
	return b.String()
}

// TestShortClips: clips of fewer frames than their table says, or than any size wants, and ones that are cut off are
// set aside with their reasons, and a size whose frames the autoencoder cannot halve is an error with the next ones
// that it can.
func TestShortClips(t *testing.T) {
	dir := t.TempDir()
	clipsOf(t, filepath.Join(dir, "unused.tar")) // ffprobe says five frames of every file
	whole := moving(t, 5)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range [][2]string{
		{"a.gif", whole}, {"a.txt", "fine"},
		{"b.mp4", strings.Repeat("x", 3*192)}, {"b.txt", "three of five frames"},
		{"c.gif", moving(t, 3)}, {"c.txt", "three frames"},
		{"d.gif", whole[:len(whole)-3]}, {"d.txt", "cut"},
		{"e.mp4", strings.Repeat("x", 5*192)}, {"e.txt", "fine too"},
	} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}))
		_, err := w.Write([]byte(f[1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.tar"), b.Bytes(), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o600))
	text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [%q], seq_len: 80, split: [1, 0, 0]}\n"+
		"diffusion: {autoencoder: pixels, sizes: [5x8x8], fps: 0, text_encoder: none}\n"+
		"train: {steps: 3, global_batch: 2, micro_batch: 1}\nlog: {dir: %q}\n",
		filepath.Join(dir, "model.yaml"), filepath.Join(dir, "a.tar"), filepath.Join(dir, "log"))
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text)})
	require.NoError(t, err)
	require.NoError(t, Train(context.Background(), cfg, Options{}))
	entries, err := os.ReadFile(filepath.Join(dir, "log", "quarantine.jsonl"))
	require.NoError(t, err)
	reasons := map[int]string{1: "only 3 of the 5 frames that were picked can be decoded",
		2: "c.gif: 3 frames of 8×8 pixels fit none of", 3: "d.gif: video: GIF of "}
	for line := range strings.Lines(string(entries)) {
		var e struct {
			Document int
			Reason   string
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		require.NotEmpty(t, reasons[e.Document], line)
		require.Contains(t, e.Reason, reasons[e.Document], "document %d", e.Document)
		delete(reasons, e.Document)
	}
	require.Empty(t, reasons)
	args := strings.NewReplacer("autoencoder: pixels", fmt.Sprintf("autoencoder: %q",
		filepath.Join(autoencodersOf, "wan")),
		"5x8x8", "6x8x8").Replace(text)
	cfg, err = configs.Load(configs.Request{File: "run.yaml", Text: []byte(args)})
	if err == nil {
		err = Train(context.Background(), cfg, Options{})
	}
	require.ErrorContains(t, err, "6 frames are not 1 + a multiple of 2; take 5 or 7")
}
