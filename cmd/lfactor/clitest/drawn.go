package clitest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// Talks are the arguments with which a drawn run talks with an environment, in turns.
var Talks = []string{"rollout.environment=[sh, env.sh]", "rollout.turns=3", "rollout.processes=2",
	"reward.kind=environment", `reward.pattern=""`}

// talkScript is that environment: it rewards a 7 and asks for more. Where there is a file gate, no episode
// begins behind as many steps as it says.
const talkScript = `shut() { [ -e gate ] && [ "$(grep -c . run/metrics.jsonl 2>/dev/null)" -ge "$(cat gate)" ]; }
while read -r q; do
  id=${q#*\"id\":}; id=${id%%,*}; r=0; d=false
  case $q in
  *'"reset"'*) n=0; text=; while shut; do sleep 0.02; done 2>/dev/null ;;
  *) n=$((n + 1)); text="1+$n="
     case ${q#*\"text\":} in *7*) r=1 ;; esac
     [ $n = 3 ] && d=true ;;
  esac
  echo "{\"id\": $id, \"text\": \"$text\", \"reward\": $r, \"done\": $d}"
done
`

// GateSteps are the steps that a drawn run which talks gets at most beyond those that its gate lets pass: as
// many batches as are drawn ahead, and the one that is trained.
const GateSteps = 4

// Gate lets a run that has one come behind so many steps, and at most GateSteps further where it draws,
// no further where Gated has planted the gate, until it is set anew. A test strikes meanwhile, however long that takes.
func Gate(t *testing.T, dir string, steps int) {
	t.Helper()
	at := filepath.Join(dir, "gate")
	require.NoError(t, os.WriteFile(at+".new", []byte(fmt.Sprint(steps)), 0o600))
	require.NoError(t, os.Rename(at+".new", at)) // nobody reads half of it
}

// Gated is the environment of a run in a directory that takes so many steps, until Gate lets it take more.
func Gated(t *testing.T, dir string, steps int) []string {
	t.Helper()
	Gate(t, dir, steps)
	return []string{run.EnvFault + "=gate=" + filepath.Join(dir, "gate")}
}

// Open is a Gate for as many steps as a run may have.
const Open = 1 << 30

// Steps counts the lines of a run's metrics.
func Steps(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	return bytes.Count(text, []byte("\n"))
}

// DrawnRun writes a run whose small model draws answers of digits, which a pattern judges.
func DrawnRun(t *testing.T, steps int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var prompts, vocab strings.Builder
	for i := range 40 {
		fmt.Fprintf(&prompts, "{\"prompt\": \"%d+%d=\", \"answer\": \"%d\"}\n", i%7, i%11, i%7+i%11)
	}
	for i, c := range "0123456789+=" {
		fmt.Fprintf(&vocab, ", %q: %d", string(c), i+1)
	}
	for name, text := range map[string]string{"prompts.jsonl": prompts.String(),
		"tokenizer.json": `{"version": "1.0", "added_tokens": [{"id": 0, "content": "<|end|>", "special": true}], ` +
			`"decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": {"<|end|>": 0` + vocab.String() +
			`}, "merges": []}}`,
		"env.sh":                talkScript,
		"tokenizer_config.json": `{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}`,
		"model.yaml": "model_type: llama\nhidden_size: 64\nnum_hidden_layers: 2\nnum_attention_heads: 4\n" +
			"num_key_value_heads: 2\nhead_dim: 16\nintermediate_size: 128\nmax_position_embeddings: 64\n" +
			"initializer_range: 0.1\neos_token_id: 0\n",
		"run.yaml": fmt.Sprintf(`
model: {file: model.yaml}
data: {paths: [prompts.jsonl], tokenizer: ., seq_len: 40, split: [1, 0, 0]}
objective: {kind: grpo}
rollout: {group: 4, max_tokens: 32, staleness: 2, span: 12, silence: 2}
reward: {kind: regex, pattern: "1.*7"}
train: {steps: %d, global_batch: 32, micro_batch: 8, seed: 5}
optimizer: {lr: 1.0e-3}
plan: {threads: 1}
checkpoint: {dir: ckpt, interval: 1, keep: 500}
log: {dir: run}
`, steps)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

// DrawnJudge trains a model of rewards of the same vocabulary, and gives its checkpoints.
func DrawnJudge(t *testing.T) string {
	t.Helper()
	dir := DrawnRun(t, 1)
	var pairs strings.Builder
	for i := range 40 {
		fmt.Fprintf(&pairs, "{\"prompt\": \"%d+%d=\", \"chosen\": \"%d\", \"rejected\": \"%d\"}\n", i%7,
			i%11, i%7+i%11, i)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pairs.jsonl"), []byte(pairs.String()), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "judge.yaml"), []byte(`
model: {file: model.yaml}
data: {paths: [pairs.jsonl], tokenizer: ., seq_len: 40, split: [1, 0, 0]}
objective: {kind: reward}
train: {steps: 4, global_batch: 16, micro_batch: 8}
optimizer: {lr: 1.0e-3}
checkpoint: {dir: judge}
`), 0o644))
	code, out := RunIn(t, dir, nil, "train", "judge.yaml", "-q")
	require.Zero(t, code, out)
	return filepath.Join(dir, "judge")
}
