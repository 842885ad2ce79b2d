package towers

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/family"
)

// SigLIP (arXiv:2303.15343): images of one size, a table of positions, no class token, a norm after the
// last layer. Pixels beyond the last whole patch are not read, as by a convolution.
var _ = family.RegisterTower("siglip", family.Tower{Facts: configs.TowerKind{Sized: true,
	Has: []string{"vision_use_head"}, Check: wholePatches}, Loong: map[string]loong.Part{
	"SiglipVisionConfig": {Sized: true, Preset: map[string]string{"hidden_act": "gelu_pytorch_tanh"}}},
	Projector: "mlp", Source: siglipSource, Build: func(c configs.Model) *family.Vision {
		t := family.BaseTower(c.Vision)
		t.PatchBias, t.Taps, t.PostNorm, t.Shuffled = true, 1, c.Vision.FeatLayer == 0, c.Vision.Merge > 1
		side := c.Vision.ImageSize / c.Vision.Patch
		t.Positions = side * side
		v := family.NewVision(c.Vision, t)
		v.Tile, v.Pooling = c.Vision.ImageSize, poolingHead.Of(c).Kept
		return v
	}})

// poolingKeys adds the setting for checkpoints with a pooling head, whose weights are kept so that
// an export has them again.
type poolingKeys struct {
	Kept bool `key:"vision.vision_use_head" default:"false" class:"fixed" doc:"Checkpoints have a pooling head as well, which features do not pass."`
}

var poolingHead = configs.Declare("pooling head of a tower", configs.Rules[poolingKeys]{})

var _ = registerLlavaTower("siglip_vision_model", llavaTower{Strategy: "full",
	Keys: hf.TowerKeys{Preset: map[string]string{"kind": `"siglip"`, "hidden_size": "768", "intermediate_size": "3072",
		"depth": "12", "num_heads": "12", "image_size": "224", "patch_size": "16", "hidden_act": `"gelu_pytorch_tanh"`,
		"layer_norm_eps": "1e-6", "vision_use_head": "true"}}, Write: func(m hf.Values, vision map[string]any) {
		vision["vision_use_head"] = m["vision.vision_use_head"]
	}})

// wholePatches holds the side of an image, in patches, to the squares that become one feature. A convolution
// drops pixels beyond the last whole patch.
func wholePatches(m configs.Model, fault configs.Report) {
	if v := m.Vision; v.ImageSize > 0 && (v.ImageSize < v.Patch || v.ImageSize/v.Patch%v.Merge != 0) {
		fault("merge", fmt.Sprintf("image_size / patch_size = %d/%d = %d is not a multiple of %d",
			v.ImageSize, v.Patch, v.ImageSize/v.Patch, v.Merge), "")
	}
}

// siglipNames maps logical names to transformers' SiglipVisionModel.
var siglipNames = strings.NewReplacer("visual.blocks.", "encoder.layers.", "visual.pos_embed.",
	"embeddings.position_embedding.", "visual.patch_embed.proj", "embeddings.patch_embedding", ".attn.proj.",
	".self_attn.out_proj.", ".attn.", ".self_attn.", ".norm1.", ".layer_norm1.", ".norm2.", ".layer_norm2.",
	"visual.post_norm.", "post_layernorm.", "visual.head.", "head.")

// siglipSource maps names to those of SigLIP checkpoints. The patch embedding has the shape of a
// convolution there, and the probe of the pooling head a leading 1.
func siglipSource(v *family.Vision) func(string) family.Source {
	return func(name string) family.Source {
		s := family.Source{Name: siglipNames.Replace(name)}
		switch name {
		case "visual.patch_embed.proj.weight":
			s.Tail = []int{v.Channels, v.Patch, v.Patch}
		case "visual.head.probe":
			s.Lead = 1
		}
		return s
	}
}
