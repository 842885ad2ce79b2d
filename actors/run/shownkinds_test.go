package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// shownRun trains and gives the losses of training and of evaluations, and what was shown, with the files' bytes.
func shownRun(t *testing.T, text string, args ...string) (losses []float64, all []trained.Shown, files [][]byte, out string) {
	t.Helper()
	out = t.TempDir()
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
		"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved")}, args...)})
	require.NoError(t, err)
	require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) { losses = append(losses, m.Loss) }}))
	for _, e := range evaluations(filepath.Join(out, "log", "log.jsonl"), 100) {
		losses = append(losses, e.Y)
	}
	lines, err := os.ReadFile(filepath.Join(out, "log", "log.jsonl"))
	require.NoError(t, err)
	for line := range strings.Lines(string(lines)) {
		var s struct {
			Msg string
			trained.Shown
		}
		if json.Unmarshal([]byte(line), &s) != nil || s.Msg != "answer" {
			continue
		}
		var b []byte
		if s.File != "" {
			b, err = os.ReadFile(filepath.Join(out, "log", ShownDir, s.File))
			require.NoError(t, err)
		}
		all, files = append(all, s.Shown), append(files, b)
	}
	return losses, all, files, out
}

// TestShownPictures: a model of diffusion draws its captions behind each evaluation, the same pictures on every plan
// that leaves its weights the same, which are those that its checkpoint draws; no bit of training changes.
func TestShownPictures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	captionWords(t, filepath.Join(dir, "words"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	_, export := encodersRun(t, fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml")), dir, filepath.Join(dir, "words"),
		"diffusion.encoders=live", "diffusion.train_text_encoder=true")
	text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [%q], seq_len: 16, split: [80, 20, 0]}\n"+
		"diffusion: {autoencoder: pixels, sizes: [8x8], text_encoder: %q, caption_dropout: 0.3}\n"+
		"train: {steps: 4, global_batch: 4, micro_batch: 2, eval_interval: 2, eval_steps: 1}\noptimizer: {lr: 1.0e-2}\n",
		filepath.Join(dir, "model.yaml"), filepath.Join(dir, "a.tar"), filepath.Join(export, "text_encoder"))
	asks := []string{"train.eval_prompts=[red disc, blue square]", "train.eval_draw_steps=3"}
	silent, none, _, _ := shownRun(t, text)
	require.Empty(t, none)
	losses, all, files, out := shownRun(t, text, asks...)
	require.Equal(t, silent, losses, "drawing changes no bit of training")
	require.Len(t, all, 4)
	require.Equal(t, trained.Shown{Prompt: "red disc", File: "00000002-0.png"}, all[0])
	require.NotEqual(t, files[0], files[2], "other weights draw other pictures")
	m, err := trained.Open(filepath.Join(out, "saved"), "")
	require.NoError(t, err)
	defer m.Close()
	k := 2
	require.NoError(t, diffusion.Draw(m, context.Background(), []string{"red disc", "blue square"},
		diffusion.Drawing{Steps: 3, Guidance: 4}, func(p diffusion.Picture) error {
			require.True(t, bytes.Equal(media.FromPlanes(p.Pixels, p.Size, 0).PNG(), files[k]), k)
			k++
			return nil
		}))
	for _, plan := range [][]string{{"plan.dp=2", "plan.zero=3"}, {"plan.pp=2"}, {"plan.tp=2"}} {
		_, others, same, _ := shownRun(t, text, append(plan, asks...)...)
		require.Equal(t, all, others, plan)
		for i, b := range same {
			a, err := media.Decode(files[i], media.Options{})
			require.NoError(t, err)
			c, err := media.Decode(b, media.Options{})
			require.NoError(t, err)
			for p, v := range a.Pix {
				require.InDelta(t, v, c.Pix[p], 2, "%v: picture %d, byte %d", plan, i, p)
			}
		}
	}
}

// TestShownEpisodes: a policy's actions are predicted beside those that were recorded, frame by frame, as its checkpoint
// acts; no bit of training changes, and what is no episode of data.valid is refused or told.
func TestShownEpisodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view := shown(t, dir)
	text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [%q], valid: [%[2]q], tokenizer: %q, seq_len: 4}\n"+
		"train: {steps: 4, global_batch: 4, eval_interval: 2, eval_steps: 1}\noptimizer: {lr: 1.0e-3}\n",
		filepath.Join(dir, "model.yaml"), filepath.Join(dir, "set"), filepath.Join(dir, "words"))
	silent, _, _, _ := shownRun(t, text)
	losses, all, files, out := shownRun(t, text, "train.eval_prompts=['0', '5']")
	require.Equal(t, silent, losses)
	require.Len(t, all, 4)
	require.Equal(t, "00000004-1.json", all[3].File)
	require.Contains(t, all[3].Answer, "over 5 frames")
	var f struct {
		Frames              []int64
		Recorded, Predicted [][]float64
	}
	require.NoError(t, json.Unmarshal(files[2], &f))
	require.Equal(t, []int64{0, 1, 2, 3, 4}, f.Frames)
	for k, v := range f.Recorded { // of episode 0, as it was written
		require.InDeltaSlice(t, []float64{float64(-k), float64(k), 1}, v, 1e-6)
	}
	m, err := trained.Open(filepath.Join(out, "saved"), "")
	require.NoError(t, err)
	defer m.Close()
	a, err := policies.NewActor(m)
	require.NoError(t, err)
	defer a.Close()
	want, err := a.Act([]policies.Seen{{Task: "red disc", State: []float64{0, 0}, Views: []*media.Image{view}, Seed: 1234}})
	require.NoError(t, err)
	require.Equal(t, want[0], f.Predicted[:4])
	for want, bad := range map[string]string{"numbered from 0 on": "train.eval_prompts=[pick]", "data.valid": "data.valid=[]"} {
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: []string{"log.dir=" + t.TempDir(),
			"train.eval_prompts=['0']", "data.split=[90, 10, 0]", bad}})
		if err == nil {
			_, err = Open(cfg)
		}
		require.ErrorContains(t, err, want)
	}
	_, none, _, _ := shownRun(t, text, "train.eval_prompts=['6']")
	require.Contains(t, none[0].Answer, "data.valid has 6 episodes, which are numbered from 0 on")
}
