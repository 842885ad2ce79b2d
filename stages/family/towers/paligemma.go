package towers

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// PaliGemma (arXiv:2407.07726): SigLIP's tower, one linear layer, and Gemma, in which what is seen and asked sees each
// other both ways. Names are those of transformers; its newer files, and lerobot's of Pi0-FAST, have others.
var _ = family.Register(family.Family{ModelType: "paligemma", Paper: "2407.07726",
	Composed: &hf.Composed{Class: "PaliGemmaForConditionalGeneration", Text: "gemma", Vision: map[string]string{
		"num_hidden_layers": "depth", "num_attention_heads": "num_heads", "num_channels": "in_channels",
		"projection_dim": "", "num_image_tokens": "", "num_positions": "", "projector_hidden_act": ""},
		Preset: map[string]string{"projector": `"linear"`, "merge": "1"}, Kinds: map[string]hf.TowerKeys{
			"siglip_vision_model": {Preset: map[string]string{"kind": `"siglip"`, "hidden_size": "1152",
				"intermediate_size": "4304", "depth": "27", "num_heads": "16", "image_size": "224", "patch_size": "14",
				"hidden_act": `"gelu_pytorch_tanh"`, "layer_norm_eps": "1e-6", "vision_use_head": "false"}}},
		Top: map[string]string{"image_token_index": "vision.image_token_id", "projection_dim": "", "hidden_size": "",
			"ignore_index": "", "pad_token_id": "", "bos_token_id": "", "eos_token_id": "", "num_hidden_layers": "",
			"vocab_size": "", "_vocab_size": ""}, Write: writePali}, Build: func(c configs.Model) *family.Model {
		spec := family.SpecOf(c)
		spec.Sees = family.SeesImages
		names := map[string]string{"projector.": "multi_modal_projector.linear."}
		build := func(tower string) *family.Model {
			return family.ComposedOf("paligemma", c, spec, tower, names, decoderSource(c))
		}
		m := build("vision_tower.vision_model.")
		m.Other = family.InTransformers(build("vision_tower.").Source, besideDecoder...)
		m.Source = family.InTransformers(m.Source, besideDecoder...)
		m.SeePrompts()
		m.Keep()
		return m
	}})

var _ = family.RegisterProjector("linear", family.ProjectorKind{
	Build: func(c configs.Model, t *block.Tower) family.Joiner { return linear{c.Hidden, t.Hidden} }})

// linear is a projector of one layer, of which each patch becomes a row.
type linear struct{ out, in int }

// Forward implements family.Joiner.
func (l linear) Forward(r *block.Rec, name string, x *grad.Value) *grad.Value {
	return r.Linear(name, x, l.out, l.in, block.LinearOpts{Bias: true, Rep: true})
}

// writePali writes the tower as transformers names it.
func writePali(m hf.Values, out map[string]any, _ func(string, any)) {
	out["vision_config"] = map[string]any{"model_type": "siglip_vision_model",
		"hidden_size": m["vision.hidden_size"], "intermediate_size": m["vision.intermediate_size"],
		"num_hidden_layers": m["vision.depth"], "num_attention_heads": m["vision.num_heads"],
		"num_channels": m["vision.in_channels"], "image_size": m["vision.image_size"],
		"patch_size": m["vision.patch_size"], "hidden_act": m["vision.hidden_act"],
		"layer_norm_eps": m["vision.layer_norm_eps"], "vision_use_head": m["vision.vision_use_head"],
		"projection_dim": m["hidden_size"]}
	for _, key := range []string{"image_token_id", "vision_start_token_id", "projector_hidden_act",
		"downsample_ratio"} {
		delete(out, key)
	}
	out["image_token_index"], out["projection_dim"] = m["vision.image_token_id"], m["hidden_size"]
}
