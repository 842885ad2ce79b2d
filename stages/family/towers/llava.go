package towers

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/stages/family"
)

// LLaVA: the patches of an inner layer of a tower (CLIP's, SigLIP's, DINOv2's), two linear layers, and a decoder of
// another family. Names are those of transformers 5; older checkpoints have the tower below vision_model.
var _ = family.Register(family.Family{ModelType: "llava", Paper: "2304.08485, 2310.03744", Composed: llavaConfig,
	Build: func(c configs.Model) *family.Model {
		m := family.ComposedModel("llava", c, "vision_tower.", linearProjector, decoderSource(c))
		m.Other = family.ComposedModel("llava", c, "vision_tower.vision_model.", linearProjector,
			decoderSource(c)).Source
		m.Source, m.Other = family.InTransformers(m.Source, besideDecoder...),
			family.InTransformers(m.Other, besideDecoder...)
		m.Vision.Tower.PostNorm = false // features are taken before it
		m.Keep()
		return m
	}})

// llavaConfig: what config.json leaves out are transformers' defaults.
var llavaConfig = &hf.Composed{Class: "LlavaForConditionalGeneration", EitherTies: true,
	Vision: map[string]string{"num_hidden_layers": "depth", "num_attention_heads": "num_heads",
		"num_channels": "in_channels", "projection_dim": "", "vocab_size": "", "initializer_factor": ""},
	Preset: map[string]string{"projector": `"mlp"`, "merge": "1"},
	Kinds:  map[string]hf.TowerKeys{}, // registerLlavaTower fills it
	Top: map[string]string{"image_token_index": "vision.image_token_id", "vision_feature_layer": "",
		"vision_feature_select_strategy": "", "multimodal_projector_bias": "", "ignore_index": "", "pad_token_id": "",
		"vocab_size": ""}, Rest: llavaFeatures, Write: writeLlava}

// llavaTower is what LLaVA's config.json says of a kind of tower.
type llavaTower struct {
	Strategy string // the choice of features that leaves patches alone: "default" drops the first row
	Keys     hf.TowerKeys
	Read     func(d *hf.Decoder, vision map[string]json.RawMessage) // what names alone do not say; or nil
	Write    func(m hf.Values, vision map[string]any)               // likewise
}

// llavaTowers are the towers by model_type of vision_config.
var llavaTowers = map[string]llavaTower{}

// registerLlavaTower enters a tower that LLaVA models may have, under its model type. It is called
// when the package is initialized; the result lets it stand in a variable.
func registerLlavaTower(modelType string, t llavaTower) struct{} {
	llavaTowers[modelType], llavaConfig.Kinds[modelType] = t, t.Keys
	return struct{}{}
}

// llavaFeatures reads which features the decoder gets.
func llavaFeatures(d *hf.Decoder, raw, vision map[string]json.RawMessage) {
	var tower string
	_ = json.Unmarshal(vision["model_type"], &tower) // another type names no tower
	kind, known := llavaTowers[tower]
	if !known {
		return // visionKeys says so
	}
	if kind.Read != nil {
		kind.Read(d, vision)
	}
	want := kind.Strategy
	layer, bias := json.RawMessage("-2"), true
	if v, ok := raw["vision_feature_layer"]; ok {
		layer = v
	}
	var n int
	var list []json.RawMessage
	if json.Unmarshal(layer, &list) == nil && len(list) == 1 {
		layer = list[0] // the same features
	}
	if err := json.Unmarshal(layer, &n); err != nil || n == 0 {
		d.Fail("vision_feature_layer", fmt.Sprintf("%s, only the output of one layer can be projected",
			hf.Compact(layer)), "")
	} else {
		d.Set("vision.vision_feature_layer", hf.Compact(layer))
	}
	type keys struct {
		Strategy string `key:"vision_feature_select_strategy"`
	}
	if k, ok := hf.Typed(d, raw, "", keys{"default"}); ok && k.Strategy != want {
		d.Fail("vision_feature_select_strategy", fmt.Sprintf("%s, only %s can be trained with %s",
			source.Quoted(k.Strategy), want, tower), "")
	}
	if v, ok := raw["multimodal_projector_bias"]; ok && (json.Unmarshal(v, &bias) != nil || !bias) {
		d.Fail("multimodal_projector_bias", string(v)+", only true can be trained", "")
	}
}

// writeLlava writes the tower and its features as transformers names them.
func writeLlava(m hf.Values, out map[string]any, _ func(string, any)) {
	tower := hf.Tower(hf.ComposedFamilies["llava"], m.Text("vision.kind"))
	vision := map[string]any{"model_type": tower, "hidden_size": m["vision.hidden_size"],
		"intermediate_size": m["vision.intermediate_size"], "num_hidden_layers": m["vision.depth"],
		"num_attention_heads": m["vision.num_heads"], "num_channels": m["vision.in_channels"],
		"image_size": m["vision.image_size"], "patch_size": m["vision.patch_size"],
		"hidden_act": m["vision.hidden_act"], "layer_norm_eps": m["vision.layer_norm_eps"]}
	kind := llavaTowers[tower]
	if kind.Write != nil {
		kind.Write(m, vision)
	}
	layer, side := m.Int("vision.vision_feature_layer"), m.Int("vision.image_size")/max(1, m.Int("vision.patch_size"))
	if layer == 0 {
		layer = -1
	}
	if text, ok := out["text_config"].(map[string]any); ok {
		text["model_type"] = m["text_model_type"]
	}
	delete(out, "image_token_id")
	out["vision_config"], out["image_token_index"], out["projector_hidden_act"],
		out["multimodal_projector_bias"] = vision, m["vision.image_token_id"], m["vision.projector_hidden_act"], true
	out["vision_feature_layer"], out["vision_feature_select_strategy"], out["image_seq_length"] = layer,
		kind.Strategy, side*side
}

// CLIP (arXiv:2103.00020): images of one size, a class token that is not a feature, a table of positions, a
// norm before the first layer; one behind the last is for the class token alone.
var _ = family.RegisterTower("clip", family.Tower{Facts: configs.TowerKind{Sized: true, Check: wholePatches},
	Projector: "mlp", Source: clipSource, Build: func(c configs.Model) *family.Vision {
		t := family.BaseTower(c.Vision)
		t.Class, t.PreNorm, t.Taps = true, true, 1
		side := c.Vision.ImageSize / c.Vision.Patch
		t.Positions = side*side + 1
		v := family.NewVision(c.Vision, t)
		v.Tile = c.Vision.ImageSize
		return v
	}})

var _ = registerLlavaTower("clip_vision_model", llavaTower{Strategy: "default",
	Keys: hf.TowerKeys{Preset: map[string]string{"kind": `"clip"`, "hidden_size": "768",
		"intermediate_size": "3072", "depth": "12", "num_heads": "12", "image_size": "224",
		"patch_size": "32", "hidden_act": `"quick_gelu"`, "layer_norm_eps": "1e-5"}}})

var clipNames = strings.NewReplacer("visual.pre_norm.", "pre_layrnorm.")

// clipSource names the tower's parameters as transformers' CLIPVisionModel does, which SigLIP's follows.
func clipSource(v *family.Vision) func(string) family.Source {
	inner := siglipSource(v)
	return func(name string) family.Source {
		if name == family.VisualName+".cls_token" {
			return family.Source{Name: "embeddings.class_embedding", Flat: true}
		}
		s := inner(name)
		s.Name = clipNames.Replace(s.Name)
		return s
	}
}
