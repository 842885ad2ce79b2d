package loong_test

import (
	"strings"
	"testing"

	. "github.com/lfactor/lfactor/configs"

	"github.com/stretchr/testify/require"
)

// TestLoongKimi composes Kimi K2.5 in LoongForge's layout to the published model but for what its files do
// not say; what MoonViT is not built for is refused by its key.
func TestLoongKimi(t *testing.T) {
	compose := func(more ...string) (*Config, error) {
		return Compose(Request{File: loongTree + "kimi_k2.5/kimi_k2_5.yaml", Args: append(strings.Fields(
			"--moe-router-topk 8 --moe-router-topk-scaling-factor 2.827 --norm-epsilon 1e-5 "+
				"--rotary-base 50000 --rotary-scaling-factor 64 --beta-fast 32 --mscale 1 --mscale-all-dim 1 "+
				"--original-max-position-embeddings 4096"), more...)})
	}
	c, err := compose()
	require.NoError(t, err)
	want := unbalanced(t, "kimi/k2.5")
	want.MaxPositions, want.BOS, want.EOS = 0, -1, nil
	want.Parameters, want.Active, want.Names, want.Source = 0, 0, nil, ""
	want.Vision.Projector, want.Vision.ImageToken = "merger", 163603
	require.Equal(t, want, c.Model)
	pair, err := Compose(Request{File: loongTree + "custom/moon_vit_llama3_8b.yaml"})
	require.NoError(t, err)
	m := pair.Model
	require.Equal(t, []any{"vlm", "llama", "moonvit_3d", "4", "4096"}, []any{m.ModelType, m.Text,
		m.Vision.Kind,
		value(m, "vision.num_position_frames"), value(m, "vision.num_position_embeddings")})
	for override, why := range map[string]string{
		"model.image_encoder.merge_kernel_size=[2,4]": `"2 4", only 2 2 is built`,
		"model.image_encoder.merge_type=sd2":          `"sd2", only sd2_tpool is built`,
		"model.image_encoder.init_pos_emb_height=32":  `"32", only 64 is built`,
	} {
		_, err := compose(override)
		require.ErrorContains(t, err, why)
	}
}
