package loong_test

import (
	"strings"
	"testing"

	. "github.com/lfactor/lfactor/configs"

	"github.com/stretchr/testify/require"
)

// TestLoongExperts composes mixtures of experts in LoongForge's layout, with what its launch scripts say
// beside the file, to the published models.
func TestLoongExperts(t *testing.T) {
	yarn := "--rotary-scaling-factor 40 --mscale %s --mscale-all-dim %s " +
		"--original-max-position-embeddings 4096"
	for _, c := range []struct{ file, like, flags string }{
		{"deepseek2/deepseek_v2_lite", "deepseek/v2-lite", "--moe-router-topk 6 --moe-router-pre-softmax " +
			strings.ReplaceAll(yarn, "%s", "0.707")},
		{"deepseek3/deepseek_v3", "deepseek/v3",
			"--multi-latent-attention --moe-router-topk 8 --moe-router-num-groups 8 " +
				"--moe-router-group-topk 4 --moe-router-topk-scaling-factor 2.5 " +
				"--moe-router-score-function sigmoid --moe-router-enable-expert-bias " +
				strings.ReplaceAll(yarn, "%s", "1")},
		{"deepseek3/deepseek_v3_2_sparse", "deepseek/v3.2",
			"--multi-latent-attention --moe-router-topk 8 --moe-router-num-groups 8 " +
				"--moe-router-group-topk 4 --moe-router-topk-scaling-factor 2.5 --use-dsa-fused " +
				strings.ReplaceAll(yarn, "%s", "1")},
		{"glm5/glm5", "glm/5", "--multi-latent-attention --moe-router-topk 8 --rotary-base 1000000 " +
			"--moe-router-topk-scaling-factor 2.5"},
		{"glm5.2/glm5_2", "glm/5.2", "--multi-latent-attention --moe-router-topk 8 --rotary-base 8000000 " +
			"--moe-router-topk-scaling-factor 2.5"},
		{"kimi_k2/kimi_k2", "kimi/k2",
			"--moe-router-topk 8 --moe-router-topk-scaling-factor 2.827 --rotary-base 50000 " +
				strings.ReplaceAll(strings.ReplaceAll(yarn, "%s", "1"), " 40 ", " 32 ") + " --beta-fast 1"},
		{"minimax/minimax_m2_1", "minimax/m2",
			"--moe-router-topk 8 --rotary-base 5000000 --rotary-percent 0.5"},
		{"qwen3/qwen3_30b_a3b", "qwen/3-30b-a3b", "--moe-router-topk 8 --rotary-base 1000000"},
	} {
		t.Run(c.file, func(t *testing.T) {
			cfg, err := Compose(Request{File: loongTree + c.file + ".yaml",
				Args: append(strings.Fields(c.flags), "--norm-epsilon", "1e-6")})
			require.NoError(t, err)
			m := cfg.Model
			want := unbalanced(t, c.like)
			// What neither file nor flags say.
			want.MaxPositions, want.BOS, want.EOS, want.Parameters, want.Active, want.Names,
				want.Source = 0, -1, m.EOS, 0, 0, nil, ""
			want.MTPLayers = map[bool]int{true: 1}[strings.HasPrefix(c.like, "deepseek/v3") ||
				strings.HasPrefix(c.like, "glm/5")]
			if strings.HasPrefix(c.like, "glm/5") {
				want.NormEps = 1e-6 // of the flags
			}
			require.Equal(t, want, m)
		})
	}
}

// TestExpertFlags: flags of a router's training become ours, whatever depends on the model or on each other;
// what the model cannot do is refused.
func TestExpertFlags(t *testing.T) {
	load := func(model, flags string) (*Config, error) {
		return Load(Request{Args: append([]string{"--model-name", model, "--data-path", "x",
			"--train-iters", "20"}, strings.Fields(flags)...)})
	}
	for _, c := range []struct{ model, flags, loss, coef, rate string }{
		{"deepseek-v3",
			"--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4 " +
				"--moe-router-enable-expert-bias", "sequence", "0.0001", "0.001"},
		{"deepseek-v3", "--moe-router-enable-expert-bias --moe-router-bias-update-rate 0.002", "model", "0",
			"0.002"},
		{"qwen3-30b-a3b", "--moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 1e-3",
			"batch",
			"0.001", "0"},
		{"qwen3-30b-a3b", "--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 0", "none", "0",
			"0"},
		{"qwen3-30b-a3b", "--moe-aux-loss-coeff 0.01", "layer", "0.01", "0"},
		{"qwen3-30b-a3b", "--moe-router-load-balancing-type aux_loss", "none", "0", "0"},
	} {
		cfg, err := load(c.model, c.flags)
		require.NoError(t, err, c.flags)
		flat := cfg.Flat()
		require.Equal(t, []string{c.loss, c.coef, c.rate}, []string{flat["train.router.loss"],
			flat["train.router.loss_coef"], flat["train.router.bias_rate"]}, c.flags)
	}
	cfg, err := load("qwen3-30b-a3b",
		"--expert-model-parallel-size 8 --tensor-model-parallel-size 4 --moe-router-pre-softmax")
	require.NoError(t, err)
	require.Equal(t, []any{8, 1, 2, "false"}, []any{cfg.Run.Plan.EP, cfg.Run.Plan.ETP, cfg.Run.Plan.DP,
		value(cfg.Model, "norm_topk_prob")})
	for flags, why := range map[string]string{
		"--moe-router-enable-expert-bias": "qwen3_moe has no numbers that experts are " +
			"chosen by",
		"--moe-router-score-function sigmoid":       `--moe-router-score-function: "sigmoid", but the router of qwen3_moe takes a softmax`,
		"--moe-router-load-balancing-type sinkhorn": `"sinkhorn" is no loss that is built; one of aux_loss`,
		"--multi-latent-attention": "--multi-latent-attention: true, but qwen3_moe " +
			"has none",
		"--moe-shared-expert-intermediate-size 512":     "qwen3_moe has no expert that all tokens go to",
		"--moe-router-topk 200":                         "num_experts_per_tok",
		"--mscale 1":                                    "set model.overrides.rope_scaling",
		"--moe-aux-loss-coeff lots":                     `"lots", want a number`,
		"--moe-router-num-groups 3":                     "n_group",
		"--moe-router-dtype bf16":                       "logits of routers are float32",
		"--moe-layer-freq [0]*3+[1]*45":                 "want a number for each of 48 layers",
		"--moe-token-drop-policy probs --moe-topk none": "unknown flag",
	} {
		_, err := load("qwen3-30b-a3b", flags)
		require.ErrorContains(t, err, why, flags)
	}
	_, err = load("qwen3-8b", "--moe-router-pre-softmax")
	require.ErrorContains(t, err, "qwen3 has no experts")
}
