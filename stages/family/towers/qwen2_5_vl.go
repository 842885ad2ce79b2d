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

// Qwen2.5-VL: Qwen2-VL with RMS norms, SwiGLU, and attention within windows in all but a few layers of the tower.
var _ = family.Register(family.Family{ModelType: "qwen2_5_vl", Paper: "2502.13923",
	Composed: &hf.Composed{Class: "Qwen2_5_VLForConditionalGeneration", Text: "qwen2",
		EitherTies: true, Absent: qwen2TextAbsent, Sections: "[16, 24, 24]", Vision: map[string]string{"spatial_merge_size": "merge",
			"in_chans": "in_channels", "spatial_patch_size": "patch_size", "out_hidden_size": ""},
		Preset: map[string]string{"kind": `"qwen2_5_vl"`, "rms_norm": "true", "hidden_act": `"silu"`,
			"temporal_patch_size": "2", "tokens_per_second": "4"}, Write: func(m hf.Values, out map[string]any, put func(string, any)) {
			maps.Copy(writeQwenVL(m, out, put), map[string]any{"intermediate_size": m["vision.intermediate_size"],
				"out_hidden_size":       m["hidden_size"],
				"window_size":           m["vision.window_size"],
				"fullatt_block_indexes": m["vision.fullatt_block_indexes"],
				"tokens_per_second":     int(m["vision.tokens_per_second"].(float64))})
		}},
	Composition: loong.Composition{Name: "qwen2_5_vl", Encoder: "qwen2_5_vl", Projector: "merger",
		Decoders: []string{"qwen2"}, Tokens: qwenVLTokens, Sections: "[16, 24, 24]",
		PositionFunc: []string{"mrope_ids"}},
	Build: qwenVL("qwen2_5_vl")})

var _ = family.RegisterTower("qwen2_5_vl", family.Tower{Facts: configs.TowerKind{Turns: true, Check: checkWindows,
	Has: []string{"window_size", "fullatt_block_indexes", "tokens_per_second"}}, Loong: map[string]loong.Part{
	"Qwen2VisionRMSNormConfig": {Gated: true, RMS: true, Preset: map[string]string{"temporal_patch_size": "2",
		"hidden_act": "silu", "rms_norm": "true", "window_size": "112", "fullatt_block_indexes": "[7, 15, 23, 31]",
		"tokens_per_second": "2"}}}, Projector: "merger", Merger: func(_ configs.Model, m *block.Merger) {
	m.RMS = true
}, Source: family.FusedSource, Build: func(c configs.Model) *family.Vision {
	t := family.BaseTower(c.Vision)
	t.Theta, t.RMS, t.Gated, t.Ordered = 10000, true, true, true
	k := windows.Of(c)
	t.Windowed = func(layer int) bool { return !slices.Contains(k.FullLayers, layer) }
	v := family.NewVision(c.Vision, t)
	v.Window, v.PerSecond = k.Window/c.Vision.Merge/c.Vision.Patch, k.PerSecond
	return v
}})

// windowKeys adds the settings of towers that attend within windows in most layers.
type windowKeys struct {
	Window     int     `key:"vision.window_size" default:"0" min:"0" class:"fixed" unit:"pixels" doc:"Side of the windows of windowed attention."`
	FullLayers []int   `key:"vision.fullatt_block_indexes" class:"fixed" doc:"Layers that attend to whole images where others attend within windows."`
	PerSecond  float64 `key:"vision.tokens_per_second" default:"0" min:"0" class:"fixed" doc:"Positions in time a second of video (Qwen2.5-VL); 0 counts rows of the grid."`
}

var windows = configs.Declare("windows of a tower", configs.Rules[windowKeys]{})

// checkWindows refuses windows that are no whole number of merged patches, and layers that do not exist.
func checkWindows(m configs.Model, fault configs.Report) {
	k, side := windows.Of(m), m.Vision.Patch*m.Vision.Merge
	if k.Window == 0 || k.Window%side != 0 {
		fault("window_size", fmt.Sprintf("%d is not a multiple of patch_size × merge = %d", k.Window, side), "")
	}
	checkNamed(m, "fullatt_block_indexes", k.FullLayers, fault)
}

// checkNamed holds a list of layers to those that the tower has.
func checkNamed(m configs.Model, key string, layers []int, fault configs.Report) {
	for i, l := range layers {
		switch {
		case l < 0 || l >= m.Vision.Depth:
			fault(key, fmt.Sprintf("layer %d is named, but the tower has %d", l, m.Vision.Depth), "")
		case slices.Contains(layers[:i], l):
			fault(key, fmt.Sprintf("layer %d is named twice", l), "")
		}
	}
}
