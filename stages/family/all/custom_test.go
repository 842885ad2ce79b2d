package all

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// pair is a model file of a tower before a decoder.
func pair(kind, text, projector string, merge int) string {
	qwen := fmt.Sprint(text == "qwen")
	bias := fmt.Sprint(text == "qwen" || text == "qwen2")
	return "model_type: vlm\ntext_model_type: " + text +
		"\nhidden_size: 32\nnum_hidden_layers: 3\nnum_attention_heads: 4\nnum_key_value_heads: " +
		map[string]string{"true": "4", "false": "2"}[qwen] +
		"\nintermediate_size: 48\nvocab_size: 120\nmax_position_embeddings: 64\nattention_bias: " + bias +
		"\nqk_norm: " + fmt.Sprint(text == "qwen3") +
		"\nvision: {kind: " + kind + ", projector: " + projector +
		", depth: 3, hidden_size: 16, intermediate_size: 24, num_heads: 2, patch_size: 4, merge: " +
		fmt.Sprint(merge) +
		", image_size: 16, image_token_id: 116" + ownKeys[kind] + "}\n"
}

// ownKeys are the keys without defaults that single kinds of towers read.
var ownKeys = map[string]string{"qwen2_5_vl": ", window_size: 16",
	"qwen3_vl":   ", num_position_embeddings: 25, deepstack_visual_indexes: [0, 1]",
	"moonvit_3d": ", num_position_embeddings: 25, num_position_frames: 4"}

// TestCustomPairs builds every tower with every decoder and projector: the tower has the parameters that it
// has elsewhere, the projector's widths meet both sides, the names in a checkpoint are the parameters' own
// (rows of one tensor do not overlap), and what an export says of the model gives it back.
func TestCustomPairs(t *testing.T) {
	require.NotEmpty(t, family.Encoders)
	for kind := range maps.Keys(family.Encoders) {
		for _, text := range []string{"llama", "qwen", "qwen2", "qwen3", "internlm2"} {
			for projector := range maps.Keys(family.Projectors) {
				t.Run(kind+" "+text+" "+projector, func(t *testing.T) {
					file := filepath.Join(t.TempDir(), "model.yaml")
					require.NoError(t, os.WriteFile(file, []byte(pair(kind, text, projector, 2)), 0o644))
					c, err := configs.ReadModel(file)
					require.NoError(t, err)
					m, err := family.Build(c, 16)
					require.NoError(t, err)
					checkPair(t, m)
					dir := t.TempDir()
					require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"),
						c.HFConfig("float32"), 0o644))
					again, err := configs.ReadModel(dir)
					require.NoError(t, err)
					if text == "qwen" {
						again.KVHeads = c.KVHeads
					}
					require.Equal(t, c, again)
				})
			}
		}
	}
}

func checkPair(t *testing.T, m *family.Model) {
	rows, own := map[string]int{}, map[string]int{}
	for _, p := range m.Params(nil) {
		s := m.Source(p.Name)
		n := p.Shape[0]
		if s.Rows == nil {
			require.NotContains(t, own, s.Name, "two parameters are %s", s.Name)
		}
		own[s.Name]++
		rows[s.Name] += n
		if m.Component(p.Name) == family.Projector && p.Name == "projector.fc2.weight" {
			require.Equal(t, m.Spec.Hidden, n)
		}
	}
	for _, info := range m.HFShapes() {
		if own[info.Name] > 1 {
			require.Equal(t, info.Shape[0], rows[info.Name], info.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		require.Regexp(t, `^(vision_tower|multi_modal_projector|language_model)\.`, name)
	}
	require.Equal(t, 1, own["vision_tower."+encoderName(t, m)])
}

// encoderName is the projection of patches in the tower's own checkpoint.
func encoderName(t *testing.T, m *family.Model) string {
	name := map[string]string{"internvl": "embeddings.patch_embeddings.projection.weight",
		"dinov2": "embeddings.patch_embeddings.projection.weight",
		"siglip": "embeddings.patch_embedding.weight",
		"clip":   "embeddings.patch_embedding.weight"}[m.Config.Vision.Kind]
	if name == "" {
		name = "patch_embed.proj.weight"
	}
	return name
}

// TestShuffledTower: patches of a tile that lie row after row join by squares.
func TestShuffledTower(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.yaml")
	require.NoError(t, os.WriteFile(file, []byte(pair("siglip", "llama", "mlp", 2)), 0o644))
	c, err := configs.ReadModel(file)
	require.NoError(t, err)
	m, err := family.Build(c, 16)
	require.NoError(t, err)
	p := family.Images{Grids: []family.Grid{{T: 1, H: 4, W: 4, Spans: [][2]int32{{0, 4}}}},
		Values: make([]float32, 16*m.Vision.Tower.PatchDim)}
	require.NoError(t, m.Vision.Check(&p))
	data := m.Vision.Data(&p, m.Vision.Shape(8, m.Vision.Class(16, 1)))
	require.Equal(t, []int32{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}, data["vis.patches"].I32())
	require.Equal(t, tensor.I32, data["vis.tap.0"].DType)
}

// TestTowerClaims holds every named tower, and a tower of every kind, to the parameter count that its file
// claims, which bench/golden/tower_counts.py took from transformers.
func TestTowerClaims(t *testing.T) {
	kinds := map[string]bool{}
	for _, name := range configs.Towers() {
		file := filepath.Join(t.TempDir(), "pair.yaml")
		require.NoError(t, os.WriteFile(file,
			[]byte("model_type: vlm\ntext_preset: qwen/3-0.6b\nvision: {preset: "+name+", vision_feature_layer: 0}\n"), 0o644))
		c, err := configs.ReadModel(file)
		require.NoError(t, err, name)
		m, err := family.Build(c, 16)
		require.NoError(t, err, name)
		kinds[c.Vision.Kind] = true
		n := 0
		for _, p := range m.Params(nil) {
			if m.Component(p.Name) == family.Encoder && !strings.Contains(p.Name, ".deepstack.") {
				n += tensor.Len(p.Shape)
			}
		}
		if c.Vision.Kind == "clip" {
			n += 2 * c.Vision.Hidden // the closing norm, which is for the class token alone
		}
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "configs", "towers", name+".yaml"))
		require.NoError(t, err)
		require.Contains(t, string(text), fmt.Sprintf("\nparameters: %d\n", n), name)
	}
	require.Len(t, kinds, len(family.Encoders))
}
