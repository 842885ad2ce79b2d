package clitest

import (
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lfactor/lfactor/dataset/token"
	"github.com/stretchr/testify/require"
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

// IngestData writes annotations of n entries, some with images and a few that cannot be used, and a job.
func IngestData(t *testing.T, dir string, n int) {
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

// TreeOf hashes the files of a folder that are data: not locks.
func TreeOf(t *testing.T, dir string) map[string]string {
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ".lock" {
			return err
		}
		b, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = HashOf(b)
		return err
	}))
	return out
}
