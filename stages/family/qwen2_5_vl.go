package family

import (
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
)

// Qwen2.5-VL: Qwen2-VL with RMS norms, SwiGLU, and attention within windows in all but a few layers of the tower.
var _ = register(Family{ModelType: "qwen2_5_vl", Paper: "2502.13923",
	Build: func(c configs.Model) *Model {
		t := tower(c.Vision)
		t.Theta, t.Gated, t.Ordered = 10000, true, true
		t.Windowed = func(layer int) bool { return !slices.Contains(c.Vision.FullLayers, layer) }
		v := qwenVision(c, t, block.Merger{RMS: true, Eps: 1e-6, Act: acts["gelu"]})
		v.Window = c.Vision.Window / c.Vision.Merge / c.Vision.Patch
		m := Compose(Decoder("qwen2_5_vl", spec(c)), v)
		m.Source = qwenVLSource(m, "model.", "visual.", map[string]string{"projector.norm": "visual.merger.ln_q", "projector.fc1": "visual.merger.mlp.0", "projector.fc2": "visual.merger.mlp.2"})
		return m
	}})
