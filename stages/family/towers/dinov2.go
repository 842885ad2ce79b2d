package towers

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// DINOv2 (arXiv:2304.07193): images of one size, a class token that is not a feature, a table of positions,
// scaled branches, and a norm after the last layer. Checkpoints also have a token for masked patches, which
// only pretraining of the tower uses. Register tokens and the gated MLP of the giant size are not built.
var _ = family.RegisterTower("dinov2",
	family.Tower{Facts: configs.TowerKind{Sized: true, Has: []string{"layer_scale_init_value"}, Check: wholePatches},
		Projector: "mlp", Source: dinov2Source, Build: func(c configs.Model) *family.Vision {
			t := family.BaseTower(c.Vision)
			t.PatchBias, t.Class, t.Scale, t.Taps, t.PostNorm = true, true, true, 1, c.Vision.FeatLayer == 0
			t.Shuffled = c.Vision.Merge > 1
			side := c.Vision.ImageSize / c.Vision.Patch
			t.Positions = side*side + 1
			v := family.NewVision(c.Vision, t)
			v.Tile, v.Masked, v.FirstScale = c.Vision.ImageSize, true, scaledBranches.Of(c).First
			return v
		}})

// dinov2Names maps logical names to those of published checkpoints, dinov2Modules to layers of transformers 5.
var (
	dinov2Common = []string{"visual.blocks.", "encoder.layer.", "visual.cls_token", "embeddings.cls_token",
		"visual.mask_token", "embeddings.mask_token", "visual.pos_embed.weight", "embeddings.position_embeddings",
		"visual.patch_embed.proj", "embeddings.patch_embeddings.projection", ".scale1", ".layer_scale1.lambda1",
		".scale2", ".layer_scale2.lambda1", "visual.post_norm.", "layernorm."}
	dinov2Names = strings.NewReplacer(append([]string{".attn.q_proj.", ".attention.attention.query.",
		".attn.k_proj.", ".attention.attention.key.", ".attn.v_proj.", ".attention.attention.value.",
		".attn.proj.", ".attention.output.dense."}, dinov2Common...)...)
	dinov2Modules = strings.NewReplacer(append([]string{".attn.proj.", ".attention.o_proj.",
		".attn.", ".attention."}, dinov2Common...)...)
)

// dinov2Source maps names to those of DINOv2 checkpoints. The class token and the table of
// positions have a leading 1 there, and the patch embedding the shape of a convolution.
func dinov2Source(v *family.Vision) func(string) family.Source {
	return func(name string) family.Source {
		s := classSource(v, dinov2Names, name)
		s.Module = strings.TrimSuffix(dinov2Modules.Replace(name), ".weight")
		return s
	}
}

var _ = registerLlavaTower("dinov2", llavaTower{Strategy: "default",
	Keys: hf.TowerKeys{Preset: map[string]string{"kind": `"dinov2"`, "hidden_size": "768",
		"depth": "12", "num_heads": "12", "image_size": "224", "patch_size": "14",
		"hidden_act": `"gelu"`, "layer_norm_eps": "1e-6", "layer_scale_init_value": "1"},
		Vision: map[string]string{"layerscale_value": "layer_scale_init_value", "qkv_bias": "attention_bias",
			"mlp_ratio": "", "apply_layernorm": "", "out_features": "", "out_indices": "", "stage_names": "",
			"reshape_hidden_states": ""}, Only: map[string]string{"use_swiglu_ffn": "false", "use_mask_token": "true",
			"attention_probs_dropout_prob": "0", "hidden_dropout_prob": "0", "drop_path_rate": "0"}},
	Read: readDinov2,
	Write: func(m hf.Values, vision map[string]any) {
		delete(vision, "intermediate_size")
		vision["mlp_ratio"] = ratioOf(m.Int("vision.intermediate_size"), m.Int("vision.hidden_size"))
		vision["layerscale_value"] = m["vision.layer_scale_init_value"]
		vision["qkv_bias"] = m["vision.attention_bias"]
	}})

// readDinov2 sets the width of the MLP, which config.json gives as a multiple of the tower's.
func readDinov2(d *hf.Decoder, vision map[string]json.RawMessage) {
	type keys struct {
		Width int     `key:"hidden_size"`
		Ratio float64 `key:"mlp_ratio" min:"0"`
	}
	if k, ok := hf.Typed(d, vision, "vision_config", keys{768, 4}); ok {
		d.Set("vision.intermediate_size", fmt.Sprint(int(float64(k.Width)*k.Ratio)))
	}
}

// ratioOf is a/b, as an integer where it is one: transformers writes and expects it so.
func ratioOf(a, b int) any {
	if b > 0 && a%b == 0 {
		return a / b
	}
	return float64(a) / float64(max(b, 1))
}
