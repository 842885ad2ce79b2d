package run

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestQKClipRun: with a limit, what a run says of its scores of attention stays near it, beside Muon at a
// rate that has them grow without; metrics name layers and heads, a run that goes on has the bits of one
// left alone, and models and plans whose scores cannot be kept are refused.
func TestQKClipRun(t *testing.T) {
	t.Parallel()
	docs, _ := poisoned()
	const limit = 1.0
	run := func(dir string, more ...string) (scores []float64, losses map[int64]float64, said string) {
		cfg, err := spikeConfig(t, dir, docs, append([]string{"optimizer.kind=muon", "optimizer.lr=0.1",
			"train.steps=30",
			"checkpoint.interval=15", "schedule.decay_steps=30"}, more...)...)
		require.NoError(t, err)
		var say bytes.Buffer
		losses = map[int64]float64{}
		require.NoError(t, Train(context.Background(), cfg, Options{Warnings: &say, Progress: &say,
			Step: func(m Metrics) {
				losses[m.Step] = m.Loss
				require.Len(t, m.Scores, 2)
				require.Equal(t, "model.layers.1.self_attn", m.Scores[1].Attention)
				scores = append(scores, max(m.Scores[0].Score, m.Scores[1].Score))
			}}))
		return scores, losses, say.String()
	}
	free, _, _ := run(t.TempDir(), "log.attention_logits=true")
	alone := t.TempDir()
	held, want, said := run(alone, "optimizer.qk_clip.limit=1")
	require.Greater(t, free[29], 4*limit)
	require.Less(t, held[29], 2*limit)
	require.Contains(t, said, "scores of attention above 1, queries and keys shrink: model.layers.")
	dir := t.TempDir()
	_, first, _ := run(dir, "optimizer.qk_clip.limit=1", "train.steps=15")
	_, rest, _ := run(dir, "optimizer.qk_clip.limit=1", "plan.recompute=full")
	for step, x := range rest {
		first[step] = x
	}
	require.Equal(t, want, first)
	require.Equal(t, values(t, filepath.Join(alone, "saved"), 30, checkpoint.Param),
		values(t, filepath.Join(dir, "saved"), 30, checkpoint.Param))
	for why, args := range map[string][]string{
		"a member sees a part of the keys": {"optimizer.qk_clip.limit=1", "plan.cp=2"},
		"would not shrink with their layers": {"optimizer.qk_clip.limit=1", "lora.rank=2",
			"lora.targets=[\"*.q_proj\"]"},
		"optimizer.qk_clip.alpha: is not read":             {"optimizer.qk_clip.alpha=0.3"},
		"log.attention_logits: plan.cp = 2: a member sees": {"log.attention_logits=true", "plan.cp=2"},
	} {
		_, err := spikeConfig(t, t.TempDir(), docs, args...)
		require.ErrorContains(t, err, why)
	}
	for why, args := range map[string][]string{
		"freeze leaves model.layers.0.self_attn.": {"optimizer.qk_clip.limit=1", `freeze=["*.q_proj.*"]`},
	} {
		_, err := spikeConfig(t, t.TempDir(), docs, args...)
		require.ErrorContains(t, err, why)
	}
	for name, why := range map[string]string{"mistral/7b-v0.1": "plan.chunk_size has layers with a window",
		"qwen/3-0.6b": "normed, which bounds scores",
		"gemma/2-2b":  "soft cap"} {
		_, err := configs.Load(configs.Request{Args: []string{"model.name=" + name, "model.init=random",
			"data.paths=[x]", "plan.chunk_size=1024",
			"optimizer.qk_clip.limit=100"}})
		require.ErrorContains(t, err, why)
	}
}

// TestStateBesideAdafactor: what a run keeps beside weights is no matrix to Adafactor: greatest scores are
// those that AdamW's first step says, and delayed scales too.
func TestStateBesideAdafactor(t *testing.T) {
	t.Parallel()
	docs, _ := poisoned()
	first := func(kind string) (score float64, saved map[string][]float32) {
		dir := t.TempDir()
		cfg, err := spikeConfig(t, dir, docs, "optimizer.kind="+kind, "train.steps=1",
			"log.attention_logits=true",
			"train.precision=bf16", "train.low_precision=delayed")
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg,
			Options{Step: func(m Metrics) { score = m.Scores[0].Score }}))
		return score, values(t, filepath.Join(dir, "saved"), 1, checkpoint.Param)
	}
	want, state := first("adamw")
	got, other := first("adafactor")
	require.Positive(t, want)
	require.Equal(t, want, got)
	const scales = "model.layers.1.mlp.up_proj.weight.scales"
	require.NotEmpty(t, state[scales])
	require.Equal(t, state[scales], other[scales])
}
