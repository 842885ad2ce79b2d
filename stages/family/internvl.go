package family

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
)

// InternVL 2.5, 3 and 3.5: tiles of one size, a class token and absolute positions, scaled branches, 2×2 patches a feature
// (pixel shuffle), a two-layer projector, and a decoder of another family.
var _ = register(Family{ModelType: "internvl", Paper: "2412.05271, 2508.18265",
	Build: func(c configs.Model) *Model {
		m := composed("internvl", c, "vision_tower.", linearProjector, decoderSource(c))
		m.Other = internChatSource(m.Vision, m.Source)
		return m
	}})

// linearProjector names the parts of InternVL's and LLaVA's projectors.
var linearProjector = map[string]string{"projector.norm": "multi_modal_projector.layer_norm", "projector.fc": "multi_modal_projector.linear_"}

// internChatNames maps logical names to those of checkpoints that InternVL's own code wrote (model_type internvl_chat).
var internChatNames = strings.NewReplacer("visual.blocks.", "vision_model.encoder.layers.", "visual.cls_token", "vision_model.embeddings.class_embedding",
	"visual.pos_embed.weight", "vision_model.embeddings.position_embedding", "visual.patch_embed.proj", "vision_model.embeddings.patch_embedding",
	".scale1", ".ls1", ".scale2", ".ls2", "projector.norm", "mlp1.0", "projector.fc1", "mlp1.1", "projector.fc2", "mlp1.3")

func internChatSource(v *Vision, own func(string) Source) func(string) Source {
	return func(name string) Source {
		s := own(name)
		if strings.HasPrefix(name, visual+".") || strings.HasPrefix(name, "projector.") {
			joint, rows := fusedQKV(name, v.Tower.Hidden)
			s.Name, s.Rows = internChatNames.Replace(joint), rows
		}
		return s
	}
}

// internChatTower names the tower's parameters as InternViT's own repositories do.
func internChatTower(v *Vision) func(string) Source {
	own := internChatSource(v, internTowerSource(v))
	return func(name string) Source {
		s := own(name)
		s.Name = strings.TrimPrefix(s.Name, "vision_model.")
		return s
	}
}

// decoderSource maps the names of a composed model's decoder to those of its own family, at a prefix.
func decoderSource(c configs.Model) func(string) Source {
	own := all[c.Text].Build(c).Source
	return func(name string) Source {
		s := own(name)
		s.Name = "language_model." + s.Name
		return s
	}
}

var _ = registerEncoder("internvl", encoder{projector: "internvl", source: internTowerSource, other: internChatTower,
	build: func(c configs.Model) *Vision {
		t := tower(c.Vision)
		t.PatchBias, t.Class, t.Scale, t.Taps = true, true, true, 1
		side := c.Vision.ImageSize / c.Vision.Patch
		t.Positions = side*side + 1
		v := vision(c.Vision, t)
		v.Tile = c.Vision.ImageSize
		return v
	}})

// internNames maps logical names of the tower to those of the published checkpoints for transformers.
var internNames = strings.NewReplacer("visual.blocks.", "encoder.layer.", "visual.cls_token", "embeddings.cls_token",
	"visual.pos_embed.weight", "embeddings.position_embeddings", "visual.patch_embed.proj", "embeddings.patch_embeddings.projection",
	".attn.proj.", ".attention.projection_layer.", ".attn.", ".attention.", ".norm1.", ".layernorm_before.", ".norm2.", ".layernorm_after.",
	".scale1", ".lambda_1", ".scale2", ".lambda_2")

func internTowerSource(v *Vision) func(string) Source {
	return func(name string) Source {
		s := Source{Name: internNames.Replace(name)}
		switch name {
		case "visual.cls_token", "visual.pos_embed.weight":
			s.Lead = 1
		case "visual.patch_embed.proj.weight":
			s.Tail = []int{v.Channels, v.Patch, v.Patch}
		}
		return s
	}
}
