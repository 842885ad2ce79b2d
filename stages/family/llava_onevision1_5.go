package family

import "github.com/lfactor/lfactor/configs"

// LLaVA-OneVision-1.5: RICE-ViT before Qwen3, with plain positions. Names are those of transformers; checkpoints that the
// model's own code wrote have the tower and the decoder at the top.
var _ = register(Family{ModelType: "llava_onevision1_5", Paper: "2509.23661",
	Build: func(c configs.Model) *Model {
		own := composed("llava_onevision1_5", c, "visual.", lnMerger("visual.merger."), textAt("model."))
		m := composed("llava_onevision1_5", c, "model.visual.", lnMerger("model.visual.merger."), textAt("model.language_model."))
		m.Other = own.Source
		return m
	}})

// RICE-ViT (arXiv:2507.20025): Qwen2-VL's tower with a norm before the first layer, and a class token a frame whose place is an
// angle that learns.
var _ = registerEncoder("rice", encoder{projector: "merger", source: riceSource,
	build: func(c configs.Model) *Vision {
		t := tower(c.Vision)
		t.Theta, t.PreNorm, t.Class, t.Turned = 10000, true, true, true
		return vision(c.Vision, t)
	}})

func riceSource(v *Vision) func(string) Source {
	inner := fusedSource(v)
	return func(name string) Source {
		s := inner(name)
		switch name {
		case "visual.cls_token":
			return Source{Name: "class_embedding", Flat: true}
		case "visual.cls_angle":
			return Source{Name: "class_pos_emb", Lead: 1}
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
