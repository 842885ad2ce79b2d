package run

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// gapModels are small models whose layers take their sums in every way that there is.
var gapModels = map[string]string{
	"dense": pairsModel,
	"experts": `model_type: qwen2_moe
hidden_size: 32
num_hidden_layers: 2
num_attention_heads: 4
num_key_value_heads: 2
intermediate_size: 48
moe_intermediate_size: 24
shared_expert_intermediate_size: 24
num_experts: 4
num_experts_per_tok: 2
initializer_range: 0.1
max_position_embeddings: 64
`,
	"hybrid": `model_type: qwen3_next
hidden_size: 32
num_hidden_layers: 2
num_attention_heads: 4
num_key_value_heads: 2
head_dim: 8
intermediate_size: 48
moe_intermediate_size: 24
shared_expert_intermediate_size: 24
num_experts: 4
num_experts_per_tok: 2
linear_num_key_heads: 2
linear_num_value_heads: 4
linear_key_head_dim: 8
linear_value_head_dim: 8
linear_conv_kernel_dim: 2
layer_types: [linear_attention, full_attention]
initializer_range: 0.1
max_position_embeddings: 64
`,
}

// gapsOf are what the lines of a run's metrics say of sampler and trainer.
func gapsOf(t *testing.T, dir, model string, more ...string) (out []DrawnGap) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	file := filepath.Join(t.TempDir(), "model.yaml")
	require.NoError(t, os.WriteFile(file, []byte(model+"eos_token_id: 1\n"), 0o600))
	policyRun(t, dir, append([]string{"log.dir=" + log, "model.file=" + file, "train.steps=3",
		"optimizer.lr=2.0e-3"}, more...)...)
	f, err := os.Open(filepath.Join(log, "metrics.jsonl"))
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // it is only read
	for s := bufio.NewScanner(f); s.Scan(); {
		var m Metrics
		require.NoError(t, json.Unmarshal(s.Bytes(), &m))
		require.NotNil(t, m.Drawn)
		out = append(out, *m.Drawn)
	}
	return out
}

// TestDrawnGap: the log-probabilities with which the sampler drew are those of the trainer's forward pass, to
// the bit, whatever the plan; tokens that older weights drew are left out, and counted.
func TestDrawnGap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, model := range gapModels {
		for _, plan := range [][]string{{}, {"train.precision=bf16"}, {"plan.pp=2"},
			{"plan.dp=2", "plan.zero=2"}, {"objective.kind=ppo"},
			{"lora.rank=4", `lora.targets=["*"]`, "lora.merge=true"}} {
			for step, d := range gapsOf(t, dir, model, plan...) {
				require.Equal(t, DrawnGap{Tokens: d.Tokens}, d, "%s %v, step %d", name, plan, step+1)
				require.Greater(t, d.Tokens, 32)
			}
		}
	}
	for _, args := range aheadOf {
		fresh, older, split := 0, 0, false
		for step, d := range gapsOf(t, dir, pairsModel, append(args, "train.steps=6")...) {
			require.Zero(t, d.Gap, "%v, step %d", args, step+1)
			fresh, older, split = fresh+d.Tokens, older+d.Older, split || d.Tokens > 0 && d.Older > 0
		}
		require.Positive(t, older, "%v", args)
		require.Positive(t, fresh, "%v: the first step's tokens at least are its own weights'", args)
		require.Equal(t, args[0] == "rollout.staleness=2", split,
			"%v: one version draws on where another has begun", args)
	}
}
