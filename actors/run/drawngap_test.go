package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
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

// biasedExperts are experts whose biases ranks add to sums that they have parts of. They begin with 0, so that the
// first step shows nothing.
const biasedExperts = `model_type: gpt_oss
hidden_size: 32
num_hidden_layers: 2
num_attention_heads: 4
num_key_value_heads: 4
head_dim: 8
intermediate_size: 24
num_experts: 4
num_experts_per_tok: 2
initializer_range: 0.3
max_position_embeddings: 64
`

// gapsOf are what the lines of a run's metrics say of sampler and trainer.
func gapsOf(t *testing.T, dir, model string, more ...string) []rollout.DrawnGap {
	t.Helper()
	out, _ := gapsSaid(t, dir, model, more...)
	return out
}

// gapsSaid is gapsOf, with what the run says on the screen.
func gapsSaid(t *testing.T, dir, model string, more ...string) (out []rollout.DrawnGap, said string) {
	t.Helper()
	var screen bytes.Buffer
	log := filepath.Join(t.TempDir(), "log")
	file := filepath.Join(t.TempDir(), "model.yaml")
	require.NoError(t, os.WriteFile(file, []byte(model+"eos_token_id: 1\n"), 0o600))
	policySaid(t, dir, 0, &screen, append([]string{"log.dir=" + log, "model.file=" + file, "train.steps=3",
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
	return out, screen.String()
}

// TestDrawnGap: the log-probabilities with which the sampler drew are those of the trainer's forward pass, to
// the bit, whatever the plan; tokens that older weights drew are left out, and counted.
func TestDrawnGap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, model := range gapModels {
		for _, plan := range [][]string{{}, {"train.precision=bf16"}, {"plan.pp=2"},
			{"plan.dp=2", "plan.zero=2"}, {"objective.kind=ppo"},
			{"lora.rank=4", `lora.targets=["*"]`, "lora.merge=true"},
			{"plan.tp=2", "plan.sequence_parallel=true", "plan.pp=2"},
			{"plan.tp=4", "plan.dp=2", "plan.zero=3"},
			{"plan.tp=2", "lora.rank=6", "lora.alpha=7", `lora.targets=["*"]`, "lora.merge=true"},
			{"plan.tp=2", "objective.kind=ppo", "train.precision=bf16"},
			{"plan.tp=2", "plan.dp=2", "plan.ep=2", "plan.etp=2"}, {"plan.dp=2", "plan.ep=2"},
			{"lora.rank=4", "lora.base=int8"}, {"lora.rank=4", "lora.base=nf4", "train.precision=bf16"},
			{"lora.rank=4", "lora.base=e2m1", "plan.dp=2", "plan.zero=2"},
			{"lora.rank=4", "lora.base=int4", "plan.tp=2"},
			{"lora.rank=4", "lora.base=int4", "plan.tp=2", "plan.etp=2"}} {
			if name == "dense" && slices.ContainsFunc(plan, func(s string) bool {
				return s == "plan.ep=2" || s == "plan.etp=2"
			}) {
				continue
			}
			for step, d := range gapsOf(t, dir, model, plan...) {
				require.Equal(t, rollout.DrawnGap{Tokens: d.Tokens}, d, "%s %v, step %d", name, plan, step+1)
				require.Greater(t, d.Tokens, 32)
			}
		}
	}
	for _, plan := range [][]string{{"plan.tp=2", "plan.etp=2"}, {"plan.tp=4", "plan.dp=2", "plan.ep=2", "plan.etp=2"},
		{"plan.tp=2", "plan.etp=2", "train.precision=bf16"},
		{"plan.tp=4", "plan.dp=2", "plan.ep=2", "plan.etp=4", "train.precision=bf16"}} {
		for step, d := range gapsOf(t, dir, biasedExperts, append(plan, "train.steps=6", "optimizer.lr=2.0e-2")...) {
			require.Equal(t, rollout.DrawnGap{Tokens: d.Tokens}, d, "experts with biases, %v, step %d", plan, step+1)
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

// TestDrawnGapSeen: what training computes otherwise than the sampler is seen, as much in a pipeline and in
// replicas as by itself, and the run says why.
func TestDrawnGapSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dropped := []string{"lora.rank=4", "lora.dropout=0.3", "optimizer.lr=2.0e-2"}
	one, said := gapsSaid(t, dir, pairsModel, dropped...)
	require.Greater(t, one[2].Gap, 1e-3)
	require.Zero(t, one[0].Gap, "adapters begin with 0, and what is dropped of 0 is seen by nobody")
	require.Positive(t, one[1].Gap)
	require.Equal(t, 1, strings.Count(said, "of the sampler and the trainer differ"), "it is said once:\n%s", said)
	require.Regexp(t, `(?m)^! step 2: .* differ by up to \S+ nats, .*: what training draws at random`, said)
	_, said = gapsSaid(t, dir, pairsModel)
	require.NotContains(t, said, "of the sampler and the trainer differ")
	for _, plan := range []string{"plan.pp=2", "plan.dp=2"} {
		for step, d := range gapsOf(t, dir, pairsModel, append(dropped, plan)...) {
			require.InDelta(t, one[step].Gap, d.Gap, 1e-5, "%s, step %d", plan, step+1)
			require.Equal(t, one[step].Tokens, d.Tokens)
		}
	}
	require.Greater(t, gapsOf(t, dir, gapModels["experts"], "train.router.capacity=0.5")[0].Gap, 1e-3)
	of := func(set func(*configs.Config)) string {
		r := &Run{cfg: &configs.Config{}, job: &layout.Design{Model: &family.Model{}}}
		r.cfg.Run.Train.LowPrecision, r.cfg.Run.Train.QAT = "none", "none"
		set(r.cfg)
		return r.whyGap()
	}
	require.Contains(t, of(func(*configs.Config) {}), "a fault of lfactor: please report")
	require.Contains(t, of(func(c *configs.Config) { c.Run.LoRA.Dropout = 0.1 }), "lora.dropout")
	require.Contains(t, of(func(c *configs.Config) { c.Run.Train.LowPrecision = "block" }), "train.low_precision")
	require.Contains(t, of(func(c *configs.Config) { c.Run.Train.Router.Capacity = 1 }), "train.router.capacity")
}

// smallKeys are keys of families' configurations that make a model small; a family gets those that it has.
var smallKeys = map[string]any{"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
	"moe_intermediate_sizes": []int{12, 8}, "shared_expert_intermediate_size": 8, "n_shared_experts": 1,
	"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "kv_lora_rank": 8, "q_lora_rank": 8,
	"qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4, "index_topk": 12, "index_n_heads": 2,
	"index_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4,
	"linear_value_head_dim": 4, "linear_conv_kernel_dim": 2, "sliding_window": 3, "query_pre_attn_scalar": 4,
	"partial_rotary_factor": 0.5, "residual_multiplier": 0.3}

// smallOf is the configuration of a small model of a family.
func smallOf(name string) map[string]any {
	f := hf.Families()[name]
	keys := map[string]any{"model_type": name, "hidden_size": 16, "num_hidden_layers": 3,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
		"max_position_embeddings": 64, "initializer_range": 0.3}
	if f.PlainHeads {
		delete(keys, "num_key_value_heads")
	}
	if slices.Contains(f.Omit, "head_dim") {
		delete(keys, "head_dim")
	}
	for key, value := range smallKeys {
		if slices.Contains(f.Has, key) {
			keys[key] = value
		}
	}
	return keys
}

// TestDrawnGapFamilies: so it is for every family of models of text, with ranks that cut layers too.
func TestDrawnGapFamilies(t *testing.T) {
	t.Parallel()
	dir, tried := t.TempDir(), 0
	for _, name := range slices.Sorted(maps.Keys(hf.Families())) {
		keys := smallOf(name)
		if !drawsText(t, keys) {
			continue
		}
		tried++
		model := ""
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			v, err := json.Marshal(keys[key])
			require.NoError(t, err)
			model += fmt.Sprintf("%s: %s\n", key, v)
		}
		for _, plan := range [][]string{nil, {"plan.tp=2"}, {"plan.tp=2", "train.precision=bf16"}} {
			for step, d := range gapsOf(t, dir, model, append(plan, "train.steps=2")...) {
				require.Equal(t, rollout.DrawnGap{Tokens: d.Tokens}, d, "%s %v, step %d", name, plan, step+1)
				require.Greater(t, d.Tokens, 32)
			}
		}
	}
	require.GreaterOrEqual(t, tried, 38)
}

// drawsText reports whether a family has a small model of text.
func drawsText(t *testing.T, keys map[string]any) bool {
	t.Helper()
	dir := t.TempDir()
	keys = maps.Clone(keys)
	keys["vocab_size"] = 32
	text, err := json.Marshal(keys)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	c, err := configs.ReadModel(dir)
	if err != nil { // of actions, or images: it wants other keys
		return false
	}
	m, err := family.Build(c, 12)
	return err == nil && m.Denoiser == nil
}
