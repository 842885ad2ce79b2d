package towers

import (
	"maps"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// LLaVA-OneVision-1.5: RICE-ViT before Qwen3, with plain positions. Names are those of transformers;
// checkpoints that the model's own code wrote have the tower and the decoder at the top.
var _ = family.Register(family.Family{ModelType: "llava_onevision1_5", Paper: "2509.23661", Composed: &hf.Composed{
	Class: "LlavaOnevision1_5ForConditionalGeneration", Text: "qwen3", EitherTies: true, Alias: "llavaonevision1_5",
	Vision: map[string]string{"spatial_merge_size": "merge", "out_hidden_size": "", "text_hidden_size": "",
		"embed_dim": ""}, Preset: map[string]string{"kind": `"rice"`, "hidden_act": `"gelu"`, "layer_norm_eps": "1e-5",
		"temporal_patch_size": "1"}, Write: func(m hf.Values, out map[string]any, put func(string, any)) {
		put("merge", m["vision.merge"])
		maps.Copy(out["vision_config"].(map[string]any),
			map[string]any{"intermediate_size": m["vision.intermediate_size"],
				"out_hidden_size":     m["hidden_size"],
				"patch_size":          m["vision.patch_size"],
				"temporal_patch_size": m["vision.temporal_patch_size"],
				"layer_norm_eps":      m["vision.layer_norm_eps"],
				"model_type":          "llava_onevision1_5_vision"})
		out["text_config"].(map[string]any)["model_type"] = m.Text("model_type") + "_text"
	}}, Composition: loong.Composition{Name: "llava_ov_1_5", Encoder: "rice", Projector: "merger", Decoders: []string{
	"qwen3"}, Tokens: qwenVLTokens}, Build: func(c configs.Model) *family.Model {
	own := family.ComposedModel("llava_onevision1_5", c, "visual.", family.NormedMerger("visual.merger."),
		family.TextAt("model."))
	m := family.ComposedModel("llava_onevision1_5", c, "model.visual.", family.NormedMerger("model.visual.merger."),
		family.TextAt("model.language_model."))
	m.Other = own.Source
	return m
}})

// RICE-ViT (arXiv:2507.20025): Qwen2-VL's tower with a norm before the first layer, and a class token a
// frame whose place is an angle that learns.
var _ = family.RegisterTower("rice", family.Tower{Facts: configs.TowerKind{Turns: true},
	Loong: map[string]loong.Part{"RiceVisionConfig": {MergerEps: "1e-5", Positions: []string{"rope"},
		Preset: map[string]string{"hidden_act": "gelu"}}}, Projector: "merger", Merger: func(c configs.Model,
		m *block.Merger) {
		m.Eps = c.Vision.Eps
	}, Source: riceSource, Build: func(c configs.Model) *family.Vision {
		t := family.BaseTower(c.Vision)
		t.Theta, t.PreNorm, t.Class, t.Turned = 10000, true, true, true
		return family.NewVision(c.Vision, t)
	}})

// riceSource maps names to those of RICE checkpoints, where the class token is a plain vector and
// has an angle for its rotary embedding, since it has no place in the image.
func riceSource(v *family.Vision) func(string) family.Source {
	inner := family.FusedSource(v)
	return func(name string) family.Source {
		s := inner(name)
		switch name {
		case "visual.cls_token":
			return family.Source{Name: "class_embedding", Flat: true}
		case "visual.cls_angle":
			return family.Source{Name: "class_pos_emb", Lead: 1}
		case "visual.pre_norm.weight":
			s.Name = "pre_layernorm.weight"
		case "visual.pre_norm.bias":
			s.Name = "pre_layernorm.bias"
		case "visual.patch_embed.proj.weight":
			s.Tail = []int{v.Channels * v.Temporal, v.Patch, v.Patch}
		}
		return s
	}
}
