package run

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/trained"
)

// TestPPORun: a head of values is learnt beside the policy and lies in checkpoints; a pipeline draws the same
// answers with the same values and losses to the bit, and a run that is stopped goes on with them; what is
// exported is a model that speaks.
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

// TestDistill: a student comes nearer to its teacher on answers that it draws itself, without rewards;
// without a teacher, or with rewards, it is refused.
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
	require.ErrorContains(t, pairsFault(t, dir, "data.paths="+filepath.Join(dir, "prompts.jsonl"),
		"objective.kind=distill",
		"train.global_batch=8", "rollout.max_tokens=6"), "learns from a teacher")
	require.ErrorContains(t, pairsFault(t, dir, "data.paths="+filepath.Join(dir, "prompts.jsonl"),
		"objective.kind=distill",
		"train.global_batch=8", "rollout.max_tokens=6", teacher, "reward.kind=exact"), "reads no rewards")
}

// TestTaught: a student learns the distributions of a teacher on texts; a copy of the teacher has nothing to learn;
// a pipeline gives the same bits, replicas the same losses; without a teacher, or with data of pairs, it is refused.
func TestTaught(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), t.TempDir()
	pairs := writePairs(t, dir, false)
	policyRun(t, dir, "checkpoint.dir="+filepath.Join(out, "saved"), "checkpoint.save_hf=true")
	teacher := filepath.Join(out, "saved", "release_hf_weights")
	text := filepath.Join(dir, "text.jsonl")
	var lines []string
	for i := range 40 {
		lines = append(lines, `{"text": "`+strings.Repeat(colours[i%4]+" "+colours[i/4%4]+" ", 3+i%5)+`"}`)
	}
	require.NoError(t, os.WriteFile(text, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	args := []string{"objective.kind=gkd", "data.paths=[" + text + "]", "objective.reference=" + teacher,
		"train.phase=sft"}
	for _, mix := range []string{"0", "0.5", "1"} {
		args := append(args, "objective.mix="+mix)
		want, _ := pairsRun(t, dir, args...)
		require.Greater(t, want[0], 0.01, mix)
		require.Less(t, want[11], want[0]/2, mix)
		if mix != "0.5" {
			continue
		}
		piped, _ := pairsRun(t, dir, append(args, "plan.pp=2")...)
		require.Equal(t, want, piped)
		got, _ := pairsRun(t, dir, append(args, "plan.dp=2")...)
		require.InDeltaSlice(t, want, got, 2e-4)
		require.ErrorContains(t, pairsFault(t, dir, append(args, "plan.tp=2")...), "lie whole on every rank")
	}
	cfg, err := configs.Load(configs.Request{Args: append([]string{"model.path=" + teacher,
		"data.tokenizer=" + dir,
		"data.seq_len=48", "train.steps=1", "log.dir=" + filepath.Join(out, "same")}, args...)})
	require.NoError(t, err)
	require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
		require.InDelta(t, 0, m.Loss, 1e-6)
	}}))
	require.ErrorContains(t, pairsFault(t, dir, "data.paths="+text, "objective.kind=gkd"),
		"learns from a teacher")
	require.ErrorContains(t, pairsFault(t, dir, "data.paths="+pairs, "objective.kind=gkd",
		"objective.reference="+teacher),
		"learns from texts or conversations")
}
