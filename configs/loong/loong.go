// Package loong reads what LoongForge's launch scripts name: model files, with a class in _target_,
// includes in defaults and otherwise Megatron's argument names; low-rank additions; and files that describe
// data sets of conversations. With --config-file LoongForge's own precedence holds: what such a file says
// beats the flag. Classes are names in tables; nothing of a file is run.
package loong

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hydra"
	"github.com/lfactor/lfactor/configs/megatron"
	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// decoderOnly are keys that must have the value dense families here have anyway.
var decoderOnly = map[string]string{
	"swiglu": "true", "gated_linear_unit": "true", "activation_func": "silu", "add_bias_linear": "false",
	"add_position_embedding": "false", "rotary_interleaved": "false",
}

// decoderIdle are keys with no meaning here besides those of megatron.IdleFlags.
var decoderIdle = source.Set("model_type", "model_spec", "rotary_emb_func", "word_embeddings_for_head",
	"max_sequence_length", "mtp_loss_scaling_factor_decay_ratio", "bias_activation_fusion", "bias_dropout_fusion",
	"persist_layer_norm", "masked_softmax_fusion", "gradient_accumulation_fusion")

// Reader reads one model file, or overrides of the parts of a model.
type Reader struct {
	Sink   source.Sink
	Getenv func(string) string // may be nil
	// Flag is the key that a flag of Megatron's means, with the key's type.
	Flag func(name string) (key, typ string, f source.Flag, ok bool)
	// Word keeps an argument whose meaning depends on the model, and says whether it is one.
	Word func(name string, value *yaml.Node, o source.Origin) bool
	// Flags are all flags that are known, for suggestions.
	Flags func() []string
	// Integer decodes a value, or says why it is none.
	Integer func(value *yaml.Node) (n int, why, try string)

	Path       string   // of the file, "" where the model is named otherwise
	Args       []string // overrides of its keys, in Hydra's form
	RopeFactor string   // --rope-scaling-factor, until a model takes it

	// What was read besides settings.
	Model   string        // published model that the file is of, "" for one that it describes itself
	ModelAt source.Origin // where it says so
	// what the vocabulary would be padded to a multiple of, 0 if the file does not say
	VocabUnit int
	Rates     []Rate        // learning rates of parts
	EncoderTP source.Origin // where the encoder's tensor parallelism is set, if it is
	Faults    int           // what was wrong in the file

	idle     []string // keys without effect
	frozen   []string // parameters that its parts freeze
	frozenAt source.Origin
}

// Rate is a learning rate of one part of a model.
type Rate struct {
	Part   string // encoder or projector, as in optimizer.<part>_lr_scale
	Key    string // as it was given
	Value  *yaml.Node
	Origin source.Origin
}

// IsFile says whether a file is one of LoongForge's: a class in _target_, a defaults list, or the parts of
// a model below model. A file that cannot be read is none.
func IsFile(path string) bool {
	text, err := source.ReadFile(path)
	if err != nil {
		return false // whoever reads it reports it
	}
	root, err := source.ParseYAML(path, text)
	if err != nil {
		return false
	}
	if source.Lookup(root, "_target_") != nil || source.Lookup(root, "defaults") != nil {
		return true
	}
	for _, section := range []string{"train", "diffusion", "plan", "checkpoint"} {
		if source.Lookup(root, section) != nil {
			return false // a run file
		}
	}
	m := source.Lookup(root, "model")
	return m != nil && slices.ContainsFunc([]string{"foundation", "image_encoder", "image_projector",
		"model_type"}, func(key string) bool { return source.Lookup(m, key) != nil })
}

// Read composes and enters the model file, with the overrides that are for it.
func (l *Reader) Read() {
	if l.Path == "" {
		return
	}
	before := l.Sink.Faults()
	if filepath.Base(filepath.Dir(l.Path)) == "ckpt_convert" {
		l.Sink.Fail(source.Origin{Layer: source.LayerLoong, File: l.Path}, "", conversion, "name the model's file")
	} else if h := hydra.Compose(l.Sink, l.Getenv, l.Path, l.Args); h != nil {
		l.file(h)
	}
	if len(l.frozen) > 0 {
		l.Sink.Add("freeze", source.ListNode(l.frozen), l.frozenAt)
	}
	l.noteIdle()
	if l.RopeFactor != "" {
		l.Sink.Fail(source.Origin{Layer: source.LayerFlag, Text: "--rope-scaling-factor"}, "",
			megatron.RefusedFlags["rope-scaling-factor"], "")
	}
	l.Faults += l.Sink.Faults() - before
}

// without remembers a key that has no effect, for one note of all.
func (l *Reader) without(key string) { l.idle = append(l.idle, key) }

// noteIdle tells once which keys were accepted without effect.
func (l *Reader) noteIdle() {
	if len(l.idle) > 0 {
		l.Sink.Note("accepted, no effect: " + strings.Join(l.idle, ", "))
	}
	l.idle = nil
}

// file enters a composed file: a dense model's keys, or the parts of a model with a vision encoder.
func (l *Reader) file(h *hydra.Composition) {
	root := h.Tree
	target := root.Text("_target_")
	class := target[strings.LastIndex(target, ".")+1:]
	if p, ok := policies[root.Text("model", "model_type")]; ok && target == "" {
		h.Resolve()
		l.policy(root, p)
		return
	}
	if why := notAModel(root, class); why != "" {
		l.Sink.Fail(root.O, "", why, "")
		return
	}
	h.Resolve()
	if m := root.At("model"); m != nil && target == "" {
		l.composed(root, m)
		return
	}
	if target == "" {
		l.Sink.Fail(root.O, "_target_",
			"is not given: the file has neither a dense model nor the parts of one below model", "")
		return
	}
	l.decoder(root, "", "*")
	if peft := root.At("peft_config"); peft != nil && peft.Kids != nil {
		l.lora(peft, "peft_config.", decoderLinears)
	}
}

const conversion = "names weights for a conversion: checkpoints are read and written in Hugging Face's " +
	"names, none is needed"

// notAModel says why a file of LoongForge's is none of a model that can be trained from it.
func notAModel(root *hydra.Node, class string) string {
	m := root.At("model")
	switch {
	case m != nil && m.Kids != nil && class == "" && m.At("foundation") == nil &&
		m.At("image_encoder") == nil && m.At("image_projector") == nil:
		return "has neither model.foundation nor model.image_encoder nor model.image_projector: it is " +
			"not a model of language and images" + otherKind(m.Text("model_type"))
	case root.At("args") != nil && class == "":
		return conversion
	case strings.HasSuffix(class, "LoraConfig"):
		return "is a part, low-rank additions: name it in defaults, as in - ../lora@peft_config: lora"
	case encoders[class] != nil:
		return "is a part, an image encoder: compose it with a projector and a foundation in a file " +
			"with model: and defaults:"
	case projectors[class] != nil:
		return "is a part, an image projector: compose it with an encoder and a foundation in a file " +
			"with model: and defaults:"
	}
	return ""
}

// decoder enters the keys of a language model; prefix is what stands before their names, all the parameters
// that freeze means.
func (l *Reader) decoder(n *hydra.Node, prefix string, all ...string) {
	if target := n.At("_target_"); target != nil && target.Scalar() && !l.family(n, prefix) {
		return // its keys would be none of ours
	}
	target := n.Text("_target_")
	d, _ := decoderOf(target[strings.LastIndex(target, ".")+1:], n)
	heads := n.At("group_query_attention") == nil || n.On("group_query_attention")
	for _, name := range n.Keys {
		kid := n.Kids[name]
		o, value := kid.O, kid.Value
		switch {
		case kid.Kids != nil && name == "peft_config":
		case kid.Kids != nil && o.File == "":
			l.Sink.Unknown(o, "", name)
		case kid.Kids != nil:
			l.Sink.Fail(o, prefix+name, "a mapping, want a value", "")
		case kid.Null() || name == "num_query_groups" && !heads:
		case name == "_target_":
		case l.own(d, prefix, name, kid):
		case name == "freeze":
			l.freeze(kid, prefix+name, all...)
		case name == "make_vocab_size_divisible_by":
			var why, try string
			if l.VocabUnit, why, try = l.Integer(value); why != "" {
				l.Sink.Fail(o, prefix+name, why, try)
			}
		case name == "mrope_section" && prefix != "":
		case name == "convert_file": // it may tell classes apart, and names no weights here
			l.without(prefix + name)
		case name == "group_query_attention": // it says whether num_query_groups counts
			if g := n.Text("num_query_groups"); g == "" || source.SameValue(g, n.Text("num_attention_heads")) {
				l.without(prefix + name)
			}
		case decoderIdle[name]:
			l.without(prefix + name)
		case decoderOnly[name] != "":
			if strings.ToLower(value.Value) != decoderOnly[name] {
				l.Sink.Fail(o, prefix+name, fmt.Sprintf("%s, but dense families here have %s",
					source.Quoted(value.Value), decoderOnly[name]), "")
			}
		default:
			l.key(prefix, name, value, o)
		}
	}
}

// own enters a key that a class gives its own meaning, and says whether it is one.
func (l *Reader) own(d Decoder, prefix, name string, kid *hydra.Node) bool {
	to, renamed := d.Keys[name]
	switch {
	case d.Only[name] != nil:
		(&vlm{l: l}).fixed(prefix+name, kid, d.Only[name])
	case !renamed:
		return false
	case to == "":
		l.without(prefix + name)
	default:
		l.Sink.Add(source.ModelKeys+"."+to, kid.Value, kid.O)
	}
	return true
}

// freeze enters a switch that freezes parameters.
func (l *Reader) freeze(n *hydra.Node, key string, patterns ...string) {
	switch strings.ToLower(n.Text()) {
	case "true":
		l.frozen = append(l.frozen, patterns...)
		l.frozenAt = n.O
	case "false":
	default:
		l.Sink.Fail(n.O, key, n.Kind()+", want true or false", "")
	}
}

// key enters a key that has the name of a Megatron argument.
func (l *Reader) key(prefix, name string, value *yaml.Node, o source.Origin) {
	flag := strings.ReplaceAll(name, "_", "-")
	k, typ, f, isKey := l.Flag(flag)
	off := strings.EqualFold(value.Value, "false")
	switch {
	case l.Word(flag, value, o):
	case isKey:
		if f.Value != "" {
			value = switchValue(typ, f, value)
		}
		if value != nil {
			l.Sink.Add(k, value, o)
		}
	case megatron.IdleFlags[flag]:
		l.without(prefix + name)
	case megatron.OnlyFlags[flag] != nil:
		if !slices.ContainsFunc(megatron.OnlyFlags[flag].Values,
			func(v string) bool { return source.SameValue(v, value.Value) }) {
			l.Sink.Fail(o, prefix+name, fmt.Sprintf("%s: %s", source.Quoted(value.Value),
				megatron.OnlyFlags[flag].Why), "")
		}
	case off && (megatron.RefusedFlags[flag] != "" || name == "fp8" || name == "fp8_param" || name == "selective_fp8"):
	case name == "fp8" || name == "fp8_param" || name == "selective_fp8":
		l.Sink.Fail(o, prefix+name, megatron.RefusedFlags["fp8"], "")
	case megatron.RefusedFlags[flag] != "":
		l.Sink.Fail(o, prefix+name, megatron.RefusedFlags[flag], "")
	default:
		try := strings.ReplaceAll(source.DidYouMean(flag, l.Flags()), "-", "_")
		l.Sink.Fail(o, prefix+name, "unknown key of a LoongForge model file", try)
	}
}

// switchValue is the value that a key like qk_layernorm: true stands for, nil if it stands for none.
func switchValue(typ string, f source.Flag, value *yaml.Node) *yaml.Node {
	on := strings.EqualFold(value.Value, "true")
	switch {
	case on:
		return source.ScalarNode(f.Value)
	case typ != "boolean":
		return nil
	case f.Value == "true":
		return source.ScalarNode("false")
	}
	return source.ScalarNode("true")
}

// family enters the class of a language model and says whether it can be trained.
func (l *Reader) family(n *hydra.Node, prefix string) bool {
	target, o := n.Text("_target_"), n.At("_target_").O
	class := target[strings.LastIndex(target, ".")+1:]
	d, ok := decoderOf(class, n)
	if !ok {
		why := refusedClasses[class]
		if why == "" {
			why = "is no dense family"
		}
		l.Sink.Fail(o, prefix+"_target_", fmt.Sprintf("class %s: %s", source.Quoted(class), why),
			source.OneOf(classNames()))
		return false
	}
	if prefix == "" {
		l.Sink.Add(source.ModelKeys+".model_type", source.ScalarNode(d.Family), o)
	}
	own := maps.Clone(d.Preset)
	if d.Derive != nil {
		if own == nil {
			own = map[string]string{}
		}
		maps.Copy(own, d.Derive(n.Text))
	}
	for _, key := range source.SortedKeys(own) {
		node, err := source.ParseValue(own[key])
		if err != nil {
			panic(fmt.Sprintf("configs: class %s: preset %s: %v", class, key, err))
		}
		l.Sink.Add(source.ModelKeys+"."+key, node, source.Origin{Layer: source.LayerModel, File: "class " + class})
	}
	return true
}

// refusedClasses are classes of models that cannot be trained, with the reason.
var refusedClasses = map[string]string{
	"DeepseekV4Config": "sparse attention and mixtures of experts are not part of dense families",
	"GlmConfig":        "latent attention and mixtures of experts are not part of dense families",
}

// linears are Megatron's fused linears by the parts they have here.
type linears struct {
	prefix string // of the names of the parameters that are meant
	parts  map[string][]string
}

var decoderLinears = linears{"*.", map[string][]string{
	"linear_qkv": {"q_proj", "k_proj", "v_proj"}, "linear_proj": {"o_proj"}, "linear_fc1": {"gate_proj",
		"up_proj"}, "linear_fc2": {"down_proj"},
}}

// lora enters low-rank additions to the linears of one or more sorts.
func (l *Reader) lora(n *hydra.Node, prefix string, sorts ...linears) {
	keys := map[string]string{"dim": "lora.rank", "alpha": "lora.alpha", "dropout": "lora.dropout"}
	idle := source.Set("dropout_position", "lora_A_init_method", "lora_B_init_method", "lora_dtype", "a2a_experimental",
		"apply_to_foundation", "apply_to_image_encoder", "apply_to_image_projector")
	for _, name := range n.Keys {
		kid := n.Kids[name]
		switch {
		case strings.HasPrefix(name, "apply_to_video_"):
			if kid.Kids == nil && !strings.EqualFold(kid.Text(), "false") {
				l.Sink.Fail(kid.O, prefix+name, "images and videos share the image encoder",
					"set apply_to_image_encoder instead")
			}
		case name == "_target_":
			if class := kid.Text(); !strings.HasSuffix(class, ".LoraConfig") && !strings.HasSuffix(class,
				".VLMLoraConfig") {
				l.Sink.Fail(kid.O, prefix+name, source.Quoted(class)+" is no class of low-rank additions",
					"take one that ends in LoraConfig")
			}
		case strings.HasPrefix(name, "apply_to_"): // read where there are parts
		case idle[name]:
			l.without(prefix + name)
		case kid.Kids == nil && keys[name] != "":
			l.Sink.Add(keys[name], kid.Value, kid.O)
		case kid.Kids == nil && name == "target_modules":
			l.targets(kid, prefix+name, sorts)
		default:
			known := append(slices.Concat(source.SortedKeys(keys), source.SortedKeys(idle)), "target_modules")
			l.Sink.Fail(kid.O, prefix+name, "unknown key of a LoongForge LoRA file", source.DidYouMean(name, known))
		}
	}
}

// targets translates the names of layers to adapt. One fused layer there may be several here.
func (l *Reader) targets(n *hydra.Node, key string, sorts []linears) {
	items := []*yaml.Node{n.Value}
	if n.Value.Kind == yaml.SequenceNode {
		items = n.Value.Content
	}
	var targets []string
	for _, item := range items {
		for _, sort := range sorts {
			prefix, last := sort.prefix, item.Value
			if i := strings.LastIndex(item.Value, "."); i >= 0 {
				prefix, last = item.Value[:i+1], item.Value[i+1:]
			}
			parts := sort.parts[last]
			if parts == nil {
				l.Sink.Fail(n.O, key, fmt.Sprintf("%s is no linear layer of the model",
					source.Quoted(item.Value)), source.OneOf(source.SortedKeys(sort.parts)))
			}
			for _, p := range parts {
				targets = append(targets, prefix+p)
			}
		}
	}
	l.Sink.Add("lora.targets", source.ListNode(targets), n.O)
}
