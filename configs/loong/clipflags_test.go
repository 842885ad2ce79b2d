package loong_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/lfactor/lfactor/configs"

	"github.com/stretchr/testify/require"
)

// TestClipFlags: the flags of LoongForge's models of diffusion are a size, a part of the noise levels and
// their shift and weight; for other models, and with values that are none, they are refused.
func TestClipFlags(t *testing.T) {
	base := []string{"--model-name", "wan2-2-i2v", "--tokenizer-type", "NullTokenizer", "--vocab-size", "0",
		"--data-path",
		"none", "--seq-length", "20280", "--num-latent-frames", "49", "--max-latent-height", "480",
		"--max-latent-width",
		"832", "--max-text-length", "256"}
	load := func(more ...string) (*Config, error) {
		return Load(Request{Args: append(slices.Clone(base),
			more...)})
	}
	c, err := load("--max-timestep-boundary", "0.358", "--min-timestep-boundary", "0.0")
	require.NoError(t, err)
	d := c.Run.Diffusion
	require.Equal(t, []string{"49x480x832"}, d.Sizes)
	require.Equal(t, 5.0, d.Raise)
	require.Equal(t, "bell", d.Weight)
	require.InDelta(t, 0.899664, d.From, 1e-6) // 5·0.642/(1+4·0.642)
	require.Zero(t, d.To)
	require.Equal(t, "256", c.Flat()["model.overrides.text_rows"])
	c, err = load("--max-timestep-boundary", "1", "--min-timestep-boundary", "0.358")
	require.NoError(t, err)
	require.Zero(t, c.Run.Diffusion.From)
	require.InDelta(t, 0.899664, c.Run.Diffusion.To, 1e-6)
	c, err = load("diffusion.weight=none", "diffusion.sizes=[8x8]")
	require.NoError(t, err)
	require.Equal(t, "none", c.Run.Diffusion.Weight)
	require.Equal(t, []string{"8x8"}, c.Run.Diffusion.Sizes)

	for want, more := range map[string][]string{
		"want a share of the noise levels": {"--max-timestep-boundary", "1.5"},
		"leaves nothing below": {"--max-timestep-boundary", "0.2", "--min-timestep-boundary",
			"0.2"},
		`"banana", want a number`:  {"--num-latent-frames", "banana"},
		`"4.5", want a number`:     {"--num-latent-frames", "4.5"},
		"is no model of diffusion": {"--model-name", "qwen3-0.6b"},
	} {
		_, err := load(more...)
		require.ErrorContains(t, err, want)
	}
	_, err = Load(Request{Args: []string{"--model-name", "wan2-1-i2v", "--data-path", "none",
		"--num-latent-frames", "9"}})
	require.ErrorContains(t, err, "give all three")
}

// TestShardingStrategy: what Megatron-FSDP shares out is what its strategy says, wherever the distributed
// optimizer stands beside it.
func TestShardingStrategy(t *testing.T) {
	for _, args := range [][]string{
		{"--data-parallel-sharding-strategy", "optim_grads_params", "--use-distributed-optimizer"},
		{"--use-distributed-optimizer", "--data-parallel-sharding-strategy", "optim_grads_params"}} {
		c, err := Load(Request{Args: append([]string{"--model-name", "qwen3-0.6b", "--data-path", "none",
			"--tokenizer-model",
			"none"}, args...)})
		require.NoError(t, err)
		require.Equal(t, 3, c.Run.Plan.Zero)
	}
	c, err := Load(Request{Args: []string{"--model-name", "qwen3-0.6b", "--data-path", "none",
		"--tokenizer-model", "none",
		"--data-parallel-sharding-strategy", "no_shard", "--use-distributed-optimizer"}})
	require.NoError(t, err)
	require.Equal(t, 1, c.Run.Plan.Zero)
}

// TestLoongWan: a file of LoongForge's class of Wan is the published model, with the features of images where
// it asks for them.
func TestLoongWan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "wan.yaml")
	for image, name := range map[string]string{"True": "wan/2.1-i2v-14b", "False": "wan/2.2-i2v-a14b"} {
		text := "_target_: loongforge.models.diffusion.WanConfig\nnum_layers: 40\nhidden_size: 5120\nffn_hidden_size: 13824\n" +
			"text_dim: 4096\nnum_attention_heads: 40\nlatent_in_channels: 4\nlatent_out_channels: 8\n" +
			"latent_patch_size: [1, 2, 2]\nhas_image_input: " + image +
			"\nfreq_dim: 256\nin_dim: 36\nout_dim: 16\n" +
			"norm_epsilon: 1e-6\nhas_image_pos_emb: False\nmodel_type: wan\nattention_dropout: 0.0\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		c, err := Compose(Request{File: file})
		require.NoError(t, err)
		want, err := Published(name)
		require.NoError(t, err)
		require.Equal(t, want.Identity(), c.Model.Identity())
		require.NoError(t, os.WriteFile(file, []byte(text+"has_image_pos_emb: True\n"), 0o600))
		_, err = Compose(Request{File: file})
		require.Error(t, err)
	}
}
