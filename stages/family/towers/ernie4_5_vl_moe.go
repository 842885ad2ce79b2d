package towers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// ERNIE 4.5 with images: a tower of Qwen2-VL's kind, a resampler that joins patches and pairs of frames, and
// ERNIE 4.5 with a second set of experts, which tokens of images go to, and positions on three axes of which
// height and width are dealt out in turns.
var _ = family.Register(family.Family{ModelType: "ernie4_5_vl_moe",
	Composed: &hf.Composed{Class: "Ernie4_5_VLMoeForConditionalGeneration", Text: ernieText,
		Vision: map[string]string{"spatial_merge_size": "merge", "rms_norm_eps": "layer_norm_eps"},
		Only:   map[string]string{"temporal_merge_size": "2"}, Preset: map[string]string{"kind": `"ernie_vit"`,
			"projector": `"ernie_resampler"`, "hidden_act": `"quick_gelu"`, "depth": "32", "hidden_size": "1280",
			"intermediate_size": "5120", "num_heads": "16", "patch_size": "14", "merge": "2", "layer_norm_eps": "1e-6"},
		Top: map[string]string{"image_start_token_id": "", "image_end_token_id": "", "video_start_token_id": "",
			"video_end_token_id": ""}, Rest: readErnieTokens, Write: writeErnie},
	Composition: loong.Composition{Name: "ernie4_5_vl", Encoder: "ernie_vit", Projector: "ernie_resampler",
		Decoders: []string{ernieText}, Sections: "[22, 22, 20]", Default: true, Tokens: map[string]map[string]string{
			"": {"image_token_id": "100295", "video_token_id": "103367", "vision_start_token_id": "101304"}}},
	Build: func(c configs.Model) *family.Model {
		layout := func(tower string, parts map[string]string, text func(string) family.Source) *family.Model {
			return family.ComposedModel("ernie4_5_vl_moe", c, tower, parts, text)
		}
		m := layout("vision_model.", map[string]string{"projector.": "model.resampler_model."},
			family.Registered(ernieText).Source(c))
		names := strings.NewReplacer("linear.fc1.", "linear.0.", "linear.fc2.", "linear.2.", "linear.ln.", "linear.3.")
		m.Source = renamed(family.InTransformers(m.Source, [2]string{"vision_model.", "model.vision_tower."},
			[2]string{"model.resampler_model.", "model.resampler_model."},
			[2]string{"model.", "model.language_model."}), names)
		// the latter if transformers writes
		m.Beginnings = [][2]string{{"vision_model.", "model.vision_model."}}
		m.Other = layout("model.vision_tower.", map[string]string{"projector.": "model.resampler_model."},
			below("model.language_model.", family.Registered(ernieText).Other(c))).Source
		return m
	}})

const ernieText = "ernie4_5_vl_moe_text"

// Its decoder. A model of text alone has positions on one axis, which are those of all three.
var _ = family.Register(family.Family{ModelType: ernieText,
	HF: hf.Family{Class: "Ernie4_5_VLMoeTextModel", Score: "softmax", Corrected: true,
		Has: []string{"num_experts", "num_experts_per_tok", "moe_intermediate_sizes", "n_shared_experts",
			"first_k_dense_replace", "router_aux_loss_coef", "output_router_logits", "image_expert_token_ids"},
		Alias: map[string]string{"moe_num_experts": "num_experts", "moe_k": "num_experts_per_tok",
			"moe_num_shared_experts": "n_shared_experts", "moe_intermediate_size": "moe_intermediate_sizes"},
		Only: map[string]string{"use_bias": "false", "moe_norm_min": "1e-12"},
		Omit: []string{"attention_bias"}, Idle: []string{"mlp_layer_types", "ignore_keys_at_rope_validation"},
		Absent: map[string]string{"hidden_size": "2560", "intermediate_size": "12288", "num_hidden_layers": "28",
			"num_attention_heads": "20", "num_key_value_heads": "4", "vocab_size": "103424",
			"max_position_embeddings": "131072", "rope_theta": "500000", "tie_word_embeddings": "true",
			"num_experts_per_tok": "6", "num_experts": "64", "moe_intermediate_sizes": "[1536, 512]",
			"n_shared_experts": "2", "router_aux_loss_coef": "0.001"}, Read: readErnieLayers, Write: writeErnieLayers},
	Loong: []loong.Decoder{{Class: "ErnieMoeConfig", Mixed: true, Preset: map[string]string{
		"rope_theta": "500000", "first_k_dense_replace": "1",
		"image_expert_token_ids": "[101304, 101305, 101306, 101307]"},
		Keys: map[string]string{"num_moe_experts": "num_experts",
			"moe_num_shared_experts": "n_shared_experts",
			"moe_intermediate_size":  "moe_intermediate_sizes", "im_patch_id": "vision.image_token_id",
			"moe_layer_end_index": "", "gated_linear_unit": "", "moe_router_pre_softmax": "",
			"qk_layernorm": ""}, // which its layers do not have, whatever the file says
		Only: map[string][]string{"dense_layer_index": {"0"}, "moe_layer_start_index": {"1 1"},
			"normalization": {"Torch_RMSNorm"}}}},
	Spec: func(c configs.Model, s *family.Spec) {
		s.RopePairs, s.Rope.Turns = true, heightAndWidthInTurns
		k, own := family.Mixture.Of(c), family.ImageExperts.Of(c)
		k.ExpertWidth = own.ExpertWidths[0]
		family.Mixture.Set(&c, k)
		s.UseExperts(c, family.DenseFirst(c))
		s.Experts.Bias = "gate." + family.Correction
		s.Experts.Router = routing.Router{Normalize: true, Floor: true, Eps: 1e-12}
		images := s.Experts
		images.Inter, images.Shared = own.ExpertWidths[1], block.Gated{}
		s.Experts.Images, s.ImageTokens = &images, own.ImageTokens
	},
	Source: ernieEach,
	Other: func(c configs.Model) func(string) family.Source {
		return func(name string) family.Source {
			kind, of := 0, ".mlp.text_moe."
			if strings.Contains(name, ".mlp"+block.ImageExperts+".") {
				kind, of = 1, ".mlp.vision_moe."
				name = strings.Replace(name, ".mlp"+block.ImageExperts+".", ".mlp.", 1)
			}
			names := strings.NewReplacer(".mlp.gate."+family.Correction, of+"gate.moe_statics."+family.Correction,
				".mlp.gate.", of+"gate.", ".mlp.experts.", of+"experts.")
			width := family.ImageExperts.Of(c).ExpertWidths[kind]
			return family.ExpertPlaces{Width: width, Lead: true, Rename: names}.Source(name)
		}
	}})

// heightAndWidthInTurns: the first frequencies turn with height and width in turns, the last with time.
func heightAndWidthInTurns(sections []int) []int32 {
	axis := make([]int32, 0, sections[0]+sections[1]+sections[2])
	for range sections[0] {
		axis = append(axis, 1, 2)
	}
	return append(axis, make([]int32, sections[2])...)
}

// ernieEach is where parameters lie in published checkpoints: experts one by one, those for images behind
// those for texts, and routers as [in out].
func ernieEach(c configs.Model) func(string) family.Source {
	return func(name string) family.Source {
		plain := strings.Replace(name, ".mlp"+block.ImageExperts+".", ".mlp.", 1)
		images := plain != name
		s := family.ExpertPlaces{Stack: true, Lead: true, Rename: strings.NewReplacer(".mlp.gate."+family.Correction,
			".mlp.moe_statics."+family.Correction)}.Source(plain)
		switch {
		case strings.HasSuffix(plain, family.Correction):
			s.Of = 2
			if images {
				s.Nth = 1
			}
		case strings.HasSuffix(plain, ".mlp.gate.weight"):
			if s.Turned = true; images {
				s.Name += "_1"
			}
		case s.Stack && images:
			s.First = family.Mixture.Of(c).Experts
		}
		return s
	}
}

// renamed gives tensors other names.
func renamed(source func(string) family.Source, names *strings.Replacer) func(string) family.Source {
	return func(name string) family.Source {
		s := source(name)
		s.Name = names.Replace(s.Name)
		return s
	}
}

// readErnieLayers reads which layers have experts, and the frequencies of each axis.
func readErnieLayers(d *hf.Decoder, raw map[string]json.RawMessage) {
	dense := 1
	var kinds []string
	if text := raw["mlp_layer_types"]; text != nil && string(text) != "null" {
		if json.Unmarshal(text, &kinds) != nil {
			d.Fail("mlp_layer_types", "is not a list of words", "")
			return
		}
		if dense = slices.Index(kinds, "sparse"); dense < 0 {
			dense = len(kinds)
		}
		for i, kind := range kinds {
			if i < dense && kind != "dense" || i >= dense && kind != "sparse" {
				d.Fail("mlp_layer_types", fmt.Sprintf("layer %d is %q: the first layers can be dense, "+
					"and all others sparse", i, kind), "")
				return
			}
		}
	}
	d.Set("first_k_dense_replace", fmt.Sprint(dense))
	var rope struct {
		Section []int `json:"mrope_section"`
	}
	_ = json.Unmarshal(raw["rope_parameters"], &rope) // reported where the key itself is read
	if rope.Section == nil && raw["rope_scaling"] == nil {
		d.Set("rope_scaling", `{"rope_type": "default", "mrope_section": [22, 22, 20]}`)
	}
}

// writeErnieLayers writes which layers have experts in the form of the published files, a kind for
// each layer, which replaces the number of dense layers.
func writeErnieLayers(m hf.Values, out map[string]any) {
	kinds := make([]string, m.Int("num_hidden_layers"))
	for i := range kinds {
		if kinds[i] = "sparse"; i < m.Int("first_k_dense_replace") {
			kinds[i] = "dense"
		}
	}
	out["mlp_layer_types"] = kinds
	delete(out, "first_k_dense_replace")
	delete(out, "image_expert_token_ids")
}

// ernieTokens are the keys of tokens, with what transformers takes where a file leaves them out: those that
// begin and end images and videos, and those of features.
var ernieTokens = []struct {
	key string
	id  int
}{{"image_start_token_id", 101304}, {"image_end_token_id", 101305}, {"video_start_token_id", 101306},
	{"video_end_token_id", 101307}, {"image_token_id", 100295}, {"video_token_id", 103367}}

// readErnieTokens reads the tokens that mark images and videos, with the published ones where the
// file has none. Anything but a whole number is a fault of the file.
func readErnieTokens(d *hf.Decoder, raw, _ map[string]json.RawMessage) {
	ids := make([]int, len(ernieTokens))
	for i, t := range ernieTokens {
		ids[i] = t.id
		if raw[t.key] != nil && json.Unmarshal(raw[t.key], &ids[i]) != nil {
			d.Fail(t.key, string(raw[t.key])+" is not a whole number", "")
			return
		}
	}
	edges, err := json.Marshal(ids[:4])
	if err != nil {
		panic(fmt.Sprintf("family: whole numbers cannot be JSON: %v", err))
	}
	d.Set("image_expert_token_ids", string(edges))
	d.Set("vision.vision_start_token_id", fmt.Sprint(ids[0]))
	d.Set("vision.image_token_id", fmt.Sprint(ids[4]))
	d.Set("vision.video_token_id", fmt.Sprint(ids[5]))
}

// writeErnie puts the settings of model and tower back to where the published files have them.
func writeErnie(m hf.Values, out map[string]any, put func(string, any)) {
	for i, id := range m["image_expert_token_ids"].([]int) {
		out[ernieTokens[i].key] = id
	}
	delete(out, "vision_start_token_id")
	put("merge", m["vision.merge"])
	put("patch_size", m["vision.patch_size"])
	put("intermediate_size", m["vision.intermediate_size"])
	put("layer_norm_eps", m["vision.layer_norm_eps"])
	vision := out["vision_config"].(map[string]any)
	vision["model_type"], vision["temporal_merge_size"] = "ernie4_5_vl_moe_vision", 2
}

// ERNIE's tower: Qwen2-VL's with a norm behind the last layer, and patches of one frame.
var _ = family.RegisterTower("ernie_vit", family.Tower{Facts: configs.TowerKind{Turns: true},
	Projector: "ernie_resampler",
	Loong: map[string]loong.Part{"ErnieVisionConfig": {Preset: map[string]string{"hidden_act": "quick_gelu",
		"temporal_patch_size": "1"}, Keys: map[string]string{"embed_dim": "hidden_size", "hidden_size": "",
		"rms_norm_eps": "layer_norm_eps", "group_query_attention": "", "resampler_hidden_in": "",
		"resampler_hidden_out": ""}, Only: map[string][]string{"mlp_ratio": {"4", "4.0"}, "temporal_merge_size": {"2"},
		"use_temporal_conv": {"True", "true"}, "model_type": {"ernie4_5_vit"}}}},
	Source: func(v *family.Vision) func(string) family.Source {
		inner := family.FusedSource(v)
		return func(name string) family.Source {
			s := inner(name)
			s.Name, s.Tail = strings.Replace(s.Name, "post_norm.", "ln.", 1), nil
			return s
		}
	},
	Build: func(c configs.Model) *family.Vision {
		t := family.BaseTower(c.Vision)
		t.Theta, t.PostNorm = 10000, true
		return family.NewVision(c.Vision, t)
	}})

var _ = family.RegisterProjector("ernie_resampler", family.ProjectorKind{
	Loong: map[string]loong.Part{"ErnieAdapterConfig": {Only: map[string][]string{
		"rms_norm_eps": {"1e-5", "1e-05"}, "model_type": {"ernie4_5_adapter"}}}},
	Build: func(c configs.Model, t *block.Tower) family.Joiner {
		t.Paired = true
		return &block.Resampler{Tower: t, Out: c.Hidden, Eps: c.Vision.Eps, RMS: c.NormEps}
	}})
