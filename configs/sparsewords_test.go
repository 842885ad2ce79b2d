package configs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestIndexerWords: Megatron's words about sparse attention become ours or are refused.
func TestIndexerWords(t *testing.T) {
	load := func(model, flags string) (*Config, error) {
		return Load(Request{Args: append([]string{"--model-name", model, "--data-path", "x",
			"--train-iters", "20"}, strings.Fields(flags)...)})
	}
	cfg, err := load("glm5", "--dsa-indexer-loss-coeff 0.25 --dsa-indexer-topk-freq 3 "+
		"--dsa-indexer-skip-topk-offset 2 --experimental-attention-variant dsa --use-dsa-fused")
	require.NoError(t, err)
	require.Equal(t, 0.25, cfg.Run.Train.Indexer.Coef)
	require.Equal(t, "sparse", cfg.Run.Train.Indexer.Stage)
	require.Contains(t, value(cfg.Model, "indexer_types"), "[full, full, shared, shared, full, shared, ")
	for _, c := range []struct{ model, flags, why string }{
		{"qwen3-30b-a3b", "--experimental-attention-variant dsa", "qwen3_moe has no sparse attention"},
		{"deepseek-v3.2", "--experimental-attention-variant csa", `"csa", but deepseek_v32 has dsa`},
		{"deepseek-v3.2", "--dsa-indexer-topk-freq 4",
			"all layers of the family have an indexer of their own"},
		{"deepseek-v3.2", "--dsa-indexer-use-sparse-loss false", "set train.indexer.stage=warmup"},
		{"deepseek-v3.2", "--dsa-indexer-rope-interleaved",
			"true, but the indexer of deepseek_v32 has it false"},
		{"glm5", "--dsa-indexer-k-norm-epsilon 1e-5", "the norm of the indexer's keys has 1e-6"},
	} {
		_, err := load(c.model, c.flags)
		require.ErrorContains(t, err, c.why, c.flags)
	}
}

// TestIndexerKeys: what keys of an indexer must not say.
func TestIndexerKeys(t *testing.T) {
	for set, why := range map[string]string{
		"model.overrides.index_topk=0":                 "index_topk: is not given",
		"model.overrides.index_head_dim=32":            "32 is less than qk_rope_head_dim = 64",
		"model.overrides.q_lora_rank=0":                "the indexer reads the latent of queries",
		"model.overrides.indexer_types=[full, shared]": "2 entries for num_hidden_layers = 78",
		"train.indexer.loss_coef=0":                    "train.indexer.stage: warmup trains nothing",
	} {
		_, err := Load(Request{Args: []string{"model.name=glm/5", "data.paths=x",
			"train.indexer.stage=warmup", set}})
		require.ErrorContains(t, err, why, set)
	}
	for kinds, why := range map[string]string{"[full, half, full]": `layer 1 is "half"`,
		"[shared, full, full]": "begin with full"} {
		m := Model{ModelType: "glm_moe_dsa", Layers: 3, HeadDim: 4}
		for _, key := range []string{"index_topk", "index_n_heads", "q_lora_rank", "kv_lora_rank",
			"qk_nope_head_dim", "v_head_dim"} {
			set(&m, key, "1")
		}
		set(&m, "index_head_dim", "8")
		set(&m, "qk_rope_head_dim", "4")
		set(&m, "indexer_types", kinds)
		var got said
		m.checkParts(&got)
		require.Len(t, got, 1)
		require.Contains(t, got[0], why)
	}
	require.Equal(t, []string{"full", "full", "full", "shared", "shared", "shared", "full"},
		IndexerKinds(7, 4, 3))
}

// said keeps faults.
type said []string

func (s *said) fault(_, why, try string) { *s = append(*s, why+"; "+try) }
