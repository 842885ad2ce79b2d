package run

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// aheadOf are ways to draw ahead of training.
var aheadOf = [][]string{
	{"rollout.staleness=1"},
	{"rollout.staleness=2", "rollout.span=2"},
	{"rollout.updates=2"},
	{"rollout.staleness=2", "rollout.updates=2", "rollout.span=1"},
}

// TestPolicyAhead: answers are drawn by the weights that the schedule names, none older than it allows; a
// pipeline gives the same answers and losses to the bit; a run that is stopped in any step and goes on
// gives those of one that is not, and each answer once.
func TestPolicyAhead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range aheadOf {
		args = append(args, "train.steps=6", "schedule.decay_steps=10")
		want, drawn := policyRun(t, dir, args...)
		require.Len(t, want, 6)
		several := 0
		for _, a := range drawn {
			require.Zero(t, (a.Step-1)%plannedUpdates(args))
			n := (a.Step - 1) / plannedUpdates(args)
			k := plannedAge(args)
			require.Equal(t, max(0, n-k)*plannedUpdates(args), a.Version, "%v", a)
			for i, v := range a.Versions {
				require.Equal(t, a.Version+int64(i)*plannedUpdates(args), v[1])
				require.LessOrEqual(t, v[1], a.Step-1)
			}
			if len(a.Versions) > 1 {
				several++
			}
		}
		require.Equal(t, strings.Contains(strings.Join(args, " "), "span"), several > 0, "%v", args)
		piped, same := policyRun(t, dir, append(args, "plan.pp=2")...)
		require.Equal(t, want, piped)
		require.Equal(t, drawn, same)
		for stop := int64(1); stop < 5; stop++ {
			out := t.TempDir()
			kept := append(args, "checkpoint.dir="+filepath.Join(out, "saved"),
				"log.dir="+filepath.Join(out, "log"))
			first, _ := policyUntil(t, dir, stop, kept...)
			require.Less(t, len(first), 6)
			rest, all := policyRun(t, dir, kept...)
			require.Equal(t, want, append(first, rest...), "%v, stopped in step %d", args, stop)
			require.Equal(t, drawn, all, "%v, stopped in step %d", args, stop)
		}
	}
}

// plannedUpdates and plannedAge are what arguments say of the schedule.
func plannedUpdates(args []string) int64 {
	if strings.Contains(strings.Join(args, " "), "updates=2") {
		return 2
	}
	return 1
}

func plannedAge(args []string) int64 {
	for _, a := range args {
		if n, ok := strings.CutPrefix(a, "rollout.staleness="); ok {
			return int64(n[0] - '0')
		}
	}
	return 0
}

// TestReplayAhead: answers that several versions drew are drawn again from the log, each part by its own
// weights, and nothing differs.
func TestReplayAhead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, saved := filepath.Join(dir, "log"), filepath.Join(dir, "saved")
	more := []string{"log.dir=" + log, "train.steps=5", "checkpoint.dir=" + saved, "checkpoint.interval=1",
		"checkpoint.keep=9", "rollout.staleness=2", "rollout.span=2"}
	policyRun(t, dir, more...)
	cfg, err := configs.Load(configs.Request{Args: append([]string{"model.file=" +
		filepath.Join(dir, "model.yaml"),
		"data.paths=" + filepath.Join(dir, "prompts.jsonl"), "data.tokenizer=" + dir, "data.seq_len=12",
		"objective.kind=grpo", "rollout.max_tokens=6", "reward.kind=planted", "train.global_batch=32",
		"optimizer.lr=2.0e-2", "schedule.warmup_steps=0", "train.micro_batch=8"}, more...)})
	require.NoError(t, err)
	entries, err := checkpoint.List(saved)
	require.NoError(t, err)
	have := map[int64]bool{0: true}
	for _, e := range entries {
		have[e.Step] = true
	}
	replayed := 0
	for step := int64(1); step <= 5; step++ {
		if !have[max(0, step-3)] || !have[max(0, step-2)] || !have[step-1] {
			continue // a save that would have had to wait was left out
		}
		x, err := Replay(cfg, step, -1)
		require.NoError(t, err)
		require.Empty(t, x.Differ, "step %d", step)
		require.Empty(t, x.Redone.Missing)
		require.True(t, x.Redone.Same, "step %d: %+v", step, x.Redone)
		replayed++
	}
	require.Positive(t, replayed)
}
