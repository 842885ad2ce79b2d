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
	"github.com/lfactor/lfactor/kernels/objective"
)

// pairsModel is a decoder whose tokens are words.
const pairsModel = `model_type: llama
hidden_size: 32
num_hidden_layers: 2
num_attention_heads: 4
num_key_value_heads: 2
head_dim: 8
intermediate_size: 48
initializer_range: 0.1
max_position_embeddings: 64
`

// colours are the words of pairs.
var colours = []string{"red", "blue", "square", "disc"}

// writePairs writes pairs of which the chosen answer repeats the prompt's word, as texts and as messages,
// and some that cannot be used.
func writePairs(t *testing.T, dir string, bad bool) string {
	t.Helper()
	var lines []string
	add := func(v any) {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		lines = append(lines, string(b))
	}
	for i := range 24 {
		ask, other := colours[i%4], colours[(i+1+i%3)%4]
		add(map[string]any{"prompt": ask + " disc", "chosen": " " + ask + strings.Repeat(" "+ask, i%3),
			"rejected": " " + other + " blue", "margin": 0.1 * float64(i%2)})
	}
	if bad {
		add(map[string]any{"prompt": "red", "chosen": " blue", "rejected": " blue"})
		add(map[string]any{"prompt": "red", "chosen": " blue"})
		add(map[string]any{"prompt": "red", "chosen": "", "rejected": " blue"})
		add(map[string]any{"prompt": "red", "chosen": " blue", "rejected": strings.Repeat(" blue", 60)})
		add(map[string]any{"prompt": "red", "chosen": []any{map[string]any{"role": "robot",
			"content": "blue"}},
			"rejected": []any{map[string]any{"role": "assistant", "content": "red"}}})
		lines = append(lines, `{"prompt": "red", "chosen": " blue", "rejected": 3}`)
	}
	path := filepath.Join(dir, "pairs.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(pairsModel), 0o644))
	wordTokenizer(t, dir, 1)
	return path
}

// pairsRun trains on pairs and returns the losses.
func pairsRun(t *testing.T, dir string, more ...string) (losses []float64, log string) {
	t.Helper()
	text := fmt.Sprintf(`
model: {file: %q}
data: {paths: [%q], tokenizer: %q, seq_len: 48, split: [1, 0, 0]}
objective: {kind: dpo}
train: {steps: 12, global_batch: 4, micro_batch: 1}
optimizer: {lr: 1.0e-2}
schedule: {warmup_steps: 0}
`, filepath.Join(dir, "model.yaml"), filepath.Join(dir, "pairs.jsonl"), dir)
	log = filepath.Join(t.TempDir(), "log")
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text),
		Args: append([]string{"log.dir=" + log}, more...)})
	require.NoError(t, err)
	require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
		losses = append(losses, m.Loss)
	}}))
	return losses, log
}

// pairsFault is the error of a run over answers.
func pairsFault(t *testing.T, dir string, args ...string) error {
	t.Helper()
	cfg, err := configs.Load(configs.Request{Args: append([]string{"model.file=" +
		filepath.Join(dir, "model.yaml"), "data.tokenizer=" + dir, "data.seq_len=48", "train.steps=1",
		"log.dir=" + filepath.Join(t.TempDir(), "log")}, args...)})
	if err == nil {
		err = Train(context.Background(), cfg, Options{})
	}
	return err
}

// TestPairs: DPO begins at ln 2, since the policy is the reference, and learns; a pipeline, a cache, and a run that is
// stopped and goes on give the same bits, replicas and tensor parallelism the same losses; adapters begin at ln 2 too.
func TestPairs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, false)
	want, _ := pairsRun(t, dir)
	require.Len(t, want, 12)
	require.InDelta(t, math.Ln2, want[0], 1e-7) // shares of pairs are rounded to float32
	require.Less(t, want[11], 0.4)
	for _, more := range [][]string{{"plan.pp=2"}, {"objective.cache=off"},
		{"objective.cache=" + filepath.Join(dir, "kept")}, {"objective.cache=" +
			filepath.Join(dir, "kept")}} {
		got, _ := pairsRun(t, dir, more...)
		require.Equal(t, want, got, "%v", more)
	}
	for _, more := range [][]string{{"plan.dp=2"}, {"plan.tp=2"},
		{"plan.tp=2", "plan.sequence_parallel=true"}} {
		got, _ := pairsRun(t, dir, more...)
		require.InDeltaSlice(t, want, got, 2e-4, "%v", more)
	}
	saved := "checkpoint.dir=" + filepath.Join(dir, "saved")
	first, _ := pairsRun(t, dir, saved, "train.steps=5", "schedule.decay_steps=12")
	rest, _ := pairsRun(t, dir, saved, "schedule.decay_steps=12")
	require.Equal(t, want, append(first, rest...))
	lora, _ := pairsRun(t, dir, "lora.rank=4", `lora.targets=["*"]`)
	require.InDelta(t, math.Ln2, lora[0], 1e-7)
	for _, args := range [][]string{{"plan.tp=2", "train.precision=bf16"}, {"plan.tp=2"},
		{"lora.rank=4", "lora.base=int8"}, {"lora.rank=4", "lora.base=nf4", "plan.tp=2"}} {
		first, _ := pairsRun(t, dir, append(args, "train.steps=1")...) // of which the reference is the policy
		require.InDelta(t, math.Ln2, first[0], 1e-7, "%v", args)
	}
	require.Less(t, lora[11], lora[0])
}

// TestPairLosses: every loss over answers trains from one run file, in float32 and in bfloat16.
func TestPairLosses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, false)
	for _, name := range objective.Names() {
		if l := objective.Lookup(name); l.Policy != nil || l.Judged || l.Logits != nil ||
			l.Vectors != nil {
			continue // see TestPolicies, TestJudged, TestTaught and TestSimilar
		}
		for _, precision := range []string{"fp32", "bf16"} {
			got, _ := pairsRun(t, dir, "objective.kind="+name, "train.precision="+precision)
			require.Less(t, got[11], got[0], "%s %s", name, precision)
		}
	}
}

// TestBadPairs: pairs that cannot be used are set aside with the reason, and nothing is trained on them.
func TestBadPairs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, true)
	_, log := pairsRun(t, dir, "data.shuffle=false", "train.steps=8")
	text, err := os.ReadFile(filepath.Join(log, "quarantine.jsonl"))
	require.NoError(t, err)
	for _, why := range []string{"its two answers are equal", `it has no \"rejected\"`,
		"one of its answers is empty",
		"over the sequence length of 48", `chosen[0] has the role \"robot\"`,
		`its \"rejected\" is not text`} {
		require.Contains(t, string(text), why)
	}
}

// TestPairFaults: settings that do not go together are refused by name.
func TestPairFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := writePairs(t, dir, false)
	load := func(args ...string) error {
		cfg, err := configs.Load(configs.Request{Args: append([]string{"model.file=" +
			filepath.Join(dir, "model.yaml"),
			"data.paths=" + path, "data.tokenizer=" + dir, "data.seq_len=48", "train.steps=1",
			"log.dir=" + filepath.Join(dir, "log")}, args...)})
		if err == nil {
			err = Train(context.Background(), cfg, Options{})
		}
		return err
	}
	require.ErrorContains(t, load(), "objective.kind: the data holds pairs of answers")
	require.ErrorContains(t, load("objective.kind=simpo", "objective.reference=x"), "needs no reference")
	require.ErrorContains(t, load("objective.kind=dpo", "objective.gamma=1"),
		"is not read by objective.kind = dpo")
	require.ErrorContains(t, load("objective.kind=dpo", "plan.cp=2"), "all tokens of an answer on one rank")
	require.ErrorContains(t, load("objective.beta=1"), "objective.kind is none")
}
