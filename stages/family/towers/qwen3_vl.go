package towers

import (
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen3-VL (dense): a tower with a position table that is interpolated to each image's grid, features of
// some of its layers added to the decoder's first ones, and a decoder like Qwen3's with interleaved M-RoPE.
var _ = family.Register(family.Family{ModelType: "qwen3_vl", Paper: "2511.21631",
	Composed: &hf.Composed{Class: "Qwen3VLForConditionalGeneration", Text: "qwen3", Vision: qwen3VisionKeys,
		Absent: map[string]string{"rope_theta": "500000"}, Sections: "[24, 20, 20]",
		Preset: qwen3VisionPreset, Write: writeQwen3VL}, Composition: loong.Composition{Name: "qwen3_vl",
		Encoder: "qwen3_vl", Projector: "merger", Decoders: []string{"qwen3", "qwen3_moe"},
		Families: map[string]string{"qwen3_moe": "qwen3_vl_moe"}, Tokens: qwenVLTokens, Sections: "[24, 20, 20]",
		Weave: true, PositionFunc: []string{"rope_ids_qwen3vl"}}, Build: func(c configs.Model) *family.Model {
		return qwen3VL("qwen3_vl", c, family.TextAt("model.language_model."))
	}})

var (
	qwen3VisionKeys   = map[string]string{"spatial_merge_size": "merge", "out_hidden_size": "", "tokens_per_second": ""}
	qwen3VisionPreset = map[string]string{"kind": `"qwen3_vl"`, "hidden_act": `"gelu_pytorch_tanh"`,
		"temporal_patch_size": "2", "patch_size": "16"}
)

// Qwen3VL is what families have in common that put something behind Qwen3-VL: how files say its vision_config,
// and the model, whose parameters text finds where they are the decoder's.
func Qwen3VL() (keys, preset map[string]string, write func(m hf.Values, out map[string]any, put func(string, any)),
	build func(name string, c configs.Model, text func(string) family.Source) *family.Model) {
	return qwen3VisionKeys, qwen3VisionPreset, writeQwen3VL, qwen3VL
}

// writeQwen3VL puts the settings of the tower back to where the published files have them.
func writeQwen3VL(m hf.Values, out map[string]any, put func(string, any)) {
	maps.Copy(writeQwenVL(m, out, put), map[string]any{"intermediate_size": m["vision.intermediate_size"],
		"out_hidden_size":          m["hidden_size"],
		"deepstack_visual_indexes": m["vision.deepstack_visual_indexes"],
		"num_position_embeddings":  m["vision.num_position_embeddings"]})
}

// qwen3VL is Qwen3-VL's tower before a decoder whose parameters text finds.
func qwen3VL(name string, c configs.Model, text func(string) family.Source) *family.Model {
	c.RopeScaling.Interleaved = true // as transformers' classes, whatever mrope_interleaved says
	return family.ComposedModel(name, c, "model.visual.", map[string]string{
		"projector.norm": "model.visual.merger.norm", "projector.fc": "model.visual.merger.linear_fc"}, text)
}

var _ = family.RegisterTower("qwen3_vl", family.Tower{Facts: configs.TowerKind{Turns: true, Has: []string{
	"num_position_embeddings", "deepstack_visual_indexes"}, Check: func(m configs.Model, fault configs.Report) {
	checkTable(m, fault)
	taken := Deepstack.Of(m).Layers
	checkNamed(m, "deepstack_visual_indexes", taken, fault)
	if len(taken) > m.Layers {
		fault("deepstack_visual_indexes", fmt.Sprintf("%d outputs for %d decoder layers", len(taken), m.Layers), "")
	}
}},
	Loong:     map[string]loong.Part{"Qwen3VisionModelConfig": qwen3Tower, "Qwen35VisionConfig": qwen3Tower},
	Projector: "merger", Source: qwen3TowerSource,
	Build: func(c configs.Model) *family.Vision {
		t := family.BaseTower(c.Vision)
		t.Theta, t.PatchBias, t.Taps, t.Positions = 10000, true, 4, Table.Of(c).Rows
		v := family.NewVision(c.Vision, t)
		v.Deepstack, v.Listed = map[int]block.Merger{}, Deepstack.Of(c).Layers
		for _, layer := range v.Listed {
			v.Deepstack[layer] = block.Merger{Tower: &v.Tower, Out: c.Hidden, After: true, Eps: 1e-6,
				Act: family.Acts["gelu"]}
		}
		return v
	}})

// TableKeys are the keys of towers with a table of positions that is resized to each image's grid.
type TableKeys struct {
	Rows int `key:"vision.num_position_embeddings" default:"0" min:"0" class:"fixed" doc:"Rows of the table of learned positions, a square number."`
}

// Table is what models say of the tower's table of positions.
var Table = configs.Declare("tower's table of positions", configs.Rules[TableKeys]{})

// checkTable refuses a table of positions that is no square, because it is interpolated as a square grid.
func checkTable(m configs.Model, fault configs.Report) {
	n := Table.Of(m).Rows
	if side := int(math.Sqrt(float64(n))); n == 0 || side*side != n {
		fault("num_position_embeddings", fmt.Sprintf("%d is not a square of a number above 0", n), "")
	}
}

// DeepstackKeys are the keys of towers that give features of several layers.
type DeepstackKeys struct {
	Layers []int `key:"vision.deepstack_visual_indexes" class:"fixed" doc:"Layers whose outputs are added to the decoder's first layers."`
}

// Deepstack is what models say of features of the tower's inner layers.
var Deepstack = configs.Declare("features of inner layers", configs.Rules[DeepstackKeys]{})

var qwen3Tower = loong.Part{Preset: map[string]string{"temporal_patch_size": "2", "patch_size": "16",
	"hidden_act": "gelu_pytorch_tanh", "num_position_embeddings": "2304"}}

// qwen3TowerSource has two names for the linear layers of an MLP, everywhere in the tower.
func qwen3TowerSource(v *family.Vision) func(string) family.Source {
	inner, rename := family.FusedSource(v),
		strings.NewReplacer(".fc1.", ".linear_fc1.", ".fc2.", ".linear_fc2.", "deepstack.", "deepstack_merger_list.")
	return func(name string) family.Source {
		s := inner(name)
		s.Name = rename.Replace(s.Name)
		return s
	}
}
