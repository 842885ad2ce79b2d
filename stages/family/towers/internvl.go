package towers

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/family"
)

// InternVL 2.5, 3 and 3.5: tiles of one size, a class token and absolute positions, scaled branches, 2×2
// patches a feature (pixel shuffle), a two-layer projector, and a decoder of another family.
var _ = family.Register(family.Family{ModelType: "internvl", Paper: "2412.05271, 2508.18265",
	Composed: &hf.Composed{Class: "InternVLForConditionalGeneration", Alias: "internvl_chat",
		Tied: "true", Older: map[string]string{"qkv_bias": "attention_bias", "qk_normalization": "use_qk_norm",
			"initializer_factor": "layer_scale_init_value"}, Vision: map[string]string{"num_hidden_layers": "depth",
			"num_attention_heads": "num_heads", "num_channels": "in_channels", "norm_type": ""},
		Preset: map[string]string{"kind": `"internvl"`, "attention_bias": "false", "projector": `"internvl"`},
		Only: map[string]string{"use_mask_token": "false", "use_absolute_position_embeddings": "true",
			"use_mean_pooling": "true"}, Rest: heldNorms, Write: writeInternVL}, Composition: loong.Composition{Name: "intern_vl", Encoder: "internvl",
		Projector: "internvl", Decoders: []string{"internlm2", "llama", "qwen2", "qwen3", "qwen3_moe"},
		LossWeight: "square", LossFunc: "loss_func_internvl", PositionFunc: []string{"position_ids",
			"rope_ids_internvl"}, Tokens: map[string]map[string]string{"internlm2": {"image_token_id": "92546"},
			"qwen2": {"image_token_id": "151667"}, "qwen3": {"image_token_id": "151671"},
			"qwen3_moe": {"image_token_id": "151671"}}}, Build: func(c configs.Model) *family.Model {
		m := family.ComposedModel("internvl", c, "vision_tower.", linearProjector, decoderSource(c))
		m.Other = internChatSource(m.Vision, m.Source)
		if !family.Registered(c.Text).HF.Remote {
			m.Source = family.InTransformers(m.Source, besideDecoder...)
		}
		return m
	}})

// heldNorms refuses another epsilon where queries and keys are normed: transformers' class has 1e-6 there whatever the
// file says, and InternVL's own code, whose key of it is qk_normalization, what it says.
func heldNorms(d *hf.Decoder, _, vision map[string]json.RawMessage) {
	type keys struct {
		Eps    float64 `key:"layer_norm_eps"`
		QKNorm bool    `key:"use_qk_norm"`
	}
	if k, ok := hf.Typed(d, vision, "vision_config", keys{Eps: 1e-6}); ok && k.QKNorm && k.Eps != 1e-6 {
		d.Fail("vision_config.layer_norm_eps", fmt.Sprintf("%g, only 1e-06 can be trained with use_qk_norm", k.Eps), "")
	}
}

// writeInternVL puts the settings of model and tower back to where the published files have them.
func writeInternVL(m hf.Values, out map[string]any, put func(string, any)) {
	out["downsample_ratio"], out["projector_hidden_act"] = 1/float64(m.Int("vision.merge")),
		m["vision.projector_hidden_act"]
	put("intermediate_size", m["vision.intermediate_size"])
	norm := map[bool]string{true: "rms_norm", false: "layer_norm"}[m["vision.rms_norm"] == true]
	maps.Copy(out["vision_config"].(map[string]any),
		map[string]any{"image_size": []any{m["vision.image_size"], m["vision.image_size"]},
			"patch_size":     []any{m["vision.patch_size"], m["vision.patch_size"]},
			"layer_norm_eps": m["vision.layer_norm_eps"], "norm_type": norm,
			"attention_bias": m["vision.attention_bias"], "use_qk_norm": m["vision.use_qk_norm"],
			"layer_scale_init_value": m["vision.layer_scale_init_value"], "model_type": "internvl_vision"})
}

// besideDecoder are the names of the parts of InternVL and LLaVA in transformers.
var besideDecoder = [][2]string{{"vision_tower.vision_model.", "model.vision_tower."},
	{"vision_tower.", "model.vision_tower."}, {"multi_modal_projector.", "model.multi_modal_projector."},
	{"language_model.model.", "model.language_model."}, {"language_model.lm_head", "lm_head"}}

// linearProjector names the parts of InternVL's and LLaVA's projectors.
var linearProjector = map[string]string{"projector.norm": "multi_modal_projector.layer_norm",
	"projector.fc": "multi_modal_projector.linear_"}

// internChatNames maps logical names to those of checkpoints that InternVL's own code wrote (model_type internvl_chat).
var internChatNames = strings.NewReplacer("visual.blocks.", "vision_model.encoder.layers.",
	"visual.cls_token", "vision_model.embeddings.class_embedding", "visual.pos_embed.weight",
	"vision_model.embeddings.position_embedding", "visual.patch_embed.proj",
	"vision_model.embeddings.patch_embedding", ".scale1", ".ls1", ".scale2", ".ls2", "projector.norm", "mlp1.0",
	"projector.fc1", "mlp1.1", "projector.fc2", "mlp1.3")

// internChatSource maps names to those of the older InternVL checkpoints, in which query, key and
// value of the tower are one matrix.
func internChatSource(v *family.Vision, own func(string) family.Source) func(string) family.Source {
	return func(name string) family.Source {
		s := own(name)
		if strings.HasPrefix(name, family.VisualName+".") || strings.HasPrefix(name, "projector.") {
			joint, rows := family.FusedQKV(name, v.Tower.Hidden)
			s.Name, s.Rows = internChatNames.Replace(joint), rows
		}
		return s
	}
}

// internChatTower names the tower's parameters as InternViT's own repositories do.
func internChatTower(v *family.Vision) func(string) family.Source {
	own := internChatSource(v, internTowerSource(v))
	return func(name string) family.Source {
		s := own(name)
		s.Name = strings.TrimPrefix(s.Name, "vision_model.")
		return s
	}
}

// decoderSource maps the names of a composed model's decoder to those of its own family, at a prefix.
func decoderSource(c configs.Model) func(string) family.Source {
	own := family.Registered(c.Text).Build(c).Source
	return func(name string) family.Source {
		s := own(name)
		if c.Text == "gpt2" { // transformers 5 names all decoders alike here
			s.Name = strings.Replace(s.Name, "transformer.", "model.", 1)
		}
		s.Name = "language_model." + s.Name
		return s
	}
}

var _ = family.RegisterTower("internvl", family.Tower{Facts: configs.TowerKind{Sized: true,
	Has: []string{"use_qk_norm", "layer_scale_init_value"}, Check: func(m configs.Model, fault configs.Report) {
		if v := m.Vision; v.ImageSize%(v.Patch*v.Merge) != 0 {
			fault("image_size", fmt.Sprintf("%d is not a multiple of patch_size × merge = %d", v.ImageSize,
				v.Patch*v.Merge), "")
		}
	}},
	Loong: map[string]loong.Part{"InternVisionConfig": {Norms: true, Sized: true, Free: true,
		Preset: map[string]string{"image_size": "448", "projector": "internvl"}}},
	Projector: "internvl", Source: internTowerSource, Other: internChatTower,
	Build: func(c configs.Model) *family.Vision {
		t := family.BaseTower(c.Vision)
		t.PatchBias, t.Class, t.Scale, t.Taps, t.QKNorm = true, true, true, 1, wideNorms.Of(c).QKNorm
		side := c.Vision.ImageSize / c.Vision.Patch
		t.Positions = side*side + 1
		v := family.NewVision(c.Vision, t)
		v.Tile, v.FirstScale = c.Vision.ImageSize, scaledBranches.Of(c).First
		return v
	}})

// wideNormKeys adds the setting of towers that can norm queries and keys over all heads at once.
type wideNormKeys struct {
	QKNorm bool `key:"vision.use_qk_norm" default:"false" class:"fixed" doc:"RMS norm over the whole width of queries and keys."`
}

var wideNorms = configs.Declare("norms of a tower's queries and keys", configs.Rules[wideNormKeys]{})

// branchKeys adds the setting of towers whose branches are scaled by learned vectors.
type branchKeys struct {
	First float64 `key:"vision.layer_scale_init_value" default:"0.1" min:"0" class:"fixed" doc:"First value of the vectors that scale each branch, in towers that have them."`
}

var scaledBranches = configs.Declare("scaled branches of a tower", configs.Rules[branchKeys]{})

// internNames maps logical names of the tower to those of the published checkpoints for transformers.
var internNames = strings.NewReplacer("visual.blocks.", "encoder.layer.", "visual.cls_token",
	"embeddings.cls_token", "visual.pos_embed.weight", "embeddings.position_embeddings", "visual.patch_embed.proj",
	"embeddings.patch_embeddings.projection", ".attn.proj.", ".attention.projection_layer.", ".attn.",
	".attention.", ".norm1.", ".layernorm_before.", ".norm2.", ".layernorm_after.", ".scale1", ".lambda_1",
	".scale2", ".lambda_2")

// internTowerSource maps names to those of InternVL towers. The class token and the table of
// positions have a leading 1 there, and the patch embedding the shape of a convolution.
func internTowerSource(v *family.Vision) func(string) family.Source {
	return func(name string) family.Source { return classSource(v, internNames, name) }
}

// classSource is that of a tower with a class token.
func classSource(v *family.Vision, names *strings.Replacer, name string) family.Source {
	s := family.Source{Name: names.Replace(name)}
	switch name {
	case "visual.cls_token", "visual.pos_embed.weight":
		s.Lead = 1
	case "visual.patch_embed.proj.weight":
		s.Tail = []int{v.Channels, v.Patch, v.Patch}
	}
	return s
}
