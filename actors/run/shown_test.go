package run

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestShown: behind each evaluation the prompts are answered by the weights of its step, alike on every plan: what is
// drawn last is what the exported model draws of itself, by Evaluate, and a run that learns one answer ends by giving
// it.
func TestShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, false)
	lines := strings.Repeat(`{"text": "red disc blue square"}`+"\n", 8)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "texts.jsonl"), []byte(lines), 0o600))
	load := func(log string, more ...string) (*configs.Config, error) {
		return configs.Load(configs.Request{Args: append([]string{"model.file=" + filepath.Join(dir, "model.yaml"),
			"data.paths=[" + filepath.Join(dir, "texts.jsonl") + "]", "data.tokenizer=" + dir, "data.seq_len=32",
			"data.split=[60,40,0]", "train.global_batch=2", "train.micro_batch=1", "train.steps=60", "optimizer.lr=2e-2",
			"schedule.kind=constant", "train.eval_interval=30", "train.eval_steps=1", "checkpoint.dir=" + filepath.Join(log, "saved"), "log.dir=" + log}, more...)})
	}
	asks := []string{"train.eval_prompts=[red disc, red]", "train.eval_tokens=2"}
	losses := func(log string) (out []float64) {
		for _, e := range evaluations(filepath.Join(log, "log.jsonl"), 100) {
			out = append(out, e.Y)
		}
		return out
	}
	silent := t.TempDir()
	cfg, err := load(silent)
	require.NoError(t, err)
	require.NoError(t, Train(context.Background(), cfg, Options{}))
	var first []string
	for _, plan := range []string{"plan.dp=1", "plan.dp=2", "plan.pp=2", "plan.tp=2"} {
		log := t.TempDir()
		cfg, err := load(log, append(asks, plan)...)
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{}))
		text, err := os.ReadFile(filepath.Join(log, "log.jsonl"))
		require.NoError(t, err)
		var told []string
		for _, line := range strings.Split(string(text), "\n") {
			var e struct {
				Msg, Prompt, Answer string
				Step                int64
			}
			if json.Unmarshal([]byte(line), &e) == nil && e.Msg == "answer" {
				require.Contains(t, []int64{30, 60}, e.Step)
				told = append(told, e.Prompt+":"+e.Answer)
			}
		}
		require.Len(t, told, 4, plan)
		if first == nil {
			first = told
			require.Equal(t, losses(silent), losses(log), "drawing changes no bit of training")
		}
		require.Equal(t, first, told, plan)
		cfg, err = load(log, asks...)
		require.NoError(t, err)
		e, err := Evaluate(context.Background(), cfg, Question{})
		require.NoError(t, err)
		require.Equal(t, told[2:], []string{e.Answers[0].Prompt + ":" + e.Answers[0].Answer,
			e.Answers[1].Prompt + ":" + e.Answers[1].Answer})
	}
	require.Equal(t, "blue square", strings.TrimSpace(strings.TrimPrefix(first[2], "red disc:")))
	for want, bad := range map[string]string{"set an interval": "train.eval_interval=0", "plan.procs": "plan.procs=2",
		"an empty prompt":           "train.eval_prompts=['']",
		"3 pictures, and 2 prompts": "train.eval_images=[a, b, c]", "the model sees nothing": "train.eval_images=[" + dir + "/model.yaml]", "train.eval_tokens": "train.eval_prompts=[]"} {
		cfg, err := load(t.TempDir(), append(asks, bad)...)
		if err == nil {
			_, err = Open(cfg)
		}
		require.ErrorContains(t, err, want, bad)
	}
	cfg, err = load(t.TempDir(), append(asks, "train.eval_tokens=31")...)
	require.NoError(t, err)
	require.ErrorContains(t, Train(context.Background(), cfg, Options{}), "data.seq_len leaves 1 beside")
}

// TestPicture: a picture of train.eval_images is a file, and of a size that fits into memory.
func TestPicture(t *testing.T) {
	dir := t.TempDir()
	_, err := picture(dir)
	require.ErrorContains(t, err, "is no file")
	large := filepath.Join(dir, "large.png")
	require.NoError(t, os.WriteFile(large, nil, 0o644))
	require.NoError(t, os.Truncate(large, pictureMost+1))
	_, err = picture(large)
	require.ErrorContains(t, err, "has 67108865 bytes, and a picture at most 67108864")
	require.NoError(t, os.Truncate(large, 3))
	b, err := picture(large)
	require.NoError(t, err)
	require.Len(t, b, 3)
}
