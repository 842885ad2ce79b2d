package loong_test

import (
	"testing"

	. "github.com/lfactor/lfactor/configs"

	"github.com/stretchr/testify/require"
)

// TestLoongErnie composes ERNIE-4.5-VL in LoongForge's layout to the published model but for what its files
// do not say; what is not built is refused by its key.
func TestLoongErnie(t *testing.T) {
	compose := func(more ...string) (*Config, error) {
		return Compose(Request{File: loongTree + "ernie4_5_vl/ernie4_5_vl_28b_a3b.yaml",
			Args: append([]string{"--norm-epsilon", "1e-5"}, more...)})
	}
	c, err := compose()
	require.NoError(t, err)
	want := unbalanced(t, "ernie/4.5-vl-28b-a3b")
	want.BOS, want.EOS = -1, nil
	want.Parameters, want.Active, want.Names, want.Source = 0, 0, nil, ""
	require.Equal(t, want, c.Model)
	// words of its launch script
	c, err = compose("--moe-router-load-balancing-type", "none", "--moe-router-topk", "6",
		"--moe-aux-loss-coeff",
		"1e-2", "--moe-router-score-function", "softmax", "--moe-router-enable-expert-bias")
	require.NoError(t, err)
	require.Equal(t, []any{"none", 0.001}, []any{c.Run.Train.Router.Loss, c.Run.Train.Router.BiasRate})
	for override, why := range map[string]string{
		"model.foundation.dense_layer_index=[0,1]":      `"0 1", only 0 is built`,
		"+model.foundation.moe_layer_start_index=[1,2]": `"1 2", only 1 1 is built`,
		"model.foundation.moe_intermediate_size=[1536]": "want the width of an expert for texts and of one for images",
		"model.image_encoder.temporal_merge_size=4":     `"4", only 2 is built`,
		"model.image_encoder.embed_dim=640":             "hidden_size / num_attention_heads = 640 / 16 = 40",
		"model.image_projector.in_dim=640":              "the encoder gives 1280",
		"model.image_projector.out_dim=2048":            "the projector is 2048 wide, the foundation 2560",
	} {
		_, err := compose(override)
		require.ErrorContains(t, err, why)
	}
}
