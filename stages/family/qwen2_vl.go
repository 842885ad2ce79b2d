package family

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// Qwen2-VL: pictures of any size, two-axis rotary positions, 2×2 patches a feature, M-RoPE in the decoder.
var _ = register(Family{ModelType: "qwen2_vl", Paper: "2409.12191",
	Build: func(c configs.Model) *Model {
		t := tower(c.Vision)
		t.Theta = 10000
		v := qwenVision(c, t, block.Merger{Eps: 1e-6, Act: acts["gelu"]})
		m := Compose(Decoder("qwen2_vl", spec(c)), v)
		m.Source = qwenVLSource(m, "model.", "visual.", map[string]string{"projector.norm": "visual.merger.ln_q", "projector.fc1": "visual.merger.mlp.0", "projector.fc2": "visual.merger.mlp.2"})
		return m
	}})

// qwenVision is the vision part of Qwen's models.
func qwenVision(c configs.Model, t block.Tower, merger block.Merger) *Vision {
	v := vision(c.Vision, t)
	merger.Out = c.Hidden
	merger.Tower = &v.Tower
	v.Project = func(r *block.Rec, x *grad.Value) *grad.Value { return merger.Forward(r, "projector", x) }
	return v
}

// qwenVLSource maps logical names to those of published checkpoints, whose towers have one projection of query, key and value
// and a convolution over patches.
func qwenVLSource(m *Model, text, tower string, names map[string]string) func(string) Source {
	patch := []int{m.Vision.Channels, m.Vision.Temporal, m.Vision.Patch, m.Vision.Patch}
	return func(name string) Source {
		joint, rows := fusedQKV(name, m.Vision.Tower.Hidden)
		s := Source{Name: joint, Rows: rows}
		for from, to := range names {
			if rest, ok := strings.CutPrefix(name, from); ok {
				s.Name = to + rest
				return s
			}
		}
		switch {
		case name == "visual.patch_embed.proj.weight":
			s.Tail = patch
			fallthrough
		case strings.HasPrefix(name, "visual."):
			s.Name = tower + strings.TrimPrefix(s.Name, "visual.")
		case strings.HasPrefix(name, "model."):
			s.Name = text + strings.TrimPrefix(name, "model.")
		}
		return s
	}
}
