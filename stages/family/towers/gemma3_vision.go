package towers

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Gemma 3 with images: SigLIP's tower, means of squares of its patches, and the language model, in which the
// tokens of an image see each other both ways. Names are those of transformers 5; older checkpoints have the
// tower below vision_model.
var _ = family.Register(family.Family{ModelType: "gemma3", Paper: "2503.19786", Composed: &hf.Composed{
	Class: "Gemma3ForConditionalGeneration", Text: "gemma3_text", Vision: map[string]string{
		"num_hidden_layers": "depth", "num_attention_heads": "num_heads", "num_channels": "in_channels"},
	Preset: map[string]string{"projector": `"gemma3"`, "projector_hidden_act": `"gelu"`},
	Kinds: map[string]hf.TowerKeys{"siglip_vision_model": {Preset: map[string]string{"kind": `"siglip"`,
		"hidden_size": "768", "intermediate_size": "3072", "depth": "12", "num_heads": "12",
		"image_size": "224", "patch_size": "16", "hidden_act": `"gelu_pytorch_tanh"`, "layer_norm_eps": "1e-6",
		"vision_use_head": "true"}}}, Top: map[string]string{"image_token_index": "vision.image_token_id",
		"boi_token_index": "vision.vision_start_token_id", "eoi_token_index": "", "mm_tokens_per_image": ""},
	Rest: gemmaFeatures, Write: writeGemma}, Build: func(c configs.Model) *family.Model {
	names := map[string]string{"projector.": "multi_modal_projector."}
	spec := family.SpecOf(c)
	spec.Sees = family.SeesImages // the composition's own mask: behind other towers the decoder is causal
	build := func(tower string) *family.Model {
		return family.ComposedOf("gemma3", c, spec, tower, names, decoderSource(c))
	}
	m := build("vision_tower.")
	m.Other = gemmaProjector(build("vision_tower.vision_model.").Source)
	m.Source = gemmaProjector(m.Source)
	m.Source, m.Other = family.InTransformers(m.Source, besideDecoder...), family.InTransformers(m.Other,
		besideDecoder...)
	m.See()
	m.Keep()
	return m
}})

var _ = family.RegisterProjector("gemma3", family.ProjectorKind{
	Build: func(c configs.Model, t *block.Tower) family.Joiner {
		return &block.Pool{Tower: t, Out: c.Hidden, Norm: block.Norm{Eps: c.Vision.Eps, Plus: 1}}
	}})

// gemmaProjector names the parts of the projector, whose matrix the checkpoint keeps as [tower decoder].
func gemmaProjector(own func(string) family.Source) func(string) family.Source {
	return func(name string) family.Source {
		s := own(name)
		switch name {
		case "projector.norm.weight":
			s.Name = "multi_modal_projector.mm_soft_emb_norm.weight"
		case "projector.proj.weight":
			s.Name, s.Turned = "multi_modal_projector.mm_input_projection_weight", true
		}
		return s
	}
}

// gemmaFeatures reads how many features an image has, and its marks.
func gemmaFeatures(d *hf.Decoder, raw, vision map[string]json.RawMessage) {
	type marks struct {
		First  int `key:"boi_token_index" min:"0"`
		Last   int `key:"eoi_token_index" min:"0"`
		Tokens int `key:"mm_tokens_per_image"`
		Image  int `key:"image_token_index" min:"0"`
	}
	type sizes struct {
		Image int `key:"image_size" min:"1"`
		Patch int `key:"patch_size" min:"1"`
	}
	k, marked := hf.Typed(d, raw, "", marks{255999, 256000, 256, 262144})
	v, sized := hf.Typed(d, vision, "vision_config", sizes{224, 16})
	if !marked || !sized {
		return
	}
	if k.Last != k.First+1 {
		d.Fail("eoi_token_index", fmt.Sprintf("%d, only the token behind boi_token_index, %d, can be "+
			"trained", k.Last, k.First+1), "")
	}
	patches := v.Image / v.Patch
	side := int(math.Round(math.Sqrt(float64(max(k.Tokens, 0)))))
	if side < 1 || side*side != k.Tokens || patches%side != 0 {
		d.Fail("mm_tokens_per_image", fmt.Sprintf("%d, want a square number whose root divides the "+
			"%d patches of an image's side", k.Tokens, patches), "")
		return
	}
	d.Set("vision.merge", fmt.Sprint(patches/side))
	d.Set("vision.vision_start_token_id", fmt.Sprint(k.First))
	d.Set("vision.image_token_id", fmt.Sprint(k.Image))
}

// writeGemma writes the tower and its features as transformers names them.
func writeGemma(m hf.Values, out map[string]any, _ func(string, any)) {
	side := m.Int("vision.image_size") / max(1, m.Int("vision.patch_size")) / max(1, m.Int("vision.merge"))
	out["vision_config"] = map[string]any{"model_type": "siglip_vision_model",
		"hidden_size": m["vision.hidden_size"], "intermediate_size": m["vision.intermediate_size"],
		"num_hidden_layers": m["vision.depth"], "num_attention_heads": m["vision.num_heads"],
		"num_channels": m["vision.in_channels"], "image_size": m["vision.image_size"],
		"patch_size": m["vision.patch_size"], "hidden_act": m["vision.hidden_act"],
		"layer_norm_eps": m["vision.layer_norm_eps"], "vision_use_head": m["vision.vision_use_head"]}
	for _, key := range []string{"image_token_id", "vision_start_token_id", "projector_hidden_act",
		"downsample_ratio"} {
		delete(out, key)
	}
	first := m.Int("vision.vision_start_token_id")
	out["image_token_index"], out["boi_token_index"], out["eoi_token_index"] = m["vision.image_token_id"], first,
		first+1
	out["mm_tokens_per_image"] = side * side
}
