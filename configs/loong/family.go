package loong

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hydra"
	"github.com/lfactor/lfactor/configs/source"
)

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
	fits := known && c.Encoder == v.encoder.Kind && c.Projector == v.projector.Kind &&
		slices.Contains(c.Decoders, v.text)
	switch {
	case fits:
	case name == "":
		v.l.Sink.Fail(v.top, "model.model_type", "is not given",
			source.OneOf(append(source.SortedKeys(compositions), customFamily)))
		return
	default:
		if name != customFamily {
			v.l.Sink.Note(fmt.Sprintf("%s: model.model_type: %s, but the parts are %s, %s and %s: a pair of your "+
				"own (%s), with plain positions", o, name, v.encoder.Kind, v.projector.Kind, v.text, customFamily))
		}
		c = Composition{Family: customFamily}
		if v.foundation.Tokens != nil {
			c.Tokens = map[string]map[string]string{"": v.foundation.Tokens}
		}
	}
	if other := c.Families[v.text]; fits && other != "" {
		c.Family = other
	}
	v.set(source.ModelKeys+".model_type", source.ScalarNode(c.Family), o)
	for _, decoder := range []string{"", v.text} {
		for _, key := range source.SortedKeys(c.Tokens[decoder]) {
			v.preset(visionKey+key, c.Tokens[decoder][key], v.m)
		}
	}
	if id := v.m.At("vision_token_id"); id != nil && id.Scalar() {
		v.set(visionKey+"image_token_id", id.Value, id.O)
	}
	v.functions(c, fits || name == customFamily)
	v.positions(c)
}

// functions holds the functions that a file names to those that the family has.
func (v *vlm) functions(c Composition, known bool) {
	positions, loss := c.PositionFunc, c.LossFunc
	if positions == nil {
		positions = []string{"position_ids"}
	}
	if !known { // it has plain positions whatever the file says, and the note says so
		positions = hydra.Functions("position_func")
	}
	for _, name := range []string{"mix_used_vision_encoder", "mix_used_vision_projector"} {
		kid := v.m.At(name)
		switch {
		case kid == nil || kid.Null():
		case !source.SameValue(strings.ToLower(kid.Text()), "true") && strings.ToLower(kid.Text()) != "false":
			v.l.Sink.Fail(kid.O, "model."+name, kid.Kind()+", want true or false", "")
		default:
			// a microbatch without images never passes the encoder, and needs no stand-in
			v.l.without("model." + name)
		}
	}
	v.one("position_idx_func", positions)
	v.one("loss_func", []string{cmp.Or(loss, "default")})
}

// one holds a function of model to those that the family has.
func (v *vlm) one(name string, want []string) {
	kid := v.m.At(name)
	switch {
	case kid == nil || kid.Null():
	case !slices.Contains(want, kid.Text()):
		v.l.Sink.Fail(kid.O, "model."+name, fmt.Sprintf("%s, but this model has %s",
			source.Quoted(kid.Text()), want[0]), "remove it, or set it to "+want[0])
	case len(want) > 1:
		v.l.without("model." + name)
	}
}

// unbuilt are kinds of composed models that cannot be trained, with the reason.
var unbuilt = map[string]string{
	"minicpm_v_4_6": "layers of linear attention are not part of dense families",
}

// positions enters how the decoder's rotary embedding turns: M-RoPE's sections, or InternLM's dynamic base.
func (v *vlm) positions(c Composition) {
	const key = source.ModelKeys + ".rope_scaling"
	switch sections := v.fd.At("mrope_section"); {
	case c.Sections != "":
		text, at := c.Sections, v.m
		if sections != nil && sections.Value != nil && !sections.Null() {
			text, at = formatNode(sections), sections
		}
		kind := "rope_type: mrope, "
		switch {
		case c.Weave:
			kind = "rope_type: default, mrope_interleaved: true, "
		case c.Default:
			kind = "rope_type: default, "
		}
		node, err := source.ParseValue("{" + kind + "mrope_section: " + text + "}")
		if err != nil {
			v.l.Sink.Fail(at.O, "model.foundation.mrope_section",
				source.Quoted(text)+", want a list of three numbers", "")
			return
		}
		v.set(key, node, at.O)
	case strings.HasPrefix(v.fd.Text("rotary_emb_func"), "Dynamic") && v.foundation.Dynamic != nil:
		factor := v.foundation.Dynamic(v.fd.Text("rotary_base"))
		if v.l.RopeFactor != "" {
			factor, v.l.RopeFactor = v.l.RopeFactor, ""
		}
		node, err := source.ParseValue("{rope_type: dynamic, factor: " + factor + "}")
		if err != nil {
			v.l.Sink.Fail(source.Origin{Layer: source.LayerFlag, Text: "--rope-scaling-factor"}, key,
				source.Quoted(factor)+", want a number", "")
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
		parts := map[string][]string{"linear_qkv": {"q_proj", "k_proj", "v_proj"},
			"linear_proj": {"attn.proj"}, "linear_fc1": {"fc1"}, "linear_fc2": {"fc2"}}
		if v.encoder.Gated {
			parts["linear_fc1"], parts["linear_fc2"] = []string{"gate_proj", "up_proj"}, []string{"down_proj"}
		}
		sorts = append(sorts, linears{"visual.blocks.*.", parts})
	}
	if peft.On("apply_to_image_projector") {
		sorts = append(sorts, linears{"projector.", map[string][]string{"linear_qkv": {}, "linear_proj": {},
			"linear_fc1": {"fc1"}, "linear_fc2": {"fc2"}}})
	}
	if len(sorts) == 0 {
		v.l.Sink.Fail(peft.O, "model.peft_config", "applies to no part", "set apply_to_foundation: true")
		return
	}
	v.l.lora(peft, "model.peft_config.", sorts...)
}
