package family

import (
	"slices"

	"github.com/lfactor/lfactor/configs"
)

// Qwen2.5-VL: Qwen2-VL with RMS norms, SwiGLU, and attention within windows in all but a few layers of the tower.
var _ = register(Family{ModelType: "qwen2_5_vl", Paper: "2502.13923",
	Build: func(c configs.Model) *Model {
		return composed("qwen2_5_vl", c, "visual.", lnMerger("visual.merger."), textAt("model."))
	}})

var _ = registerEncoder("qwen2_5_vl", encoder{projector: "merger", source: fusedSource,
	build: func(c configs.Model) *Vision {
		t := tower(c.Vision)
		t.Theta, t.RMS, t.Gated, t.Ordered = 10000, true, true, true
		t.Windowed = func(layer int) bool { return !slices.Contains(c.Vision.FullLayers, layer) }
		v := vision(c.Vision, t)
		v.Window = c.Vision.Window / c.Vision.Merge / c.Vision.Patch
		return v
	}})
