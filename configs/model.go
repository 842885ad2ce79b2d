package configs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
)

// Model is the architecture of a decoder: embeddings, layers of a mixer of tokens and an MLP, a norm, a head. What only
// some mixers, MLPs and towers read they declare themselves (Part). An optional key is for the families that list it
// (hf.Family); the others have its default. The keys are those of Hugging Face's config.json, with one meaning for all
// families: intermediate_size is the width of gate and up each, attention_bias is a bias on query, key and value only.
type Model struct {
	ModelType     string      `key:"model_type" oneof:"families" class:"fixed" doc:"Family by Hugging Face's name: it decides the names and layout of weights."`
	Architectures []string    `key:"architectures" class:"fixed" doc:"Class that loads an export in transformers."`
	Hidden        int         `key:"hidden_size" min:"1" max:"1048576" class:"fixed" flag:"hidden-size" doc:"Width of the residual stream."`
	Layers        int         `key:"num_hidden_layers" min:"1" max:"65536" class:"fixed" flag:"num-layers" doc:"Decoder layers, multi-token-prediction layers apart."`
	Heads         int         `key:"num_attention_heads" min:"1" max:"65536" class:"fixed" flag:"num-attention-heads" doc:"Query heads."`
	KVHeads       int         `key:"num_key_value_heads" min:"1" max:"65536" class:"fixed" flag:"num-query-groups" doc:"Key and value heads; by default as many as query heads."`
	HeadDim       int         `key:"head_dim" min:"1" max:"65536" class:"fixed" flag:"kv-channels" doc:"Width of a head; by default hidden_size / num_attention_heads."`
	Intermediate  int         `key:"intermediate_size" min:"1" max:"16777216" class:"fixed" flag:"ffn-hidden-size" doc:"Width of gate and up in the MLP."`
	Vocab         int         `key:"vocab_size" min:"1" max:"16777216" class:"fixed" flag:"vocab-size,vocab-size-in-config-file,padded-vocab-size" doc:"Rows of the embedding; if it is not given, the tokenizer's size."`
	MaxPositions  int         `key:"max_position_embeddings" min:"1" class:"fixed" flag:"max-position-embeddings" doc:"Longest sequence the model is meant for."`
	NormEps       float64     `key:"rms_norm_eps" default:"1e-5" min:"0" class:"fixed" flag:"norm-epsilon,layernorm-epsilon" doc:"Term under RMSNorm's root."`
	RopeTheta     float64     `key:"rope_theta" default:"10000" min:"1" class:"fixed" flag:"rotary-base" doc:"Base of the rotary frequencies (arXiv:2104.09864)."`
	RopeScaling   RopeScaling `key:"rope_scaling" class:"fixed" doc:"How frequencies are changed for longer sequences: rope_type, factor and the type's own numbers."`
	TieEmbeddings bool        `key:"tie_word_embeddings" default:"false" class:"fixed" flag:"untie-embeddings-and-output-weights=false" doc:"The head uses the embedding's weight."`
	AttentionBias bool        `key:"attention_bias" default:"false" class:"fixed" flag:"add-qkv-bias=true" doc:"Query, key and value have biases."`
	QKNorm        bool        `key:"qk_norm" default:"false" class:"fixed" flag:"qk-layernorm=true" doc:"RMSNorm over head_dim on queries and keys, before rotation."`
	OutBias       bool        `key:"attention_out_bias" default:"false" class:"fixed" doc:"The projection behind attention has a bias."`
	MLPBias       bool        `key:"mlp_bias" default:"false" class:"fixed" doc:"The linear layers of the MLP have biases."`
	Act           string      `key:"hidden_act" default:"silu" oneof:"gelu|gelu_pytorch_tanh|quick_gelu|silu|relu|relu2" class:"fixed" doc:"Activation of the MLP, of its gate if it has one."`
	LayerTypes    []string    `key:"layer_types" oneof:"mixers" class:"fixed" doc:"What each layer mixes tokens with, as full_attention and sliding_attention; by default the family's own pattern."`
	Positions     string      `key:"position_embeddings" default:"rope" oneof:"rope|learned|alibi" class:"fixed" doc:"How tokens know their places: rope turns queries and keys, learned adds rows of a table of max_position_embeddings, alibi adds a slope of each head times the distance to scores (arXiv:2108.12409)."`
	SlidingWindow int         `key:"sliding_window" default:"0" min:"0" class:"fixed" unit:"tokens" doc:"Keys that a query of a layer with sliding_attention sees, its own among them; 0 means all."`
	PartialRotary float64     `key:"partial_rotary_factor" default:"1" min:"0" max:"1" class:"fixed" flag:"rotary-percent" doc:"Share of a head's width that turns."`
	MTPLayers     int         `key:"num_nextn_predict_layers" default:"0" min:"0" max:"64" class:"fixed" flag:"mtp-num-layers" doc:"Multi-token-prediction layers (arXiv:2412.19437, section 2.2)."`
	InitRange     float64     `key:"initializer_range" default:"0.02" min:"0" class:"fixed" flag:"init-method-std" doc:"Standard deviation of random initial weights."`
	BOS           int         `key:"bos_token_id" default:"-1" min:"-1" class:"fixed" doc:"Token that begins a text; -1 if there is none."`
	EOS           []int       `key:"eos_token_id" class:"fixed" doc:"Tokens that end a text."`
	Text          string      `key:"text_model_type" oneof:"decoders" class:"fixed" doc:"Family of the decoder of a composed model."`
	TextPreset    string      `key:"text_preset" class:"fixed" doc:"Published model, as qwen/3-8b, whose decoder a composed model has where it says nothing else."`
	Vision        Vision      `key:"vision"`
	Description   string      `key:"description" class:"fixed" doc:"Text that describes the family, where it is one's own: set by model.description, or by description.yaml of model.path."`
	Parameters    int         `key:"parameters" min:"1" class:"fixed" doc:"Number of parameters as published: a claim that tests check."`
	Active        int         `key:"active_parameters" default:"0" min:"0" class:"fixed" doc:"Parameters that a token passes, those of experts as far as it goes to them: a claim too."`
	Names         []string    `key:"names" class:"fixed" doc:"What LoongForge calls the model, for --model-name."`
	Source        string      `key:"source" class:"fixed" doc:"Hugging Face repository of the weights."`

	parts map[string]any // what Part.Of gives, by name: pointers to structs that nobody changes
}

// RopeScaling changes rotary frequencies. Formulas: transformers, modeling_rope_utils; linear
// arXiv:2306.15595, yarn arXiv:2309.00071, longrope arXiv:2402.13753. Type is "" or "default" for none.
type RopeScaling struct {
	Type            string    `key:"rope_type"`
	Factor          float64   `key:"factor"`
	LowFreqFactor   float64   `key:"low_freq_factor"`                  // llama3
	HighFreqFactor  float64   `key:"high_freq_factor"`                 // llama3
	OriginalMax     int       `key:"original_max_position_embeddings"` // llama3, yarn; 0 takes max_position_embeddings
	BetaFast        float64   `key:"beta_fast"`                        // yarn; 0 means 32
	BetaSlow        float64   `key:"beta_slow"`                        // yarn; 0 means 1
	AttentionFactor float64   `key:"attention_factor"`                 // yarn; 0 computes it from factor
	MScale          float64   `key:"mscale"`                           // yarn
	MScaleAllDim    float64   `key:"mscale_all_dim"`                   // yarn
	Sections        []int     `key:"mrope_section"`                    // frequencies of time, height and width (arXiv:2409.12191)
	Interleaved     bool      `key:"mrope_interleaved"`                // dealt out in turns
	Smooth          bool      `key:"truncate"`                         // yarn; written as its opposite: borders of the ramp are not rounded to whole pairs
	LongFactor      []float64 `key:"long_factor"`                      // longrope: divisor of each frequency beyond original_max_position_embeddings
	ShortFactor     []float64 `key:"short_factor"`                     // longrope: the same up to there
}

// None says whether frequencies are left alone.
func (r RopeScaling) None() bool {
	return (r.Type == "" || r.Type == "default") && len(r.Sections) == 0
}

// check says what is wrong with the numbers of a type.
func (r RopeScaling) check() string {
	positive := func(names string, values ...float64) string {
		for i, v := range values {
			if v <= 0 {
				return fmt.Sprintf("rope_type %s: %s = %g, want more than 0", r.Type, strings.Split(names, " ")[i], v)
			}
		}
		return ""
	}
	switch r.Type {
	case "", "default", "mrope":
		return ""
	case "linear", "dynamic", "yarn":
		return positive("factor", r.Factor)
	case "longrope":
		if len(r.LongFactor) == 0 || len(r.LongFactor) != len(r.ShortFactor) {
			return fmt.Sprintf("rope_type longrope: %d long_factor and %d short_factor, want as many of "+
				"each as pairs of a head turn", len(r.LongFactor), len(r.ShortFactor))
		}
		for _, x := range slices.Concat(r.LongFactor, r.ShortFactor) {
			if x <= 0 {
				return fmt.Sprintf("rope_type longrope: a factor is %g, want more than 0", x)
			}
		}
		return positive("original_max_position_embeddings", float64(r.OriginalMax))
	case "llama3":
		if why := positive("factor low_freq_factor high_freq_factor original_max_position_embeddings",
			r.Factor, r.LowFreqFactor, r.HighFreqFactor, float64(r.OriginalMax)); why != "" {
			return why
		}
		if r.HighFreqFactor <= r.LowFreqFactor {
			return fmt.Sprintf("rope_type llama3: high_freq_factor = %g does not exceed low_freq_factor = %g",
				r.HighFreqFactor, r.LowFreqFactor)
		}
		return ""
	}
	return fmt.Sprintf("rope_type %s is not known: %s", source.Quoted(r.Type),
		source.OneOf([]string{"default", "linear", "dynamic", "yarn", "llama3", "longrope"}))
}

// Decoder is the family of the decoder.
func (m *Model) Decoder() string {
	if m.Text != "" {
		return m.Text
	}
	return m.ModelType
}

// Denoises reports whether the model is one of diffusion.
//
//lfvet:kind it is the question itself, by the table of families
func (m *Model) Denoises() bool { return hf.Families()[m.ModelType].Diffusers }

// complete fills in what follows from other keys.
func (m *Model) complete() {
	if m.KVHeads == 0 {
		m.KVHeads = m.Heads
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if complete := declared[name].complete; complete != nil {
			complete(m)
		}
	}
	if m.HeadDim == 0 && m.Heads > 0 && m.Hidden%m.Heads == 0 {
		m.HeadDim = m.Hidden / m.Heads
	}
	if len(m.Architectures) == 0 {
		class := hf.Families()[m.ModelType].Class
		if c, ok := hf.ComposedFamilies[m.ModelType]; ok {
			class = c.Class
		}
		if class != "" {
			m.Architectures = []string{class}
		}
	}
}

// Check implements section: what a model must have, and what must divide within it.
func (m *Model) Check(at faults) {
	const p = "model.overrides."
	need := func(key string, value int) {
		if value == 0 {
			at.fault(p+key, "is not given", "")
		}
	}
	if m.ModelType == "" {
		at.fault(p+"model_type", "is not given", source.OneOf(source.SortedKeys(hf.Families())))
	}
	need("hidden_size", m.Hidden)
	need("num_hidden_layers", m.Layers)
	need("num_attention_heads", m.Heads)
	need("intermediate_size", m.Intermediate)
	switch {
	case m.Heads == 0 || m.Hidden == 0:
	case m.HeadDim == 0:
		at.fault(p+"hidden_size", fmt.Sprintf("%d is not a multiple of num_attention_heads = %d", m.Hidden,
			m.Heads), "set head_dim")
	case m.HeadDim%2 != 0 && !hf.Families()[m.ModelType].Unturned:
		at.fault(p+"head_dim", fmt.Sprintf("%d is odd: rotary embeddings turn pairs", m.HeadDim),
			fmt.Sprintf("try %d", m.HeadDim+1))
	}
	if m.KVHeads > 0 && m.Heads%m.KVHeads != 0 {
		at.fault(p+"num_key_value_heads", fmt.Sprintf("num_attention_heads = %d is not a multiple of %d",
			m.Heads, m.KVHeads), fmt.Sprintf("try %d", nearestDivisor(m.Heads, m.KVHeads)))
	}
	if n := len(m.LayerTypes); n > 0 && n != m.Layers {
		at.fault(p+"layer_types", fmt.Sprintf("%d entries for num_hidden_layers = %d", n, m.Layers),
			"name one for each layer")
	}
	m.checkParts(at)
	if slices.Contains(m.LayerTypes, "sliding_attention") && m.SlidingWindow == 0 {
		at.fault(p+"sliding_window", "is not given, but layer_types has sliding_attention", "")
	}
	if d := int(float64(m.HeadDim) * m.PartialRotary); m.HeadDim > 0 && m.PartialRotary > 0 &&
		m.PartialRotary < 1 && (d == 0 || d%2 != 0) {
		at.fault(p+"partial_rotary_factor",
			fmt.Sprintf("%g of head_dim = %d is %d: rotary embeddings turn pairs", m.PartialRotary, m.HeadDim, d), "")
	}
	if why := m.RopeScaling.check(); why != "" {
		at.fault(p+"rope_scaling", why, "")
	}
	if m.RopeScaling.Type == "dynamic" && m.MaxPositions == 0 {
		at.fault(p+"max_position_embeddings", "is not given, but rope_type dynamic stretches it", "")
	}
	m.checkFamily(at)
	m.Vision.check(at, m)
}

// checkFamily holds keys to what the family's weights can express.
func (m *Model) checkFamily(at faults) {
	const p = "model.overrides."
	f, ok := hf.Families()[m.Decoder()]
	if !ok {
		return
	}
	for _, k := range table().keys {
		if !k.some {
			continue
		}
		key := strings.TrimPrefix(k.Name, p)
		if hf.Has(m.ModelType, m.Decoder(), key) || slices.Contains(f.Offered, key) {
			n, _ := k.field(nil, m).Interface().(int)
			if most, ok := f.Most[key]; ok && n > most {
				at.fault(k.Name, fmt.Sprintf("%d, but checkpoints of %s have %d at most", n, m.ModelType,
					most), fmt.Sprintf("try %d", most))
			}
			continue
		}
		want := k.format(cmp.Or(f.Fixed[key], k.Default))
		if have := formatValue(k.field(nil, m)); have != want {
			at.fault(k.Name, fmt.Sprintf("%s, but %s has %s", have, m.ModelType, want), "change model_type or "+key)
		}
	}
	if f.PlainHeads && m.KVHeads > 0 && m.KVHeads != m.Heads {
		at.fault(p+"num_key_value_heads", fmt.Sprintf("%s has as many as query heads, %d", m.ModelType,
			m.Heads), fmt.Sprintf("try %d", m.Heads))
	}
}

// mixers and mlps are the kinds of parts of layers that are built.
var mixers, mlps []string

// RegisterMixer enters a kind of mixer that layer_types may name.
func RegisterMixer(kind string) { mixers = append(mixers, kind) }

// RegisterMLP enters a kind of MLP.
func RegisterMLP(kind string) { mlps = append(mlps, kind) }
