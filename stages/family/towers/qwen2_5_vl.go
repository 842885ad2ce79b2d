package towers

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen2.5-VL: Qwen2-VL with RMS norms, SwiGLU, and attention within windows in all but a few layers of the
// tower.
var _ = family.Register(family.Family{ModelType: "qwen2_5_vl", Paper: "2502.13923",
	Composed: &hf.Composed{Class: "Qwen2_5_VLForConditionalGeneration", Text: "qwen2", EitherTies: true,
		Vision: map[string]string{"spatial_merge_size": "merge", "in_chans": "in_channels",
			"spatial_patch_size": "patch_size", "out_hidden_size": ""},
		Preset: map[string]string{"kind": `"qwen2_5_vl"`, "rms_norm": "true", "hidden_act": `"silu"`,
			"temporal_patch_size": "2"},
		Write: func(m hf.Values, out map[string]any, put func(string, any)) {
			maps.Copy(writeQwenVL(m, out, put),
				map[string]any{"intermediate_size": m["vision.intermediate_size"],
					"out_hidden_size":       m["hidden_size"],
					"window_size":           m["vision.window_size"],
					"fullatt_block_indexes": m["vision.fullatt_block_indexes"],
					"tokens_per_second":     int(m["vision.tokens_per_second"].(float64))})
		}},
	Composition: loong.Composition{Name: "qwen2_5_vl", Encoder: "qwen2_5_vl", Projector: "merger",
		Decoders: []string{"qwen2"}, Tokens: qwenVLTokens, Sections: "[16, 24, 24]",
		PositionFunc: []string{"mrope_ids"}},
	Build: func(c configs.Model) *family.Model {
		m := family.ComposedModel("qwen2_5_vl", c, "visual.", family.NormedMerger("visual.merger."), family.TextAt("model."))
		m.Source = family.InTransformers(m.Source, [2]string{"visual.", "model.visual."},
			[2]string{"model.", "model.language_model."})
		return m
	}})

var _ = family.RegisterTower("qwen2_5_vl", family.Tower{
	Facts: configs.TowerKind{Turns: true, Check: func(v configs.Vision, fault func(key, why, try string)) {
		if v.Window == 0 || v.Window%(v.Patch*v.Merge) != 0 {
			fault("window_size", fmt.Sprintf("%d is not a multiple of patch_size × merge = %d", v.Window,
				v.Patch*v.Merge), "")
		}
	}},
	Loong: map[string]loong.Part{"Qwen2VisionRMSNormConfig": {Gated: true, RMS: true,
		Preset: map[string]string{"temporal_patch_size": "2", "hidden_act": "silu",
			"rms_norm": "true", "window_size": "112", "fullatt_block_indexes": "[7, 15, 23, 31]",
			"tokens_per_second": "2"}}},
	Projector: "merger", Merger: func(_ configs.Model, m *block.Merger) { m.RMS = true }, Source: family.FusedSource,
	Build: func(c configs.Model) *family.Vision {
		t := family.BaseTower(c.Vision)
		t.Theta, t.RMS, t.Gated, t.Ordered = 10000, true, true, true
		t.Windowed = func(layer int) bool { return !slices.Contains(c.Vision.FullLayers, layer) }
		v := family.NewVision(c.Vision, t)
		v.Window = c.Vision.Window / c.Vision.Merge / c.Vision.Patch
		return v
	}})
