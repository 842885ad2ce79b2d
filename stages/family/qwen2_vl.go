package family

import "github.com/lfactor/lfactor/configs"

// Qwen2-VL: pictures of any size, two-axis rotary positions, 2×2 patches a feature, M-RoPE in the decoder.
var _ = register(Family{ModelType: "qwen2_vl", Paper: "2409.12191",
	Build: func(c configs.Model) *Model {
		return composed("qwen2_vl", c, "visual.", lnMerger("visual.merger."), textAt("model."))
	}})

var _ = registerEncoder("qwen2_vl", encoder{projector: "merger", source: fusedSource,
	build: func(c configs.Model) *Vision {
		t := tower(c.Vision)
		t.Theta = 10000
		return vision(c.Vision, t)
	}})
