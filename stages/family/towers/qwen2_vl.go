package towers

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/decoders"
)

// Qwen2-VL: images of any size, two-axis rotary positions, 2×2 patches a feature, M-RoPE in the decoder.
var _ = family.Register(family.Family{ModelType: "qwen2_vl", Paper: "2409.12191",
	Composed: &hf.Composed{Class: "Qwen2VLForConditionalGeneration", Text: "qwen2", EitherTies: true,
		Absent: qwen2TextAbsent, Sections: "[16, 24, 24]",
		Vision: map[string]string{"embed_dim": "hidden_size", "spatial_merge_size": "merge", "tokens_per_second": "",
			"in_chans": "in_channels", "spatial_patch_size": "patch_size", "hidden_size": "", "mlp_ratio": ""},
		Preset: map[string]string{"kind": `"qwen2_vl"`, "hidden_act": `"quick_gelu"`, "temporal_patch_size": "2"},
		Write: func(m hf.Values, out map[string]any, put func(string, any)) {
			vision := writeQwenVL(m, out, put)
			// transformers wants an integer
			vision["hidden_size"], vision["mlp_ratio"] = m["hidden_size"],
				m.Int("vision.intermediate_size")/max(1, m.Int("vision.hidden_size"))
		}},
	Composition: loong.Composition{Name: "qwen2_vl", Encoder: "qwen2_vl", Projector: "merger",
		Decoders: []string{"qwen2"}, Tokens: qwenVLTokens, Sections: "[16, 24, 24]",
		PositionFunc: []string{"mrope_ids"}},
	Build: qwenVL("qwen2_vl")})

// qwenVL builds a model of a kind.
func qwenVL(kind string) func(c configs.Model) *family.Model {
	return func(c configs.Model) *family.Model {
		c.RopeScaling.Interleaved = false // as in transformers' class, whatever mrope_interleaved says
		m := family.ComposedModel(kind, c, "visual.", family.NormedMerger("visual.merger."), family.TextAt("model."))
		m.Source = family.InTransformers(m.Source, [2]string{"visual.", "model.visual."},
			[2]string{"model.", "model.language_model."})
		return m
	}
}

var _ = family.RegisterTower("qwen2_vl", family.Tower{Facts: configs.TowerKind{Turns: true},
	Loong:     map[string]loong.Part{"Qwen2VisionModelConfig": {Preset: map[string]string{"temporal_patch_size": "2", "hidden_act": "quick_gelu"}}},
	Projector: "merger", Source: family.FusedSource,
	Build: func(c configs.Model) *family.Vision {
		t := family.BaseTower(c.Vision)
		t.Theta = 10000
		return family.NewVision(c.Vision, t)
	}})

// qwen2TextAbsent are defaults of Qwen2VLTextConfig and Qwen2_5_VLTextConfig that Qwen2Config has not.
var qwen2TextAbsent = map[string]string{"rms_norm_eps": "1e-5", "rope_theta": "1e6", "hidden_size": "8192",
	"intermediate_size": "29568", "num_hidden_layers": "80", "num_attention_heads": "64", "num_key_value_heads": "8",
	"vocab_size": "152064"}

// qwenVLTokens are those of all of Qwen's composed models.
var qwenVLTokens = map[string]map[string]string{"": decoders.QwenTokens}

// writeQwenVL writes what the config.json of Qwen2-VL, Qwen2.5-VL and Qwen3-VL have in common, and returns
// the tower's part.
func writeQwenVL(m hf.Values, out map[string]any, put func(string, any)) (vision map[string]any) {
	vision = out["vision_config"].(map[string]any)
	put("merge", m["vision.merge"])
	put("patch_size", m["vision.patch_size"])
	put("temporal_patch_size", m["vision.temporal_patch_size"])
	vision["model_type"] = m.Text("model_type") + "_vision"
	out["text_config"].(map[string]any)["model_type"] = m.Text("model_type") + "_text"
	return vision
}
