package configs

import (
	"encoding/json"
	"fmt"
)

// LLaVA as transformers has it (arXiv:2304.08485, 2310.03744): CLIP's tower or SigLIP's, features of an inner layer, a projector of
// two linear layers, and a decoder of another family. What config.json leaves out are transformers' defaults.
var _ = registerComposed("llava", hfComposed{class: "LlavaForConditionalGeneration",
	vision: map[string]string{"num_hidden_layers": "depth", "num_attention_heads": "num_heads", "num_channels": "in_channels", "projection_dim": "", "vocab_size": "", "initializer_factor": ""},
	preset: map[string]string{"projector": `"mlp"`, "merge": "1"},
	kinds: map[string]map[string]string{
		"clip_vision_model": {"kind": `"clip"`, "hidden_size": "768", "intermediate_size": "3072", "depth": "12", "num_heads": "12", "image_size": "224", "patch_size": "32",
			"hidden_act": `"quick_gelu"`, "layer_norm_eps": "1e-5"},
		"siglip_vision_model": {"kind": `"siglip"`, "hidden_size": "768", "intermediate_size": "3072", "depth": "12", "num_heads": "12", "image_size": "224", "patch_size": "16",
			"hidden_act": `"gelu_pytorch_tanh"`, "layer_norm_eps": "1e-6", "vision_use_head": "true"},
	},
	texts: map[string]map[string]string{
		"llama": {"hidden_size": "4096", "num_hidden_layers": "32", "num_attention_heads": "32", "intermediate_size": "11008", "vocab_size": "32000", "max_position_embeddings": "2048",
			"rms_norm_eps": "1e-6", "bos_token_id": "1", "eos_token_id": "2"},
		"qwen2": {"hidden_size": "4096", "num_hidden_layers": "32", "num_attention_heads": "32", "num_key_value_heads": "32", "intermediate_size": "22016", "vocab_size": "151936",
			"max_position_embeddings": "32768", "rms_norm_eps": "1e-6"},
	},
	top: map[string]string{"image_token_index": "vision.image_token_id", "vision_feature_layer": "", "vision_feature_select_strategy": "", "multimodal_projector_bias": "",
		"ignore_index": "", "pad_token_id": "", "vocab_size": ""},
	rest: llavaFeatures, write: writeLlava})

// CLIP's tower (arXiv:2103.00020): pictures of one size, a class token, a table of positions and a norm before the first layer.
var _ = registerTower("clip", towerKind{sized: true})

// llavaStrategies are the choices of features that leave patches alone: CLIP's class token is the first row, SigLIP has none.
var llavaStrategies = map[string]string{"clip_vision_model": "default", "siglip_vision_model": "full"}

// llavaFeatures reads which features the decoder gets.
func llavaFeatures(d *hfDecoder, raw, vision map[string]json.RawMessage) {
	var tower string
	_ = json.Unmarshal(vision["model_type"], &tower)
	want, known := llavaStrategies[tower]
	if !known {
		return // visionKeys says so
	}
	layer, strategy, bias := json.RawMessage("-2"), "default", true
	if v, ok := raw["vision_feature_layer"]; ok {
		layer = v
	}
	var n int
	if err := json.Unmarshal(layer, &n); err != nil || n == 0 {
		d.l.fail(d.o, "vision_feature_layer", fmt.Sprintf("%s, only the output of one layer can be projected", layer), "")
	} else {
		d.set("vision.vision_feature_layer", compact(layer))
	}
	if v, ok := raw["vision_feature_select_strategy"]; ok {
		_ = json.Unmarshal(v, &strategy) // what is no string is not the one that is wanted
	}
	if strategy != want {
		d.l.fail(d.o, "vision_feature_select_strategy", fmt.Sprintf("%s, only %s can be trained with %s", quoted(strategy), want, tower), "")
	}
	if v, ok := raw["multimodal_projector_bias"]; ok && (json.Unmarshal(v, &bias) != nil || !bias) {
		d.l.fail(d.o, "multimodal_projector_bias", string(v)+", only true can be trained", "")
	}
}

// writeLlava writes the tower and its features as transformers names them.
func writeLlava(m Model, out map[string]any) {
	v := m.Vision
	tower := hfTower(hfComposedFamilies["llava"], v.Kind)
	vision := map[string]any{"model_type": tower, "hidden_size": v.Hidden, "intermediate_size": v.Inter, "num_hidden_layers": v.Depth, "num_attention_heads": v.Heads,
		"num_channels": v.Channels, "image_size": v.ImageSize, "patch_size": v.Patch, "hidden_act": v.Act, "layer_norm_eps": v.Eps}
	if v.Kind == "siglip" {
		vision["vision_use_head"] = v.Pooling
	}
	layer, side := v.FeatLayer, v.ImageSize/max(1, v.Patch)
	if layer == 0 {
		layer = -1
	}
	if text, ok := out["text_config"].(map[string]any); ok {
		text["model_type"] = m.Text
	}
	delete(out, "image_token_id")
	out["vision_config"], out["image_token_index"], out["projector_hidden_act"], out["multimodal_projector_bias"] = vision, v.ImageToken, v.ProjAct, true
	out["vision_feature_layer"], out["vision_feature_select_strategy"], out["image_seq_length"] = layer, llavaStrategies[tower], side*side
}
