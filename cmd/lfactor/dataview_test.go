package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/demo"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// The page shows rows as they will be trained, with what of them is learnt and each source's share,
// samples with their roles, and what a recipe dropped; nothing of the data runs.
func TestDataView(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	template := `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
	text, err := json.Marshal(map[string]any{"chat_template": template})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tok", "tokenizer_config.json"), text, 0o600))
	for _, name := range []string{"a", "b"} {
		lines := ""
		for i := range 30 {
			lines += fmt.Sprintf(`{"messages":[{"role":"user","content":"ask %s%d <script>alert(1)</script>"},`+
				`{"role":"assistant","content":"reply %s%d"}]}`, name, i, name, i) + "\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(lines), 0o600))
	}
	dropped := `{"input":"web","document":3,"file":"x.jsonl","offset":9,"step":"length","reason":"too_short","head":"<b>tiny</b>"}` + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dropped.jsonl"), []byte(strings.Repeat(dropped, 70)),
		0o600))
	code, out := runIn(t, dir, nil, "data", "view", "--config", "run.yaml", "data.kind=auto",
		"data.paths=[{path: a.jsonl, weight: 3}, {path: b.jsonl, weight: 1}]", "data.split=[100,0,0]",
		"data.seq_len=128", "-n", "3", "--dropped",
		"dropped.jsonl")
	require.Zero(t, code, out)
	require.Contains(t, out, "view.html: 6 samples, 16 rows of 2 steps, 50 dropped documents")
	b, err := os.ReadFile(filepath.Join(dir, "view.html"))
	require.NoError(t, err)
	page := string(b)
	require.Equal(t, 1, strings.Count(page, "<script"), "what the data brings does not run")
	require.Contains(t, page, "&lt;script&gt;alert(1)")
	require.Regexp(t, `<td>b\.jsonl</td><td class="n">30</td><td class="n">0\.25</td>`, page)
	require.Regexp(t, `a\.jsonl · a\.jsonl at byte \d+ · \d+ tokens, \d+ learnt`, page)
	learnt := regexp.MustCompile(`(?s)<span class="yes">([^<]*)</span>`).FindAllStringSubmatch(page, -1)
	require.Greater(t, len(learnt), 10)
	for _, m := range learnt {
		require.Regexp(t, `^reply [ab]\d+`, m[1], "what the assistant says is learnt, and nothing else")
	}
	require.Contains(t, page, `<option value="length: too_short">length: too_short (70)</option>`)
	require.Contains(t, page, "&lt;b&gt;tiny&lt;/b&gt;")
	require.Contains(t, page, `<div class="turn assistant"><small>assistant</small>`)
	code, out = runIn(t, dir, nil, "data", "view", "a.jsonl", "text", "--html", "-", "-n", "2")
	require.Zero(t, code, out)
	require.Equal(t, 4, strings.Count(out, `data-kind="sample"`))
	code, out = runIn(t, dir, nil, "data", "view", "--dropped", "a.jsonl", "--html", "-")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "a.jsonl:1: it is no line of what `lfactor data run` drops")
	code, out = runIn(t, dir, nil, "data", "view")
	require.Equal(t, 2, code, out)
	viewRefused(t, dir)
}

// viewRefused: a page is replaced only when that is asked for, and a ledger that is not there is a wrong word.
func viewRefused(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.html"), []byte("mine"), 0o600))
	code, out := runIn(t, dir, nil, "data", "view", "a.jsonl", "--html", "mine.html")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "mine.html is there already; name another file with --html, or replace it with --overwrite")
	b, err := os.ReadFile(filepath.Join(dir, "mine.html"))
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))
	code, out = runIn(t, dir, nil, "data", "view", "a.jsonl", "--html", "mine.html", "--overwrite", "-n",
		"1")
	require.Zero(t, code, out)
	code, out = runIn(t, dir, nil, "data", "view", "--dropped", "gone.jsonl", "--html", "-")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "--dropped gone.jsonl: there is no such file")
}

// Rows of a model that sees show its images where their tokens stand, and samples of shards theirs.
func TestDataViewImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "shards"), 0o755))
	r := rand.New(rand.NewPCG(1, 2))
	for shard := range 4 {
		w, err := format.CreateShard(filepath.Join(dir, "shards", fmt.Sprintf("scenes-%02d.tar", shard)))
		require.NoError(t, err)
		for i := range 10 {
			s := demo.Scenes(false)[r.IntN(300)]
			text, err := json.Marshal(map[string]any{"messages": demo.SceneTurns(s, r), "media": "image",
				"name": []string{"0.png"}})
			require.NoError(t, err)
			require.NoError(t, w.Add(fmt.Sprintf("s%d-%02d", shard, i), []dataset.Part{{Name: "0.png",
				Bytes: s.Png(r)},
				{Name: "json", Bytes: text}}))
		}
		require.NoError(t, w.Close())
	}
	ids, err := demo.SceneTokenizer(filepath.Join(dir, "tokenizer"))
	require.NoError(t, err)
	config := fmt.Sprintf(demo.DemoVLMConfig, ids["vocab"], ids["<|im_end|>"], ids["<|image_pad|>"],
		ids["<|video_pad|>"], ids["<|vision_start|>"], "shards/scenes-{00..03}.tar", "tokenizer", 3, 1,
		"checkpoints", 3, "run")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(config), 0o600))
	code, page := runIn(t, dir, nil, "data", "view", "--config", "run.yaml", "--steps", "1", "-n", "2",
		"--html", "-")
	require.Zero(t, code, page)
	require.Regexp(t, `<img src="data:image/png;base64,[^"]+" alt="image s\d-\d\d\.0\.png, image/png, \d+ bytes, \d+ tokens"`,
		page)
	require.Contains(t, page, `<span class="yes">`)
	require.Equal(t, 2, strings.Count(page, `data-kind="sample"`))
	require.NoDirExists(t, filepath.Join(dir, "run"), "nothing is written")
}
