package towers

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Kimi K2.5 and K2.6: MoonViT-3D, whose features are means over the frames of short clips, a patch merger,
// and Kimi K2. Names are those of published files, which transformers keeps.
var _ = family.Register(family.Family{ModelType: "kimi_k25", Paper: "2602.02276",
	Composed: &hf.Composed{Class: "Kimi_K25ForConditionalGeneration",
		Vision: map[string]string{"num_attention_heads": "num_heads", "num_hidden_layers": "depth",
			"pos_emb_time": "num_position_frames", "pos_emb_height": "", "pos_emb_width": "", "merge_kernel_size": "",
			// of the model's own code
			"vt_num_attention_heads": "num_heads", "vt_num_hidden_layers": "depth",
			"vt_hidden_size":       "hidden_size",
			"vt_intermediate_size": "intermediate_size", "init_pos_emb_time": "num_position_frames",
			"init_pos_emb_height": "", "init_pos_emb_width": "", "mm_hidden_size": "",
			"text_hidden_size": ""},
		Only: map[string]string{"pos_emb_type": `"divided_fixed"`, "video_attn_type": `"spatial_temporal"`,
			"merge_type": `"sd2_tpool"`, "mm_projector_type": `"patchmerger"`,
			"projector_hidden_act": `"gelu"`,
			"projector_ln_eps":     "1e-5"},
		Preset: map[string]string{"kind": `"moonvit_3d"`, "hidden_act": `"gelu_pytorch_tanh"`,
			"layer_norm_eps": "1e-5", "hidden_size": "1152", "intermediate_size": "4304", "depth": "27",
			"num_heads": "16", "patch_size": "14", "num_position_frames": "4"},
		Top: map[string]string{"media_placeholder_token_id": "vision.image_token_id",
			"projection_hidden_size": "", "projection_layer_norm_eps": "", "ignore_index": "",
			"use_unified_vision_chunk": "", "video_placeholder": ""},
		Rest: kimiSides, Write: writeKimi},
	Composition: kimiComposition("kimi_k2_5"),
	Build: func(c configs.Model) *family.Model {
		text := family.Registered(c.Decoder()).Source(c)
		return family.ComposedModel("kimi_k25", c, "vision_tower.",
			map[string]string{"projector.norm": "mm_projector.pre_norm", "projector.fc1": "mm_projector.proj.0",
				"projector.fc2": "mm_projector.proj.2"}, func(name string) family.Source {
				s := text(name)
				s.Name = "language_model." + s.Name
				return s
			})
	}})

// K2.6 has the files of K2.5 under another name.
var _ = func() struct{} { loong.RegisterComposition(kimiComposition("kimi_k2_6")); return struct{}{} }()

// kimiComposition describes the model to LoongForge's form of configurations: its encoder, the
// decoders that it may have, and the tokens around images.
func kimiComposition(name string) loong.Composition {
	return loong.Composition{Name: name, Family: "kimi_k25", Encoder: "moonvit_3d", Projector: "merger",
		Decoders: []string{"kimi_k2", "deepseek_v3"}, Tokens: map[string]map[string]string{"": {
			"image_token_id": "163605", "vision_start_token_id": "163602"}}}
}

// kimiSides reads what config.json has as two sides: the table of positions, and the patches of a feature.
func kimiSides(d *hf.Decoder, _, vision map[string]json.RawMessage) {
	number := func(keys ...string) (n float64) {
		for _, key := range keys {
			if vision[key] != nil && json.Unmarshal(vision[key], &n) != nil {
				d.Fail("vision_config."+key, string(vision[key])+" is not a number", "")
			}
		}
		return n
	}
	h, w := number("pos_emb_height", "init_pos_emb_height"), number("pos_emb_width", "init_pos_emb_width")
	if h == 0 && w == 0 {
		h, w = 64, 64
	}
	if h != w || h < 1 || h > 1<<15 {
		d.Fail("vision_config", fmt.Sprintf("a table of %g by %g positions, want a square", h, w), "")
		return
	}
	d.Set("vision.num_position_embeddings", fmt.Sprint(int(h*h)))
	sides := []int{2, 2}
	if raw := vision["merge_kernel_size"]; raw != nil &&
		(json.Unmarshal(raw, &sides) != nil || len(sides) != 2 || sides[0] != sides[1]) {
		d.Fail("vision_config.merge_kernel_size", string(raw)+", want two equal sides", "")
		return
	}
	d.Set("vision.merge", fmt.Sprint(sides[0]))
}

// writeKimi writes the tower as transformers names its keys.
func writeKimi(m hf.Values, out map[string]any, _ func(string, any)) {
	side, merge := int(math.Sqrt(float64(m.Int("vision.num_position_embeddings")))), m.Int("vision.merge")
	out["vision_config"] = map[string]any{"model_type": "kimi_k25_vision", "hidden_size": m["vision.hidden_size"],
		"intermediate_size": m["vision.intermediate_size"], "num_hidden_layers": m["vision.depth"],
		"num_attention_heads": m["vision.num_heads"], "patch_size": m["vision.patch_size"],
		"hidden_act": m["vision.hidden_act"], "pos_emb_height": side, "pos_emb_width": side,
		"pos_emb_time": m["vision.num_position_frames"], "merge_kernel_size": []int{merge, merge}}
	out["projection_hidden_size"] = m["vision.hidden_size"]
	delete(out, "projector_hidden_act")
	delete(out, "downsample_ratio")
}

// MoonViT-3D: a table of positions that a cubic kernel resizes to each image's grid, heads whose
// neighbouring numbers turn by column and row in turns, and clips of a few frames that see each other.
var _ = family.RegisterTower("moonvit_3d", family.Tower{
	Facts: configs.TowerKind{Turns: true, Has: []string{"num_position_embeddings", "num_position_frames"},
		Check: func(m configs.Model, fault configs.Report) {
			checkTable(m, fault)
			if clips.Of(m).Frames == 0 {
				fault("num_position_frames", "0, but clips have at least a frame", "try 4")
			}
		}},
	Loong: map[string]loong.Part{"MoonVisionModelConfig": {MergerEps: "1e-5",
		Preset: map[string]string{"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": "1e-5",
			"num_position_embeddings": "4096", "num_position_frames": "4"},
		Only: map[string][]string{"init_pos_emb_height": {"64"}, "init_pos_emb_width": {"64"},
			"init_pos_emb_time": {"4"}, "pos_emb_type": {"divided_fixed"},
			"video_attn_type":   {"spatial_temporal"},
			"merge_kernel_size": {"2 2"}, "merge_type": {"sd2_tpool"}, "model_type": {"moon_vit_3d"}}}},
	Projector: "merger", Merger: func(_ configs.Model, m *block.Merger) { m.Eps = 1e-5 },
	Source: moonSource,
	Build: func(c configs.Model) *family.Vision {
		t := family.BaseTower(c.Vision)
		t.Theta, t.PatchBias, t.PostNorm, t.Pairs = 10000, true, true, true
		t.Taps, t.Positions, t.Times = 16, Table.Of(c).Rows, clips.Of(c).Frames
		return family.NewVision(c.Vision, t)
	}})

// clipKeys adds the setting of towers that take several frames of a video together.
type clipKeys struct {
	Frames int `key:"vision.num_position_frames" default:"0" min:"0" max:"4096" class:"fixed" unit:"frames" doc:"Frames of a clip at most, of which towers with clips make one feature."`
}

var clips = configs.Declare("clips of a tower", configs.Rules[clipKeys]{})

var moonNames = strings.NewReplacer("blocks.", "encoder.blocks.", ".attn.qkv.", ".wqkv.", ".attn.proj.",
	".wo.", ".norm1.", ".norm0.", ".norm2.", ".norm1.", ".fc1.", ".fc0.", ".fc2.", ".fc1.", "post_norm.",
	"encoder.final_layernorm.", "pos_embed.", "patch_embed.pos_emb.")

// moonSource maps names to those of MoonViT checkpoints. The table of positions is a grid there,
// and the patch embedding has the shape of a convolution.
func moonSource(v *family.Vision) func(string) family.Source {
	inner := family.FusedSource(v)
	return func(name string) family.Source {
		s := inner(name)
		s.Name = moonNames.Replace(s.Name)
		switch name {
		case family.VisualName + ".patch_embed.proj.weight":
			s.Tail = []int{v.Channels, v.Patch, v.Patch}
		case family.VisualName + ".pos_embed.weight":
			s.Tail = []int{int(math.Sqrt(float64(v.Tower.Positions))), v.Tower.Hidden}
		}
		return s
	}
}
