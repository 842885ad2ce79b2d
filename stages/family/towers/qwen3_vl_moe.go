package towers

import (
	"encoding/json"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen3-VL with experts: the tower of Qwen3-VL before the decoder of Qwen3-MoE, whose experts' weights add up to 1.
// Published checkpoints have all experts of a layer in one tensor, as [in out]; transformers 5 writes [out in].
var _ = family.Register(family.Family{ModelType: "qwen3_vl_moe", Paper: "2511.21631", Composed: &hf.Composed{
	Class: "Qwen3VLMoeForConditionalGeneration", Text: "qwen3_moe", Vision: qwen3VisionKeys, Preset: qwen3VisionPreset,
	Absent: map[string]string{"rope_theta": "500000"}, Sections: "[24, 20, 20]",
	Rest: func(d *hf.Decoder, _, _ map[string]json.RawMessage) { d.Set("norm_topk_prob", "true") },
	Write: func(m hf.Values, out map[string]any, put func(string, any)) {
		writeQwen3VL(m, out, put)
		delete(out["text_config"].(map[string]any), "norm_topk_prob")
	}}, Build: func(c configs.Model) *family.Model {
	layout := func(turned bool) *family.Model {
		own := family.ExpertPlaces{Width: family.Mixture.Of(c).ExpertWidth, Turned: turned}.Source
		return qwen3VL("qwen3_vl_moe", c, below("model.language_model.", own))
	}
	m := layout(true)
	m.Other = layout(false).Source
	return m
}})
