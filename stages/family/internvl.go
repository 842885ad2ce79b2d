package family

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// InternVL 2.5, 3 and 3.5: tiles of one size, a class token and absolute positions, scaled branches, 2×2 patches a feature
// (pixel shuffle), a two-layer projector, and a decoder of another family.
var _ = register(Family{ModelType: "internvl", Paper: "2412.05271, 2508.18265",
	Build: func(c configs.Model) *Model {
		v := internVision(c.Vision)
		merger := block.Merger{Tower: &v.Tower, Out: c.Hidden, Inner: c.Hidden, After: true, Eps: 1e-5, Act: acts[c.Vision.ProjAct]}
		v.Project = func(r *block.Rec, x *grad.Value) *grad.Value { return merger.Forward(r, "projector", x) }
		m := Compose(Decoder("internvl", spec(c)), v)
		m.Source = internVLSource(v)
		return m
	}})

// internVision is InternViT.
func internVision(c configs.Vision) *Vision {
	t := tower(c)
	t.PatchBias, t.Class, t.Scale, t.Taps = true, true, true, 1
	side := c.ImageSize / c.Patch
	t.Positions = side*side + 1
	v := vision(c, t)
	v.Tile = c.ImageSize
	return v
}

// internNames maps logical names of the tower and projector to those of the published checkpoints for transformers.
var internNames = strings.NewReplacer("visual.blocks.", "vision_tower.encoder.layer.", "visual.cls_token", "vision_tower.embeddings.cls_token",
	"visual.pos_embed.weight", "vision_tower.embeddings.position_embeddings", "visual.patch_embed.proj", "vision_tower.embeddings.patch_embeddings.projection",
	".attn.proj.", ".attention.projection_layer.", ".attn.", ".attention.", ".norm1.", ".layernorm_before.", ".norm2.", ".layernorm_after.",
	".scale1", ".lambda_1", ".scale2", ".lambda_2", "projector.norm", "multi_modal_projector.layer_norm", "projector.fc", "multi_modal_projector.linear_")

func internVLSource(v *Vision) func(string) Source {
	return func(name string) Source {
		if !strings.HasPrefix(name, "visual.") && !strings.HasPrefix(name, "projector.") {
			return Source{Name: "language_model." + name}
		}
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
