package towers

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/decoders"
)

// Qwen 3.5 with images: the tower of Qwen3-VL, whose features go to the embedding alone, before the decoder
// of linear and gated attention, of which the latter turns by three axes.
var (
	_ = family.Register(family.Family{ModelType: "qwen3_5", Paper: "2511.21631", Composed: seeing3_5(
		"Qwen3_5ForConditionalGeneration", "qwen3_5_text"), Composition: loong.Composition{Name: "qwen3_5",
		Encoder: "qwen3_vl", Projector: "merger", Decoders: []string{"qwen3_5_text", "qwen3_5_moe_text"},
		Families: map[string]string{"qwen3_5_moe_text": "qwen3_5_moe"}, Tokens: qwen3_5Tokens, Sections: "[11, 11, 10]",
		Weave: true, PositionFunc: []string{"rope_ids_qwen3vl"}}, Build: func(c configs.Model) *family.Model {
		return qwen3VL("qwen3_5", c, below("model.language_model.", decoders.InOrder(c)))
	}})
	_ = family.Register(family.Family{ModelType: "qwen3_5_moe", Paper: "2511.21631",
		Composed: seeing3_5("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text"),
		Build: func(c configs.Model) *family.Model {
			layout := func(experts func(configs.Model) func(string) family.Source) *family.Model {
				return qwen3VL("qwen3_5_moe", c, below("model.language_model.", decoders.InOrderBeside(c, experts(c))))
			}
			m := layout(family.EachExpert)
			m.Other = layout(family.FusedExperts).Source
			return m
		}})
)

// seeing3_5 is the config.json of both.
func seeing3_5(class, text string) *hf.Composed {
	return &hf.Composed{Class: class, Text: text, Vision: qwen3VisionKeys, Preset: qwen3VisionPreset, Sections: "[11, 11, 10]",
		Write: func(m hf.Values, out map[string]any, put func(string, any)) {
			writeQwen3VL(m, out, put)
			delete(out["vision_config"].(map[string]any), "deepstack_visual_indexes")
		}}
}

var qwen3_5Tokens = map[string]map[string]string{"": {"image_token_id": "248056",
	"video_token_id": "248057", "vision_start_token_id": "248053"}}

// below finds parameters of a decoder that own finds where it stands alone.
func below(prefix string, own func(string) family.Source) func(string) family.Source {
	at := family.TextAt(prefix)
	return func(name string) family.Source {
		s := own(name)
		s.Name = at(s.Name).Name
		return s
	}
}
