package run

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/trained"
)

// TestRewardModel: rewards are the scores that a model of rewards gives the tokens that were drawn; a model that gives
// none, and one of another vocabulary, are refused before or when they are asked.
func TestRewardModel(t *testing.T) {
	t.Parallel()
	const policy, judge = "testdata/preference/policy", "testdata/preference/reward"
	from := []string{"model.path=" + policy, "data.tokenizer=" + policy, "reward.kind=model", "train.steps=2",
		"train.global_batch=8", "rollout.group=4", "train.micro_batch=4"}
	dir := t.TempDir()
	_, drawn := policyRun(t, dir, append(from, "reward.model="+judge)...)
	require.Len(t, drawn, 16)
	m, err := trained.Open(judge, policy)
	require.NoError(t, err)
	defer m.Close()
	s, err := m.NewScorer(0)
	require.NoError(t, err)
	values := map[float64]bool{}
	for _, a := range drawn {
		want, err := s.ScoreTokens(append(append([]int32{}, a.Prompt...), a.Answer...))
		require.NoError(t, err)
		require.Equal(t, want, *a.Reward)
		values[want] = true
	}
	require.Greater(t, len(values), 4)
	fails := func(model string) error {
		cfg, err := configs.Load(configs.Request{Args: append([]string{"data.paths=" +
			filepath.Join(dir, "prompts.jsonl"), "data.seq_len=12", "objective.kind=grpo", "rollout.max_tokens=6",
			"log.dir=" + t.TempDir(), "reward.model=" + model}, from...)})
		require.NoError(t, err)
		return Train(context.Background(), cfg, Options{})
	}
	require.ErrorContains(t, fails(policy), "reward.model: testdata/preference/policy is no model of rewards")
	require.ErrorContains(t, fails(filepath.Join(dir, "none")), "reward.model: ")
	other := t.TempDir() // the same weights under other words
	for _, name := range []string{"config.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join(judge, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(other, name), b, 0o600))
	}
	wordTokenizer(t, other, 1)
	err = fails(other) // before an answer is drawn
	require.ErrorContains(t, err, "reward.model: token ")
	require.ErrorContains(t, err, "to the model that is judged: they have no common vocabulary")
}
