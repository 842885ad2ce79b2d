package loong

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hydra"
	"github.com/lfactor/lfactor/configs/source"
)

// composition is a family of composed models: what LoongForge calls it, and what it is made of.
type composition struct {
	family    string
	encoder   string
	projector string
	decoders  []string
	tokens    map[string]map[string]string // by decoder, "" for any: our keys of token ids
	sections  string                       // of M-RoPE, "" for plain positions
	weave     bool                         // the sections are dealt out in turns
}

var qwenVLTokens = map[string]map[string]string{"": {"image_token_id": "151655", "video_token_id": "151656", "vision_start_token_id": "151652"}}

// compositions are the families by LoongForge's model_type.
var compositions = map[string]composition{
	"qwen2_vl":     {family: "qwen2_vl", encoder: "qwen2_vl", projector: "merger", decoders: []string{"qwen2"}, tokens: qwenVLTokens, sections: "[16, 24, 24]"},
	"qwen2_5_vl":   {family: "qwen2_5_vl", encoder: "qwen2_5_vl", projector: "merger", decoders: []string{"qwen2"}, tokens: qwenVLTokens, sections: "[16, 24, 24]"},
	"qwen3_vl":     {family: "qwen3_vl", encoder: "qwen3_vl", projector: "merger", decoders: []string{"qwen3"}, tokens: qwenVLTokens, sections: "[24, 20, 20]", weave: true},
	"llava_ov_1_5": {family: "llava_onevision1_5", encoder: "rice", projector: "merger", decoders: []string{"qwen3"}, tokens: qwenVLTokens},
	"intern_vl": {family: "internvl", encoder: "internvl", projector: "internvl", decoders: []string{"internlm2", "llama", "qwen2", "qwen3"},
		tokens: map[string]map[string]string{"internlm2": {"image_token_id": "92546"}, "qwen2": {"image_token_id": "151667"}, "qwen3": {"image_token_id": "151671"}}},
}

// customFamily is the pair of any encoder with any dense decoder.
const customFamily = "vlm"

// family chooses the family that the parts make up, with what follows from it.
func (v *vlm) family() {
	name := v.m.Text("model_type")
	o := v.m.O
	if kid := v.m.At("model_type"); kid != nil {
		o = kid.O
	}
	if why := unbuilt[name]; why != "" {
		v.l.Sink.Fail(o, "model.model_type", why, "")
		return
	}
	c, known := compositions[name]
	fits := known && c.encoder == v.encoder.kind && c.projector == v.projector.kind && slices.Contains(c.decoders, v.text)
	switch {
	case fits:
	case name == "":
		v.l.Sink.Fail(v.top, "model.model_type", "is not given", source.OneOf(append(source.SortedKeys(compositions), customFamily)))
		return
	default:
		if name != customFamily {
			v.l.Sink.Note(fmt.Sprintf("%s: model.model_type: %s, but the parts are %s, %s and %s: a pair of your own (%s), with plain positions",
				o, name, v.encoder.kind, v.projector.kind, v.text, customFamily))
		}
		c = composition{family: customFamily}
		if tokens := qwenVLTokens[""]; v.text == "qwen2" || v.text == "qwen3" {
			c.tokens = map[string]map[string]string{"": tokens}
		}
	}
	v.set(source.ModelKeys+".model_type", source.ScalarNode(c.family), o)
	for _, decoder := range []string{"", v.text} {
		for _, key := range source.SortedKeys(c.tokens[decoder]) {
			v.preset(visionKey+key, c.tokens[decoder][key], v.m)
		}
	}
	if id := v.m.At("vision_token_id"); id != nil && id.Scalar() {
		v.set(visionKey+"image_token_id", id.Value, id.O)
	}
	v.positions(c)
}

// unbuilt are kinds of composed models that cannot be trained, with the reason.
var unbuilt = map[string]string{
	"qwen3_5": "layers of linear attention are not part of dense families", "kimi_k2_5": "Kimi's decoder is a mixture of experts with latent attention, no dense family",
	"kimi_k2_6": "Kimi's decoder is a mixture of experts with latent attention, no dense family", "ernie4_5_vl": "Ernie's decoder is a mixture of experts, no dense family",
	"minicpm_v_4_6": "layers of linear attention are not part of dense families",
}

// positions enters how the decoder's rotary embedding turns: M-RoPE's sections, or InternLM's dynamic base.
func (v *vlm) positions(c composition) {
	const key = source.ModelKeys + ".rope_scaling"
	switch sections := v.fd.At("mrope_section"); {
	case c.sections != "":
		text, at := c.sections, v.m
		if sections != nil && sections.Value != nil && !sections.Null() {
			text, at = formatNode(sections), sections
		}
		kind := "rope_type: mrope, "
		if c.weave {
			kind = "rope_type: default, mrope_interleaved: true, "
		}
		node, err := source.ParseValue("{" + kind + "mrope_section: " + text + "}")
		if err != nil {
			v.l.Sink.Fail(at.O, "model.foundation.mrope_section", source.Quoted(text)+", want a list of three numbers", "")
			return
		}
		v.set(key, node, at.O)
	case strings.HasPrefix(v.fd.Text("rotary_emb_func"), "Dynamic") && v.text == "internlm2":
		factor := "2" // InternLM2.5's own: 2 with a base of 1e6, 2.5 with 5e7
		if source.SameValue(v.fd.Text("rotary_base"), "5e7") {
			factor = "2.5"
		}
		if v.l.RopeFactor != "" {
			factor, v.l.RopeFactor = v.l.RopeFactor, ""
		}
		node, err := source.ParseValue("{rope_type: dynamic, factor: " + factor + "}")
		if err != nil {
			v.l.Sink.Fail(source.Origin{Layer: source.LayerFlag, Text: "--rope-scaling-factor"}, key, source.Quoted(factor)+", want a number", "")
			return
		}
		o := v.fd.At("rotary_emb_func").O
		o.Layer = source.LayerModel
		v.set(key, node, o)
	}
}

// formatNode writes a list of plain values, or a value.
func formatNode(n *hydra.Node) string {
	var words []string
	for _, item := range n.Value.Content {
		words = append(words, item.Value)
	}
	if len(words) == 0 {
		return n.Value.Value
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// lora enters peft_config: low-rank additions to the parts that it applies to.
func (v *vlm) lora() {
	peft := v.m.At("peft_config")
	if peft == nil || peft.Kids == nil {
		return
	}
	var sorts []linears
	if peft.On("apply_to_foundation") {
		sorts = append(sorts, linears{"model.layers.*.", decoderLinears.parts})
	}
	if peft.On("apply_to_image_encoder") {
		parts := map[string][]string{"linear_qkv": {"q_proj", "k_proj", "v_proj"}, "linear_proj": {"attn.proj"}, "linear_fc1": {"fc1"}, "linear_fc2": {"fc2"}}
		if v.encoder.gated {
			parts["linear_fc1"], parts["linear_fc2"] = []string{"gate_proj", "up_proj"}, []string{"down_proj"}
		}
		sorts = append(sorts, linears{"visual.blocks.*.", parts})
	}
	if peft.On("apply_to_image_projector") {
		sorts = append(sorts, linears{"projector.", map[string][]string{"linear_qkv": {}, "linear_proj": {}, "linear_fc1": {"fc1"}, "linear_fc2": {"fc2"}}})
	}
	if len(sorts) == 0 {
		v.l.Sink.Fail(peft.O, "model.peft_config", "applies to no part", "set apply_to_foundation: true")
		return
	}
	v.l.lora(peft, "model.peft_config.", sorts...)
}
