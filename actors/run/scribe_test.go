package run

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// seers are small models of the families that see, with the settings of their processors and the mark
// that their templates write for an image.
var seers = []struct{ folder, processor, mark string }{
	{"qwen2-vl", qwenSight, "<|image_pad|>"}, {"qwen2.5-vl", qwenSight, "<|image_pad|>"},
	{"qwen3-vl", qwenSight, "<|image_pad|>"}, {"qwen3.5-vision", qwenSight, "<|image_pad|>"},
	{"gemma3-vision", `{"image_processor_type": "Gemma3ImageProcessor", "image_seq_length": 4, ` +
		`"size": {"height": 16, "width": 16}}`,
		"<start_of_image>"},
	{"llava-clip", `{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 16}, ` +
		`"crop_size": {"height": 16, "width": 16}}`,
		"<image>"},
	{"internvl2.5", `{"image_processor_type": "GotOcr2ImageProcessor", "size": {"height": 16, "width": 16}, ` +
		`"crop_to_patches": false, "image_seq_length": 4}`,
		"<IMG_CONTEXT>"},
	{"../../../actors/host/testdata/pi0fast", `{"image_processor_type": "SiglipImageProcessor", ` +
		`"size": {"height": 8, "width": 8}}`,
		"<image>"},
}

const qwenSight = `{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4, "temporal_patch_size": 2, ` +
	`"merge_size": 2, "min_pixels": 64, "max_pixels": 1024}`

// seerWords writes a tokenizer in which the model's token for images has a family's mark, with a template
// and the settings of its processor.
func seerWords(t *testing.T, dir, mark, processor string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	soft, begin, end := mark, "<img>", "</img>"
	if mark == "<start_of_image>" { // which its processor writes around the tokens of an image
		soft, begin, end = "<image_soft_token>", mark, "<end_of_image>"
	}
	vocab := map[string]int{"<unk>": 0, "<bos>": 1, "</s>": 2, "what": 3, "now": 4, "red": 5, "disc": 6,
		"?": 7, "0": 8,
		begin: 118, end: 119, soft: 116}
	for len(vocab) < 120 {
		vocab[fmt.Sprintf("w%d", len(vocab))] = len(vocab)
	}
	var added []any
	for _, name := range []string{"<bos>", "</s>", begin, end, soft} {
		added = append(added, map[string]any{"id": vocab[name], "content": name, "special": true})
	}
	tokenizer := map[string]any{"version": "1.0", "added_tokens": added,
		"pre_tokenizer": map[string]any{"type": "Whitespace"},
		"model":         map[string]any{"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}}
	settings := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>",
		"eos_token": "</s>",
		"chat_template": `{% for m in messages %}{% if m['role'] == 'user' %}<bos>{% for p in m['content'] %}{% if p['type'] == 'image' %}` +
			mark + `{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% else %} {{ m['content'] }}</s>{% endif %}{% endfor %}` +
			`{% if add_generation_prompt %} {% endif %}`}
	for name, v := range map[string]any{"tokenizer.json": tokenizer, "tokenizer_config.json": settings} {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(processor),
		0o644))
}

// scribeRun trains a model that writes actions and returns its losses and its checkpoints.
func scribeRun(t *testing.T, dir, folder, words string, more ...string) (losses []float64, saved string,
	err error) {
	t.Helper()
	out := t.TempDir()
	saved = filepath.Join(out, "saved")
	text := fmt.Sprintf(`model: {path: %q, init: random, overrides: {vocab_size: 400}}
data: {paths: [%q], tokenizer: %q, seq_len: 96, split: [1, 0, 0]}
policy: {tokens: bins, horizon: 2, view_size: 16, question: "what now {task} ?"}
train: {steps: 3, global_batch: 8, micro_batch: 2, seed: 3}
optimizer: {lr: 4.0e-3}
schedule: {warmup_steps: 0}
`, filepath.Join("../../stages/family/testdata", folder), filepath.Join(dir, "set"), words)
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Files: true,
		Args: append([]string{"checkpoint.save_hf=true", "log.dir=" + filepath.Join(out, "log"),
			"checkpoint.dir=" + saved}, more...)})
	if err != nil {
		return nil, "", err
	}
	err = Train(context.Background(), cfg, Options{Step: func(m Metrics) {
		losses = append(losses,
			m.Loss)
	}})
	return losses, saved, err
}

// TestScribes: every family of models that see is a policy by a line of a run file: it learns to write actions,
// alike under a plan, and acts from its checkpoints within a step of the range that it has learnt.
func TestScribes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view := shown(t, dir)
	for _, s := range seers {
		t.Run(s.folder, func(t *testing.T) {
			t.Parallel()
			words := filepath.Join(t.TempDir(), "words")
			seerWords(t, words, s.mark, s.processor)
			one, saved, err := scribeRun(t, dir, s.folder, words)
			require.NoError(t, err)
			require.Less(t, one[2], one[0])
			two, _, err := scribeRun(t, dir, s.folder, words, "plan.dp=2", "plan.zero=2", "plan.tp=2")
			require.NoError(t, err)
			require.InEpsilonSlice(t, one, two, 1e-5)
			chunk := scribeActs(t, saved, view)
			alone := scribeActs(t, filepath.Join(saved, "release_hf_weights"),
				view) // without its recordings
			require.Equal(t, chunk, alone)
			for _, a := range chunk {
				for i, most := range []float64{5, 4, 1} {
					require.LessOrEqual(t, math.Abs(a[i]), most+0.1)
				}
			}
		})
	}
}

// scribeActs asks a policy that writes, which answers alike twice and whoever else is asked.
func scribeActs(t *testing.T, saved string, view *media.Image) [][]float64 {
	t.Helper()
	m, err := trained.Open(saved, "")
	require.NoError(t, err)
	defer m.Close()
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	defer actor.Close()
	seen := policies.Seen{Task: "red disc", State: []float64{1, 2}, Views: []*media.Image{view}}
	covered := policies.Seen{Task: "red disc", State: []float64{1, 2}, Views: []*media.Image{nil}}
	got, err := actor.Act([]policies.Seen{seen, covered, seen})
	require.NoError(t, err)
	require.Equal(t, got[0], got[2])
	require.Len(t, got[0], actor.Abilities().Chunk)
	require.Len(t, got[0][0], 3)
	require.False(t, actor.Abilities().Joins)
	_, err = actor.Act([]policies.Seen{{Task: "red disc", State: []float64{1}}})
	require.ErrorContains(t, err, "observation.state: 1 numbers, and the statistics have 2")
	_, err = actor.Act([]policies.Seen{{State: []float64{1, 2}, Views: []*media.Image{view, view}}})
	require.ErrorContains(t, err, "2 cameras, and the policy learnt of 1")
	return got[0]
}

// TestScribeLearns: a policy that writes comes to do what it was shown, as bins and as FAST's tokens;
// views that are changed, and padding that is not learnt, have their effect.
func TestScribeLearns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view := shown(t, dir)
	words, fast := filepath.Join(dir, "sight"), filepath.Join(dir, "fast")
	seerWords(t, words, "<|image_pad|>", qwenSight)
	scribeFAST(t, dir, words, fast)
	for _, how := range [][]string{{"policy.tokens=bins", "policy.answer=now {actions} red"},
		{"policy.tokens=fast",
			"policy.fast=" + fast}} {
		args := append(how, "train.steps=40", "train.global_batch=10", "train.micro_batch=5",
			"policy.normalize=min_max")
		losses, saved, err := scribeRun(t, dir, "qwen2.5-vl", words, args...)
		require.NoError(t, err)
		require.Less(t, losses[len(losses)-1], 0.5*losses[0])
		got := scribeActs(t, saved, view)
		require.InDelta(t, 1, got[0][2], 0.2) // the same in every recording
		require.Equal(t, got, scribeActs(t, filepath.Join(saved, "release_hf_weights"), view))
		if how[0] != "policy.tokens=fast" {
			continue
		}
		f, err := token.OpenFAST(fast)
		require.NoError(t, err)
		f.Scale++
		require.NoError(t, f.Save(fast))
		m, err := trained.Open(saved, "")
		require.NoError(t, err)
		_, err = policies.NewActor(m)
		m.Close()
		require.ErrorContains(t, err, "has another tokenizer than the policy was trained with")
	}
	plain, _, err := scribeRun(t, dir, "qwen2.5-vl", words)
	require.NoError(t, err)
	for _, more := range []string{"policy.brightness=0.5", "policy.learn_padding=false",
		"policy.token_end=390",
		"policy.horizon=3", "policy.question=now {task} {state}", "policy.answer=now {actions} red"} {
		other, _, err := scribeRun(t, dir, "qwen2.5-vl", words, more)
		require.NoError(t, err)
		require.NotEqual(t, plain, other, more)
	}
	bright, _, err := scribeRun(t, dir, "qwen2.5-vl", words, "policy.brightness=0.5")
	require.NoError(t, err)
	shared, _, err := scribeRun(t, dir, "qwen2.5-vl", words, "policy.brightness=0.5", "plan.dp=2")
	require.NoError(t, err)
	require.InEpsilonSlice(t, bright, shared, 1e-5)
}

// scribeFAST makes the tokenizer of the recordings' actions, and holds what is said of it.
func scribeFAST(t *testing.T, dir, words, fast string) {
	t.Helper()
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(fmt.Sprintf(`
model: {path: ../../stages/family/testdata/qwen2.5-vl, init: random, overrides: {vocab_size: 400}}
data: {paths: [%q], tokenizer: %q, seq_len: 96}
policy: {tokens: fast, fast: %q, horizon: 2, normalize: min_max}
`, filepath.Join(dir, "set"), words, fast))})
	require.NoError(t, err)
	r, err := policies.FitFAST(cfg, 1000, 128, 10)
	require.NoError(t, err)
	require.Equal(t, 30, r.Chunks)
	require.Equal(t, 6, r.Plain)
	require.LessOrEqual(t, r.Most, 6)
	require.Less(t, r.Worst, 0.05*math.Sqrt(2)+1e-9) // half a step of each of two coefficients
	_, err = token.OpenFAST(fast)
	require.NoError(t, err)
	cfg.Run.Policy.Tokens = "bins"
	_, err = policies.FitFAST(cfg, 1000, 128, 10)
	require.ErrorContains(t, err, "policy.tokens: bins, and only fast has a tokenizer")
}

// TestScribeRefuses: what does not go together is refused with its key.
func TestScribeRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shown(t, dir)
	words := filepath.Join(dir, "sight")
	seerWords(t, words, "<|image_pad|>", qwenSight)
	for _, c := range []struct{ arg, want string }{
		{"policy.fast=" + dir, "policy.fast: names a tokenizer where policy.tokens is fast"},
		{"policy.tokens=fast", "policy.fast: names a tokenizer where policy.tokens is fast"},
		{"policy.state_dropout=0.1", "policy.state_dropout: a model that writes actions"},
		{"policy.question=go", "policy.question: has neither {task} nor {state}"},
		{"policy.answer=go", "policy.answer: has {actions} not once"},
		{"policy.token_end=401", "policy.token_end: 401, and the vocabulary has 400"},
		{"policy.token_end=255", "policy.token_end: 255"},
		{"policy.embodiments=[1]", "policy.embodiments: the model has weights of one kind"},
		{"lora.rank=2 lora.adapters_only=false", "lora.merge: who acts by an export reads no adapters"},
		{"model.overrides.vocab_size=120", "policy.tokens: 120 tokens are too few"},
		{"policy.token_end=256", "the token 119, which is a special one of the tokenizer, is one of those that stand for actions"},
		{"policy.tokens=none", "recordings of robots"},
		{"data.seq_len=12", "data.seq_len is 12"},
		{"data.paths=[" + filepath.Join(dir, "a.txt") + "]", "recordings of robots, and nothing else"}} {
		more := strings.Fields(c.arg)
		if c.arg == "policy.tokens=none" {
			more = append(more, "policy.horizon=8", "policy.view_size=224",
				"policy.question=What action should the robot take to {task}?")
		}
		_, _, err := scribeRun(t, dir, "qwen2.5-vl", words, more...)
		require.ErrorContains(t, err, c.want, c.arg)
	}
}
