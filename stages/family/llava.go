package family

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// LLaVA: the patches of an inner layer of CLIP's tower or SigLIP's, two linear layers, and a decoder of another family. Names are
// those of transformers 5; older checkpoints have the tower below vision_model.
var _ = register(Family{ModelType: "llava", Paper: "2304.08485, 2310.03744",
	Build: func(c configs.Model) *Model {
		m := composed("llava", c, "vision_tower.", linearProjector, decoderSource(c))
		m.Other = composed("llava", c, "vision_tower.vision_model.", linearProjector, decoderSource(c)).Source
		m.Vision.Tower.PostNorm = false // features are taken before it
		m.keep()
		return m
	}})

// CLIP (arXiv:2103.00020): pictures of one size, a class token that is no feature, a table of positions, a norm before the first
// layer; one behind the last is for the class token alone.
var _ = registerEncoder("clip", encoder{projector: "mlp", source: clipSource,
	build: func(c configs.Model) *Vision {
		t := tower(c.Vision)
		t.Class, t.PreNorm, t.Taps = true, true, 1
		side := c.Vision.ImageSize / c.Vision.Patch
		t.Positions = side*side + 1
		v := vision(c.Vision, t)
		v.Tile = c.Vision.ImageSize
		return v
	}})

var clipNames = strings.NewReplacer("visual.pre_norm.", "pre_layrnorm.")

// clipSource names the tower's parameters as transformers' CLIPVisionModel does, which SigLIP's follows.
func clipSource(v *Vision) func(string) Source {
	inner := siglipSource(v)
	return func(name string) Source {
		if name == visual+".cls_token" {
			return Source{Name: "embeddings.class_embedding", Flat: true}
		}
		s := inner(name)
		s.Name = clipNames.Replace(s.Name)
		return s
	}
}

// keep adds the parameters that checkpoints have and features do not pass: the layers behind the one that is projected, the closing
// norm and SigLIP's pooling head. They are carried along, and never trained.
func (m *Model) keep() {
	v := m.Vision
	last := 0
	for i, b := range m.Blocks {
		if b.Component == Encoder {
			last = i
		}
	}
	inner := m.Blocks[last].Record
	m.Blocks[last].Record = func(r *block.Rec, env map[string]*grad.Value) {
		inner(r, env)
		frozen := r.T.Frozen
		r.T.Frozen = func(string) bool { return true }
		v.unused(func(name string, shape ...int) { r.T.Param(visual+"."+name, shape, -1, 1, false) })
		r.T.Frozen = frozen
	}
}

// unused calls param for each parameter that features do not pass.
func (v *Vision) unused(param func(name string, shape ...int)) {
	d, inter := v.Tower.Hidden, v.Tower.Inter
	norm := func(name string) {
		param(name+".weight", d)
		param(name+".bias", d)
	}
	linear := func(name string, out, in int) {
		param(name+".weight", out, in)
		param(name+".bias", out)
	}
	for i := v.Tower.Layers; i < v.Config.Depth; i++ {
		at := fmt.Sprintf("blocks.%d.", i)
		norm(at + "norm1")
		for _, p := range []string{"q_proj", "k_proj", "v_proj", "proj"} {
			linear(at+"attn."+p, d, d)
		}
		norm(at + "norm2")
		linear(at+"mlp.fc1", inter, d)
		linear(at+"mlp.fc2", d, inter)
	}
	norm("post_norm")
	if !v.Config.Pooling {
		return
	}
	param("head.probe", 1, d)
	param("head.attention.in_proj_weight", 3*d, d)
	param("head.attention.in_proj_bias", 3*d)
	linear("head.attention.out_proj", d, d)
	norm("head.layernorm")
	linear("head.mlp.fc1", inter, d)
	linear("head.mlp.fc2", d, inter)
}
