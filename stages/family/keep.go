package family

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// Keep adds the parameters that checkpoints have and features do not pass: the layers behind the one that is
// projected, the closing norm and SigLIP's pooling head. They are carried along, and never trained.
func (m *Model) Keep() {
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
		v.unused(func(name string, shape ...int) { r.T.Param(VisualName+"."+name, shape, -1, 1, false) })
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
		if v.Tower.Scale {
			param(at+"scale1", d)
			param(at+"scale2", d)
		}
		norm(at + "norm1")
		for _, p := range []string{"q_proj", "k_proj", "v_proj", "proj"} {
			if param(at+"attn."+p+".weight", d, d); v.Tower.QKVBias || p == "proj" {
				param(at+"attn."+p+".bias", d)
			}
		}
		norm(at + "norm2")
		linear(at+"mlp.fc1", inter, d)
		linear(at+"mlp.fc2", d, inter)
	}
	if !v.Tower.PostNorm {
		norm("post_norm")
	}
	if v.Masked {
		param("mask_token", 1, d)
	}
	if !v.Pooling {
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
