package run

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/configs"
)

// talkEnv makes the test's program an environment, which wants red: it gives the share of red in what it is
// told, and says blue. Its value says how it misbehaves.
const talkEnv = "LFACTOR_TEST_TALK"

func TestMain(m *testing.M) {
	if how := os.Getenv(talkEnv); how != "" {
		wantsRed(how)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func wantsRed(how string) {
	n := 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var q struct {
			ID    int64
			Reset *struct{ Record map[string]any }
			Step  *struct{ Text string }
		}
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			panic(err)
		}
		text, reward := "", 0.0
		if q.Reset != nil {
			if n = 0; q.Reset.Record["answer"] != "red" {
				panic("the record is missing")
			}
			if how == "chatty" {
				text = "hello"
			}
			if how == "sorry" {
				fmt.Printf(`{"id": %d, "error": "no level is left"}`+"\n", q.ID)
				continue
			}
		} else {
			n++
			words := strings.Fields(q.Step.Text)
			text, reward = "blue", float64(strings.Count(q.Step.Text, "red"))/float64(max(3, len(words)))
			if how == "dies" && reward > 0 {
				os.Exit(3)
			}
			if how == "quiet" {
				text, reward = "", 1
			}
		}
		fmt.Printf(`{"id": %d, "text": %q, "reward": %g, "done": %t}`+"\n", q.ID, text, reward, n == 3)
	}
}

// talkRun trains on what a model and an environment say by turns.
func talkRun(t *testing.T, dir, how string, more ...string) ([]float64, []rollout.Answer) {
	command := fmt.Sprintf(`rollout.environment=["env","%s=%s","%s"]`, talkEnv, how, os.Args[0])
	return policyRun(t, dir, append([]string{command, "reward.kind=environment", "rollout.turns=3",
		"rollout.max_tokens=10", "data.seq_len=16", "rollout.processes=2", "schedule.decay_steps=10"},
		more...)...)
}

// TestTalkRun: what an environment says stands among an answer's tokens and is not trained on; its rewards
// rise; a pipeline, drawing ahead, and parts of answers by several versions give consistent logs; and
// replay has the environment's turns from the log.
func TestTalkRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	losses, drawn := talkRun(t, dir, "well")
	require.Greater(t, meanReward(drawn, 10), meanReward(drawn, 1)+0.2)
	turns := 0
	for _, a := range drawn {
		sum := 0.0
		for k, h := range a.Heard {
			sum += h.Reward
			require.Equal(t, []int32{4}[:h.N], a.Answer[h.At:h.At+h.N], "blue")
			if h.N > 0 {
				turns++
				require.Equal(t, int32(1), a.Answer[h.At-1], "behind the end of a turn")
				require.Zero(t, a.LogProbs[h.At])
				require.Positive(t, k)
			}
		}
		require.Equal(t, sum, *a.Reward)
		told := a.Told()
		for i, p := range a.LogProbs {
			require.Equal(t, told == nil || !told[i], p != 0)
		}
	}
	require.Greater(t, turns, 100)
	again, same := talkRun(t, dir, "well", "plan.pp=2", "rollout.processes=5")
	require.Equal(t, losses, again)
	require.Equal(t, drawn, same)
	_, ahead := talkRun(t, dir, "well", "rollout.staleness=1", "rollout.span=4", "train.steps=5")
	require.True(t, slices.ContainsFunc(ahead, func(a rollout.Answer) bool {
		return len(a.Versions) > 1 &&
			len(a.Heard) > 1
	}))
	for _, kind := range []string{"ppo", "dr_grpo", "rloo"} {
		talkRun(t, dir, "well", "objective.kind="+kind, "train.steps=2")
	}
}

// TestTalkQuiet: turns without a text are turns all the same, also of answers that several versions draw.
func TestTalkQuiet(t *testing.T) {
	t.Parallel()
	for _, more := range [][]string{nil, {"rollout.staleness=1", "rollout.span=4"}} {
		_, drawn := talkRun(t, t.TempDir(), "quiet", append(more, "train.steps=3")...)
		whole := 0
		for _, a := range drawn {
			require.Equal(t, float64(max(0, len(a.Heard)-1)), *a.Reward)
			if len(a.Heard) == 4 {
				whole++
			} else {
				require.GreaterOrEqual(t, len(a.Answer), 9, "no room for another turn")
			}
		}
		require.Positive(t, whole)
	}
}

// TestTalkReplay: a step is drawn again with the turns of the log, whether or not the environment is there.
func TestTalkReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	talkRun(t, dir, "well", "log.dir="+log, "train.steps=1")
	cfg, err := configs.Load(configs.Request{File: filepath.Join(log, "run.yaml")})
	require.NoError(t, err)
	cfg.Run.Rollout.Environment = []string{"gone"}
	x, err := replayAnswers(cfg, 1, -1)
	require.NoError(t, err)
	require.Equal(t, 32, x.Answers)
	require.Empty(t, x.Differ)
}

// TestTalkFaults: answers whose environment dies, and dies again, are set aside, and others are learnt
// from; settings that nothing reads are refused.
func TestTalkFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	_, drawn := talkRun(t, dir, "dies", "train.steps=1", "data.quarantine=100", "log.dir="+log)
	aside := 0
	for _, a := range drawn {
		if a.Reward == nil {
			aside++
			require.Regexp(t, "turn [123]: it ended", a.Fault)
		}
	}
	require.Positive(t, aside)
	require.Less(t, aside, len(drawn))
	judged, err := rollout.Judge(log, 1, -1)
	require.NoError(t, err)
	for _, j := range judged {
		require.False(t, j.Wrong, j)
	}
	for with, want := range map[string]string{"rollout.turns=2": "rollout.turns: there is no rollout.environment",
		"reward.kind=environment":                               "set rollout.environment",
		"rollout.action=answer":                                 "rollout.action: there is no rollout.environment",
		`rollout.environment=[true] rollout.observation=[said]`: "rollout.observation: rollout.environment is a program"} {
		_, err = configs.Load(configs.Request{Args: append([]string{"model.file=" + filepath.Join(dir,
			"model.yaml"),
			"data.paths=" + filepath.Join(dir, "prompts.jsonl"), "data.tokenizer=" + dir, "data.seq_len=12",
			"rollout.max_tokens=6", "train.steps=1", "train.global_batch=16", "objective.kind=grpo",
			"reward.kind=exact"}, strings.Fields(with)...)})
		require.ErrorContains(t, err, want)
	}
}

// TestRolloutsAhead: with the model's own layer for further tokens a run draws the answers that it draws
// without, and has its losses; a model that has none is refused.
func TestRolloutsAhead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := []string{"model.path=../host/testdata/qwen3-next-mtp", "train.steps=3", "schedule.decay_steps=3",
		"model.overrides.num_nextn_predict_layers=1", "train.mtp_loss_weight=0", "optimizer.lr=1.0e-3"}
	losses, drawn := policyRun(t, dir, from...)
	again, same := policyRun(t, dir, append(from, "rollout.ahead=3")...)
	require.Equal(t, losses, again)
	require.Equal(t, drawn, same)
	again, same = policyRun(t, dir, append(from, "rollout.ahead=2", "lora.rank=4",
		"lora.targets=[q_proj]")...)
	require.Len(t, again, 3)
	require.Len(t, same, len(drawn))
	_, err := configs.Load(configs.Request{Args: []string{"model.file=" + filepath.Join(dir, "model.yaml"),
		"data.paths=" + filepath.Join(dir, "prompts.jsonl"), "data.tokenizer=" + dir, "data.seq_len=12",
		"rollout.max_tokens=6", "train.steps=1", "train.global_batch=16", "objective.kind=grpo",
		"reward.kind=exact",
		"rollout.ahead=2"}})
	require.ErrorContains(t, err, "rollout.ahead: the model has no layer for further tokens")
}

// TestTalkTry: an environment that is not there, ends, or says what is no answer is a fault of the run file
// before anything is drawn; one that says itself that it has an error is none.
func TestTalkTry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policyRun(t, dir, "train.steps=1")
	log := filepath.Join(t.TempDir(), "log")
	asked := func(environment string) error {
		return pairsFault(t, dir, "data.paths="+filepath.Join(dir, "prompts.jsonl"), "data.seq_len=16",
			"reward.kind=environment", "rollout.environment="+environment, "rollout.turns=3",
			"objective.kind=grpo", "train.global_batch=16", "rollout.max_tokens=10", "rollout.wait=5",
			"log.dir="+log)
	}
	for environment, want := range map[string]string{
		`["no-such-program"]`:                                        "it does not start",
		`["sh","-c","exit 3"]`:                                       "turn 0: it ended",
		`["sh","-c","while read x; do echo hm; done"]`:               `turn 0: "hm" is no answer`,
		`["http://127.0.0.1:1"]`:                                     "no session begins",
		fmt.Sprintf(`["env","%s=chatty","%s"]`, talkEnv, os.Args[0]): "says a text at the reset",
	} {
		err := asked(environment)
		require.ErrorContains(t, err, "rollout.environment: ", environment)
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*configs.Error)) // exit code 2
		require.NoFileExists(t, filepath.Join(log, rollout.FileName))
	}
	require.ErrorContains(t, asked(fmt.Sprintf(`["env","%s=sorry","%s"]`, talkEnv, os.Args[0])),
		"the environment answered none of the 16 answers of step 1; the first", "it was tried, and asked")
}
