package configs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// loongComposition is a family of composed models: what LoongForge calls it, and what it is made of.
type loongComposition struct {
	family    string
	encoder   string
	projector string
	decoders  []string
	tokens    map[string]map[string]string // by decoder, "" for any: our keys of token ids
	sections  string                       // of M-RoPE, "" for plain positions
	weave     bool                         // the sections are dealt out in turns
}

var qwenVLTokens = map[string]map[string]string{"": {"image_token_id": "151655", "video_token_id": "151656", "vision_start_token_id": "151652"}}

// loongCompositions are the families by LoongForge's model_type.
var loongCompositions = map[string]loongComposition{
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
func (v *loongVLM) family() {
	name := v.m.text("model_type")
	o := v.m.o
	if kid := v.m.at("model_type"); kid != nil {
		o = kid.o
	}
	if why := loongUnbuilt[name]; why != "" {
		v.l.fail(o, "model.model_type", why, "")
		return
	}
	c, known := loongCompositions[name]
	fits := known && c.encoder == v.encoder.kind && c.projector == v.projector.kind && slices.Contains(c.decoders, v.text)
	switch {
	case fits:
	case name == "":
		v.l.fail(v.top, "model.model_type", "is not given", oneOf(append(sortedKeys(loongCompositions), customFamily)))
		return
	default:
		if name != customFamily {
			v.l.c.Notices = append(v.l.c.Notices, fmt.Sprintf("%s: model.model_type: %s, but the parts are %s, %s and %s: a pair of your own (%s), with plain positions",
				o, name, v.encoder.kind, v.projector.kind, v.text, customFamily))
		}
		c = loongComposition{family: customFamily}
		if tokens := qwenVLTokens[""]; v.text == "qwen2" || v.text == "qwen3" {
			c.tokens = map[string]map[string]string{"": tokens}
		}
	}
	v.set(overrides+".model_type", scalarNode(c.family), o)
	for _, decoder := range []string{"", v.text} {
		for _, key := range sortedKeys(c.tokens[decoder]) {
			v.preset(visionKey+key, c.tokens[decoder][key], v.m)
		}
	}
	if id := v.m.at("vision_token_id"); id != nil && id.scalar() {
		v.set(visionKey+"image_token_id", id.value, id.o)
	}
	v.positions(c)
}

// loongUnbuilt are kinds of composed models that cannot be trained, with the reason.
var loongUnbuilt = map[string]string{
	"qwen3_5": "layers of linear attention are not part of dense families", "kimi_k2_5": "Kimi's decoder is a mixture of experts with latent attention, no dense family",
	"kimi_k2_6": "Kimi's decoder is a mixture of experts with latent attention, no dense family", "ernie4_5_vl": "Ernie's decoder is a mixture of experts, no dense family",
	"minicpm_v_4_6": "layers of linear attention are not part of dense families",
}

// positions enters how the decoder's rotary embedding turns: M-RoPE's sections, or InternLM's dynamic base.
func (v *loongVLM) positions(c loongComposition) {
	const key = overrides + ".rope_scaling"
	switch sections := v.fd.at("mrope_section"); {
	case c.sections != "":
		text, at := c.sections, v.m
		if sections != nil && sections.value != nil && !sections.null() {
			text, at = formatNode(sections), sections
		}
		kind := "rope_type: mrope, "
		if c.weave {
			kind = "rope_type: default, mrope_interleaved: true, "
		}
		node, err := parseValue("{" + kind + "mrope_section: " + text + "}")
		if err != nil {
			v.l.fail(at.o, "model.foundation.mrope_section", quoted(text)+", want a list of three numbers", "")
			return
		}
		v.set(key, node, at.o)
	case strings.HasPrefix(v.fd.text("rotary_emb_func"), "Dynamic") && v.text == "internlm2":
		factor := "2" // InternLM2.5's own: 2 with a base of 1e6, 2.5 with 5e7
		if sameValue(v.fd.text("rotary_base"), "5e7") {
			factor = "2.5"
		}
		if v.l.ropeFactor != "" {
			factor, v.l.ropeFactor = v.l.ropeFactor, ""
		}
		node, err := parseValue("{rope_type: dynamic, factor: " + factor + "}")
		if err != nil {
			v.l.fail(Origin{Layer: LayerFlag, Text: "--rope-scaling-factor"}, key, quoted(factor)+", want a number", "")
			return
		}
		o := v.fd.at("rotary_emb_func").o
		o.Layer = LayerModel
		v.set(key, node, o)
	}
}

// formatNode writes a list of plain values, or a value.
func formatNode(n *hydraNode) string {
	var words []string
	for _, item := range n.value.Content {
		words = append(words, item.Value)
	}
	if len(words) == 0 {
		return n.value.Value
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// lora enters peft_config: low-rank additions to the parts that it applies to.
func (v *loongVLM) lora() {
	peft := v.m.at("peft_config")
	if peft == nil || peft.kids == nil {
		return
	}
	var sorts []loongTargets
	if peft.on("apply_to_foundation") {
		sorts = append(sorts, loongTargets{"model.layers.*.", loongDecoderTargets.parts})
	}
	if peft.on("apply_to_image_encoder") {
		parts := map[string][]string{"linear_qkv": {"q_proj", "k_proj", "v_proj"}, "linear_proj": {"attn.proj"}, "linear_fc1": {"fc1"}, "linear_fc2": {"fc2"}}
		if v.encoder.gated {
			parts["linear_fc1"], parts["linear_fc2"] = []string{"gate_proj", "up_proj"}, []string{"down_proj"}
		}
		sorts = append(sorts, loongTargets{"visual.blocks.*.", parts})
	}
	if peft.on("apply_to_image_projector") {
		sorts = append(sorts, loongTargets{"projector.", map[string][]string{"linear_qkv": {}, "linear_proj": {}, "linear_fc1": {"fc1"}, "linear_fc2": {"fc2"}}})
	}
	if len(sorts) == 0 {
		v.l.fail(peft.o, "model.peft_config", "applies to no part", "set apply_to_foundation: true")
		return
	}
	v.l.loongLoRA(peft, "model.peft_config.", sorts...)
}

// componentRate is a learning rate of one part.
type componentRate struct {
	part string // as in optimizer.<part>_lr_scale
	setting
}

// componentRates turns learning rates of parts into factors on optimizer.lr, and gives the encoder ranks of its own kind if
// its tensor parallelism differs from the decoder's.
func (l *loader) componentRates() {
	r := &l.c.Run
	for _, rate := range l.rates {
		x, err := strconv.ParseFloat(rate.node.Value, 64)
		if err != nil || x < 0 || r.Optimizer.LR == 0 {
			l.fail(rate.origin, rate.key.Name, fmt.Sprintf("%s, want a learning rate of at least 0, with optimizer.lr above 0", quoted(rate.node.Value)), "")
			continue
		}
		l.settle("optimizer."+rate.part+"_lr_scale", formatFloat(x/r.Optimizer.LR), rate.origin)
	}
	if o := l.c.Origin("plan.encoder.tp"); o.Layer == LayerFlag {
		l.encoderTP = o
	}
	if e := &r.Plan.Encoder; l.encoderTP.Layer != LayerDefault && e.Over == "none" && e.TP != r.Plan.TP {
		l.settle("plan.encoder.over", "first", l.encoderTP)
	}
}

// settle sets a value after the others were.
func (l *loader) settle(name, value string, o Origin) {
	k := table().byName[name]
	s := setting{k, scalarNode(value), o}
	l.add(s)
	l.set(k.field(&l.c.Run, &l.c.Model), s)
}
