package run

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// planted is the share of the word red in an answer: the reward of tests.
var _ = reward.Register(reward.Kind{Name: "planted", Doc: "the share of red",
	New: func(*configs.Reward) (reward.Func,
		error) {
		return func(_ context.Context, a *reward.Answer) (float64, error) {
			words := strings.Fields(a.Text)
			if len(words) == 0 {
				return 0, nil
			}
			return float64(strings.Count(a.Text, "red")) / float64(max(4, len(words))), nil
		}, nil
	}})

// picky is a reward that fails for answers with the word red.
var _ = reward.Register(reward.Kind{Name: "picky", Doc: "fails for red",
	New: func(*configs.Reward) (reward.Func, error) {
		return func(_ context.Context, a *reward.Answer) (float64, error) {
			if strings.Contains(a.Text, "red") {
				return 0, errors.New("it is red")
			}
			return 1, nil
		}, nil
	}})

// policyRun trains on answers that the model draws and returns their log.
func policyRun(t *testing.T, dir string, more ...string) (losses []float64, drawn []rollout.Answer) {
	t.Helper()
	return policyUntil(t, dir, 0, more...)
}

// policyUntil is policyRun, which is told to stop in a step, 0 for none.
func policyUntil(t *testing.T, dir string, stop int64, more ...string) (losses []float64, drawn []rollout.Answer) {
	t.Helper()
	return policySaid(t, dir, stop, io.Discard, more...)
}

// policySaid is policyUntil, with what the run says on the screen.
func policySaid(t *testing.T, dir string, stop int64, said io.Writer, more ...string) (losses []float64,
	drawn []rollout.Answer) {
	t.Helper()
	var lines []string
	for i := range 16 {
		lines = append(lines, fmt.Sprintf(`{"prompt": "%s %s", "answer": "red"}`, colours[i%4],
			colours[i/4]))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prompts.jsonl"),
		[]byte(strings.Join(lines, "\n")+"\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"),
		[]byte(pairsModel+"eos_token_id: 1\n"), 0o644))
	wordTokenizer(t, dir, 1)
	model := fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml"))
	if slices.ContainsFunc(more, func(s string) bool { return strings.HasPrefix(s, "model.path=") }) {
		model = "{}"
	}
	text := fmt.Sprintf(`
model: %s
data: {paths: [%q], tokenizer: %q, seq_len: 12}
objective: {kind: grpo}
rollout: {group: 8, max_tokens: 6}
reward: {kind: planted}
train: {steps: 10, global_batch: 32, micro_batch: 8}
optimizer: {lr: 2.0e-2}
schedule: {warmup_steps: 0}
`, model, filepath.Join(dir, "prompts.jsonl"), dir)
	log := filepath.Join(t.TempDir(), "log")
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text),
		Args: append([]string{"log.dir=" + log}, more...)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err = Train(ctx, cfg, Options{Progress: said, Step: func(m Metrics) {
		if losses = append(losses, m.Loss); m.Step == stop {
			cancel()
		}
	}}); stop == 0 {
		require.NoError(t, err)
	}
	f, err := os.Open(filepath.Join(cfg.Run.Log.Dir, rollout.FileName))
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // it is only read
	for s := bufio.NewScanner(f); s.Scan(); {
		var a rollout.Answer
		require.NoError(t, json.Unmarshal(s.Bytes(), &a))
		drawn = append(drawn, a)
	}
	return losses, drawn
}

// meanReward is that of a step's answers.
func meanReward(drawn []rollout.Answer, step int64) (mean float64) {
	n := 0.0
	for _, a := range drawn {
		if a.Step == step {
			mean, n = mean+*a.Reward, n+1
		}
	}
	return mean / n
}

// TestPolicies: with every loss of policies a planted reward rises from what random weights get, in ten steps.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, name := range objective.Names() {
		if p := objective.Lookup(name).Policy; p == nil || p.Unjudged {
			continue // see TestDistill
		}
		_, drawn := policyRun(t, t.TempDir(), "objective.kind="+name)
		require.Len(t, drawn, 320)
		require.Greater(t, meanReward(drawn, 10), meanReward(drawn, 1)+0.2, name)
	}
}

// TestPolicyPlans: a pipeline draws the same answers and has the same losses to the bit, and replicas the
// same answers; a run that is stopped and goes on gives the answers of one that is not.
func TestPolicyPlans(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	losses, drawn := policyRun(t, dir, "train.steps=4", "schedule.decay_steps=10")
	again, same := policyRun(t, dir, "train.steps=4", "schedule.decay_steps=10", "plan.pp=2")
	require.Equal(t, losses, again)
	require.Equal(t, drawn, same)
	again, same = policyRun(t, dir, "train.steps=2", "schedule.decay_steps=10", "plan.dp=2")
	require.InDeltaSlice(t, losses[:2], again, 1e-4)
	require.Equal(t, drawn[:32], same[:32])
	saved := "checkpoint.dir=" + filepath.Join(dir, "saved")
	_, first := policyRun(t, dir, "train.steps=2", "schedule.decay_steps=10", saved)
	_, rest := policyRun(t, dir, "train.steps=4", "schedule.decay_steps=10", saved)
	require.Equal(t, drawn, append(first, rest...))
}

// TestPolicyFaults: settings that make no sense for drawn answers are refused by name; an answer whose
// reward fails is set aside and not learnt from.
func TestPolicyFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policyRun(t, dir, "train.steps=1")
	load := func(args ...string) error {
		_, err := configs.Load(configs.Request{Args: append([]string{"model.file=" +
			filepath.Join(dir, "model.yaml"),
			"data.paths=" + filepath.Join(dir, "prompts.jsonl"), "data.tokenizer=" + dir, "data.seq_len=12",
			"rollout.max_tokens=6", "train.steps=1", "train.global_batch=16", "objective.kind=grpo"},
			args...)})
		return err
	}
	require.ErrorContains(t, load(), "reward.kind: says not")
	require.ErrorContains(t, load("reward.kind=exact", "rollout.group=5"), "no whole groups of 5")
	require.ErrorContains(t, load("reward.kind=exact", "reward.url=x"), "is not read by reward.kind = exact")
	require.ErrorContains(t, load("reward.kind=regex"), "reward.pattern is not given")
	require.ErrorContains(t, load("reward.kind=exact", "objective.beta=1"),
		"is not read by objective.kind = grpo")
	require.ErrorContains(t, load("reward.kind=exact", "objective.kind=none"), "draws no answers")
	require.ErrorContains(t, pairsFault(t, dir, "data.paths="+filepath.Join(dir, "prompts.jsonl"),
		"reward.kind=exact",
		"objective.kind=grpo", "train.global_batch=16", "rollout.max_tokens=6", "rollout.samplers=2"),
		"does not say how to start other processes")
	require.ErrorContains(t, load("reward.kind=exact", "rollout.span=2"),
		"one version draws all of an answer")
	require.ErrorContains(t, load("reward.kind=exact", "rollout.staleness=6", "rollout.updates=3"),
		"18 steps ahead")
	_, drawn := policyRun(t, dir, "reward.kind=picky", "train.steps=2", "data.quarantine=100")
	faults := 0
	for _, a := range drawn {
		if strings.Contains(a.Text, "red") {
			faults++
			require.Nil(t, a.Reward)
			require.Zero(t, a.Advantage)
			require.Contains(t, a.Fault, "it is red")
		} else {
			require.NotNil(t, a.Reward)
		}
	}
	require.NotZero(t, faults)
	fault := func(command string) error {
		return pairsFault(t, dir, "data.paths="+filepath.Join(dir, "prompts.jsonl"), "reward.kind=command",
			"objective.kind=grpo", "train.global_batch=16", "rollout.max_tokens=6", "data.quarantine=100",
			"reward.command="+command)
	}
	require.ErrorContains(t, fault(`["false"]`), "none of the 16 answers of step 1 has a reward; of the first: false: "+
		"exit status 1")
	for _, command := range []string{`["no-such-judge"]`, `["sh","-c","exit 127"]`} {
		err := fault(command)
		require.ErrorContains(t, err, "reward.command: the command cannot run")
		var conf *configs.Error // exit code 2
		require.ErrorAs(t, err, &conf)
	}
}

// TestReplayPacked: so it is of experts whose layers are in few bits or, where ranks cut each of them, are not.
func TestReplayPacked(t *testing.T) {
	t.Parallel()
	for _, plan := range []string{"plan.ep=2", "plan.etp=2"} {
		dir := t.TempDir()
		file := filepath.Join(dir, "experts.yaml")
		require.NoError(t, os.WriteFile(file, []byte(gapModels["experts"]+"eos_token_id: 1\n"), 0o600))
		more := []string{"log.dir=" + filepath.Join(dir, "log"), "model.file=" + file, "train.steps=2",
			"plan.tp=2", plan, "lora.rank=4", "lora.base=int4"}
		policyRun(t, dir, more...)
		cfg, err := configs.Load(configs.Request{Args: append([]string{"data.paths=" + filepath.Join(dir,
			"prompts.jsonl"), "data.tokenizer=" + dir, "data.seq_len=12", "objective.kind=grpo",
			"rollout.max_tokens=6", "reward.kind=planted", "train.global_batch=32", "train.micro_batch=8",
			"optimizer.lr=2.0e-2", "schedule.warmup_steps=0"}, more...)})
		require.NoError(t, err)
		x, err := Replay(cfg, 1, -1)
		require.NoError(t, err)
		require.Empty(t, x.Differ, plan)
		require.True(t, x.Redone.Same, "%s: %+v", plan, x.Redone)
	}
}

// TestReplay: a step's answers are drawn and judged again from the log, with the weights that the run began
// with or those of a checkpoint, and nothing differs; a reward that somebody changed in the log is found.
func TestReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, saved := filepath.Join(dir, "log"), filepath.Join(dir, "saved")
	more := []string{"log.dir=" + log, "train.steps=3", "checkpoint.dir=" + saved, "checkpoint.interval=1",
		"checkpoint.keep=9", "plan.dp=2", "train.micro_batch=4"}
	_, drawn := policyRun(t, dir, more...)
	require.Len(t, drawn, 96)
	cfg, err := configs.Load(configs.Request{Args: append([]string{"model.file=" +
		filepath.Join(dir, "model.yaml"),
		"data.paths=" + filepath.Join(dir, "prompts.jsonl"), "data.tokenizer=" + dir, "data.seq_len=12",
		"objective.kind=grpo", "rollout.max_tokens=6", "reward.kind=planted", "train.global_batch=32",
		"optimizer.lr=2.0e-2", "schedule.warmup_steps=0"}, more...)})
	require.NoError(t, err)
	entries, err := checkpoint.List(saved) // a step whose save would have to wait for another's has none
	require.NoError(t, err)
	steps := []int64{1}
	for _, e := range entries {
		if e.Step < 3 {
			steps = append(steps, e.Step+1)
		}
	}
	require.Greater(t, len(steps), 1)
	for _, step := range steps {
		x, err := Replay(cfg, step, -1)
		require.NoError(t, err)
		require.Equal(t, 32, x.Answers)
		require.Empty(t, x.Differ, "step %d", step)
		require.Empty(t, x.Redone.Missing)
		require.True(t, x.Redone.Same, "step %d: %+v", step, x.Redone)
		require.Contains(t, []string{"same", ""}, x.Redone.Weights)
	}
	path := filepath.Join(log, rollout.FileName)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	var a rollout.Answer
	require.NoError(t, json.Unmarshal([]byte(lines[4]), &a))
	wrong := 0.875
	a.Reward = &wrong
	b, err := json.Marshal(a)
	require.NoError(t, err)
	lines[4] = string(b) + "\n"
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600))
	x, err := Replay(cfg, 1, a.Sample)
	require.NoError(t, err)
	require.Equal(t, []string{"reward"}, []string{x.Differ[0].What})
	require.Len(t, x.Differ, 1)
	require.Equal(t, a.Sample, x.Differ[0].Sample)
	_, err = Replay(cfg, 9, -1)
	require.ErrorContains(t, err, "it has steps 1 to 3")
}
