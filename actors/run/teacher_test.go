package run

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/trained"
)

// TestPPORun: a head of values is learnt beside the policy and lies in checkpoints; a pipeline draws the same
// answers with the same values and losses to the bit, and a run that is stopped goes on with them; what is exported
// is a model that speaks.
func TestPPORun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"objective.kind=ppo", "objective.kl=0.01", "train.steps=5", "schedule.decay_steps=10",
		"rollout.updates=2"}
	want, drawn := policyRun(t, dir, args...)
	moved := false
	for _, a := range drawn {
		require.Len(t, a.Values, len(a.Answer))
		require.Len(t, a.Returns, len(a.Answer))
		require.Len(t, a.Advantages, len(a.Answer))
		moved = moved || a.Step > 1 && a.Values[0] != 0
	}
	require.True(t, moved)
	piped, same := policyRun(t, dir, append(args, "plan.pp=2")...)
	require.Equal(t, want, piped)
	require.Equal(t, drawn, same)
	out := t.TempDir()
	kept := append(args, "checkpoint.dir="+filepath.Join(out, "saved"), "log.dir="+filepath.Join(out, "log"),
		"checkpoint.save_hf=true")
	first, _ := policyUntil(t, dir, 3, kept...)
	rest, all := policyRun(t, dir, kept...)
	require.Equal(t, want, append(first, rest...))
	require.Equal(t, drawn, all)
	m, err := trained.Open(filepath.Join(out, "saved", "release_hf_weights"), "")
	require.NoError(t, err)
	m.Close()
}

// TestDistill: a student comes nearer to its teacher on answers that it draws itself, without rewards; without a
// teacher, or with rewards, it is refused.
func TestDistill(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), t.TempDir()
	_, drawn := policyRun(t, dir, "checkpoint.dir="+filepath.Join(out, "saved"), "checkpoint.save_hf=true")
	require.Greater(t, meanReward(drawn, 10), 0.3)
	teacher := "objective.reference=" + filepath.Join(out, "saved", "release_hf_weights")
	_, drawn = policyRun(t, dir, "objective.kind=distill", "reward.kind=none", teacher, "train.steps=15")
	far := func(step int64) (mean float64) {
		n := 0.0
		for _, a := range drawn {
			require.Nil(t, a.Reward)
			if a.Step == step {
				mean, n = mean-a.Advantage, n+1
			}
		}
		return mean / n
	}
	require.Greater(t, far(1), 0.5, "a distance of Kullback and Leibler a token")
	require.Less(t, far(15), far(1)/3)
	require.ErrorContains(t, pairsFault(t, dir, "data.paths="+filepath.Join(dir, "prompts.jsonl"), "objective.kind=distill",
		"train.global_batch=8", "rollout.max_tokens=6"), "learns from a teacher")
	require.ErrorContains(t, pairsFault(t, dir, "data.paths="+filepath.Join(dir, "prompts.jsonl"), "objective.kind=distill",
		"train.global_batch=8", "rollout.max_tokens=6", teacher, "reward.kind=exact"), "reads no rewards")
}
