package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
)

// Model is the architecture of a decoder: embeddings, layers of a mixer of tokens and an MLP, a norm, a
// head. Keys tagged families:"some" are for families that list them (hf.Family); the others have the
// default. The keys are those of Hugging Face's config.json, with one meaning for all families:
// intermediate_size is the width of gate and up each, attention_bias is a bias on query, key and value only.
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
	AttentionBias bool        `key:"attention_bias" default:"false" families:"some" class:"fixed" flag:"add-qkv-bias=true" doc:"Query, key and value have biases."`
	QKNorm        bool        `key:"qk_norm" default:"false" families:"some" class:"fixed" flag:"qk-layernorm=true" doc:"RMSNorm over head_dim on queries and keys, before rotation."`
	OutBias       bool        `key:"attention_out_bias" default:"false" families:"some" class:"fixed" doc:"The projection behind attention has a bias."`
	MLPBias       bool        `key:"mlp_bias" default:"false" families:"some" class:"fixed" doc:"The linear layers of the MLP have biases."`
	Act           string      `key:"hidden_act" default:"silu" oneof:"gelu|gelu_pytorch_tanh|quick_gelu|silu|relu" families:"some" class:"fixed" doc:"Activation of the MLP, of its gate if it has one."`
	LayerTypes    []string    `key:"layer_types" families:"some" oneof:"mixers" class:"fixed" doc:"What each layer mixes tokens with, as full_attention and sliding_attention; by default the family's own pattern."`
	Positions     string      `key:"position_embeddings" default:"rope" oneof:"rope|learned|alibi" families:"some" class:"fixed" doc:"How tokens know their places: rope turns queries and keys, learned adds rows of a table of max_position_embeddings, alibi adds a slope of each head times the distance to scores (arXiv:2108.12409)."`
	MLPTypes      []string    `key:"mlp_layer_types" families:"some" oneof:"mlps" class:"fixed" doc:"Kind of each layer's MLP; by default the family's own pattern."`
	SlidingWindow int         `key:"sliding_window" default:"0" min:"0" families:"some" class:"fixed" unit:"tokens" doc:"Keys that a query of a layer with sliding_attention sees, its own among them; 0 means all."`
	LocalTheta    float64     `key:"rope_local_base_freq" default:"0" min:"0" families:"some" class:"fixed" doc:"Base of the rotary frequencies of layers with sliding_attention; 0 takes rope_theta."`
	PartialRotary float64     `key:"partial_rotary_factor" default:"1" min:"0" max:"1" families:"some" class:"fixed" flag:"rotary-percent" doc:"Share of a head's width that turns."`
	NoRope        []int       `key:"no_rope_layers" families:"some" class:"fixed" doc:"0 for each layer whose queries and keys do not turn, else 1; by default the family's own pattern."`
	QueryScalar   float64     `key:"query_pre_attn_scalar" default:"0" min:"0" families:"some" class:"fixed" doc:"Scores are divided by its root; 0 means head_dim."`
	AttnScale     float64     `key:"attention_multiplier" default:"0" min:"0" families:"some" class:"fixed" doc:"Factor on scores; 0 means 1/sqrt(head_dim)."`
	AttnCap       float64     `key:"attn_logit_softcapping" default:"0" min:"0" families:"some" class:"fixed" doc:"Soft cap c of scores s: c·tanh(s/c); 0 means none."`
	LogitCap      float64     `key:"final_logit_softcapping" default:"0" min:"0" families:"some" class:"fixed" doc:"The same of logits."`
	EmbedScale    float64     `key:"embedding_multiplier" default:"0" min:"0" families:"some" class:"fixed" doc:"Factor on embeddings; 0 means the family's own, else 1."`
	ResidualScale float64     `key:"residual_multiplier" default:"0" min:"0" families:"some" class:"fixed" doc:"Factor on what attention and MLP add to the residual stream; 0 means 1."`
	LogitDivisor  float64     `key:"logits_scaling" default:"0" min:"0" families:"some" class:"fixed" doc:"Divisor of logits; 0 means 1."`
	MTPLayers     int         `key:"num_nextn_predict_layers" default:"0" families:"some" min:"0" max:"64" class:"fixed" flag:"mtp-num-layers" doc:"Multi-token-prediction layers (arXiv:2412.19437, section 2.2)."`
	QueryRank     int         `key:"q_lora_rank" flag:"q-lora-rank" default:"0" min:"0" max:"1048576" families:"some" class:"fixed" doc:"Width of the latent row that queries are made from (arXiv:2405.04434, section 2.1); 0 makes them from the residual stream."`
	KeyRank       int         `key:"kv_lora_rank" flag:"kv-lora-rank" default:"0" min:"0" max:"1048576" families:"some" class:"fixed" doc:"Width of the latent row that keys and values of all heads are made from."`
	KeyStill      int         `key:"qk_nope_head_dim" flag:"qk-head-dim" default:"0" min:"0" max:"65536" families:"some" class:"fixed" doc:"Numbers of a head's query and key that do not turn, in latent attention."`
	KeyTurning    int         `key:"qk_rope_head_dim" flag:"qk-pos-emb-head-dim" default:"0" min:"0" max:"65536" families:"some" class:"fixed" doc:"Numbers of a head's query and key that turn, in latent attention; those of the key are the same for all heads."`
	ValueDim      int         `key:"v_head_dim" flag:"v-head-dim" default:"0" min:"0" max:"65536" families:"some" class:"fixed" doc:"Width of a head's value, in latent attention."`
	IndexTop      int         `key:"index_topk" flag:"dsa-indexer-topk" default:"0" min:"0" max:"16777216" families:"some" class:"fixed" unit:"tokens" doc:"Keys that a query reads: those of the best scores of an indexer (DeepSeek-V3.2)."`
	IndexHeads    int         `key:"index_n_heads" flag:"dsa-indexer-n-heads" default:"0" min:"0" max:"65536" families:"some" class:"fixed" doc:"Heads of the indexer."`
	IndexDim      int         `key:"index_head_dim" flag:"dsa-indexer-head-dim" default:"0" min:"0" max:"65536" families:"some" class:"fixed" doc:"Width of its heads; the first qk_rope_head_dim numbers turn."`
	IndexTypes    []string    `key:"indexer_types" families:"some" class:"fixed" doc:"full for each layer with an indexer, shared for each that reads the keys which the last of those has chosen (arXiv:2603.12201); by default all have one."`
	LinearKeys    int         `key:"linear_num_key_heads" flag:"linear-num-key-heads" default:"0" min:"0" max:"65536" families:"some" class:"fixed" doc:"Key heads of a layer with linear_attention."`
	LinearValues  int         `key:"linear_num_value_heads" flag:"linear-num-value-heads" default:"0" min:"0" max:"65536" families:"some" class:"fixed" doc:"Value heads of such a layer, a multiple of its key heads."`
	LinearKeyDim  int         `key:"linear_key_head_dim" flag:"linear-key-head-dim" default:"0" min:"0" max:"65536" families:"some" class:"fixed" doc:"Width of a query and key of such a layer."`
	LinearDim     int         `key:"linear_value_head_dim" flag:"linear-value-head-dim" default:"0" min:"0" max:"65536" families:"some" class:"fixed" doc:"Width of a value of such a layer."`
	LinearTaps    int         `key:"linear_conv_kernel_dim" flag:"linear-conv-kernel-dim" default:"0" min:"0" max:"64" families:"some" class:"fixed" unit:"tokens" doc:"Tokens that the convolution before such a layer's rule sees."`
	Experts       int         `key:"num_experts" flag:"num-experts" default:"0" min:"0" max:"65536" families:"some" class:"fixed" doc:"Experts of a layer with a mixture of them."`
	ExpertsEach   int         `key:"num_experts_per_tok" flag:"moe-router-topk" default:"0" min:"0" max:"65536" families:"some" class:"fixed" doc:"Experts that a token goes to."`
	ExpertWidth   int         `key:"moe_intermediate_size" default:"0" min:"0" max:"16777216" families:"some" class:"fixed" doc:"Width of gate and up in an expert."`
	ExpertWidths  []int       `key:"moe_intermediate_sizes" families:"some" class:"fixed" doc:"Width of gate and up in an expert for texts, and in one for images and videos, where each have experts of their own."`
	ImageTokens   []int       `key:"image_expert_token_ids" families:"some" class:"fixed" doc:"Tokens that go to the experts for images beside features: those that begin and end an image, and a video."`
	NormTopK      bool        `key:"norm_topk_prob" default:"false" families:"some" class:"fixed" doc:"The weights of a token's experts are divided by their sum."`
	ExpertGroups  int         `key:"n_group" flag:"moe-router-num-groups" default:"1" min:"1" families:"some" class:"fixed" doc:"Groups of neighbouring experts, of which the best are chosen from first."`
	GroupsKept    int         `key:"topk_group" flag:"moe-router-group-topk" default:"1" min:"1" families:"some" class:"fixed" doc:"Groups that a token's experts are chosen from."`
	RoutedScale   float64     `key:"routed_scaling_factor" flag:"moe-router-topk-scaling-factor" default:"1" min:"0" families:"some" class:"fixed" doc:"Factor on the weights of a token's experts."`
	SharedExperts int         `key:"n_shared_experts" default:"0" min:"0" families:"some" class:"fixed" doc:"Experts that all tokens go to, beside those that are chosen."`
	SharedWidth   int         `key:"shared_expert_intermediate_size" default:"0" min:"0" families:"some" class:"fixed" doc:"Width of an MLP that all tokens go to, through a gate of its own."`
	DenseFirst    int         `key:"first_k_dense_replace" default:"0" min:"0" families:"some" class:"fixed" doc:"First layers that have one MLP in place of experts."`
	GateBound     float64     `key:"swiglu_limit" default:"0" min:"0" families:"some" class:"fixed" doc:"Bound of gate (from above) and up (from both sides) in an expert."`
	GateSlope     float64     `key:"swiglu_alpha" default:"1.702" min:"0" families:"some" class:"fixed" doc:"Factor on what the sigmoid of an expert's bounded gate reads."`
	RouterJitter  float64     `key:"router_jitter_noise" flag:"moe-input-jitter-eps" default:"0" min:"0" max:"1" families:"some" class:"fixed" doc:"How far from 1 what experts and their router read is multiplied at random in training (arXiv:2101.03961, section 2.2)."`
	SparseStep    int         `key:"decoder_sparse_step" default:"1" min:"1" families:"some" class:"fixed" doc:"Every layer of so many, from the last of the first ones on, has experts; the others one MLP."`
	DenseLayers   []int       `key:"mlp_only_layers" families:"some" class:"fixed" doc:"Layers that have one MLP whatever decoder_sparse_step says."`
	BalanceCoef   float64     `key:"router_aux_loss_coef" default:"0" min:"0" families:"some" class:"fixed" doc:"Factor on the loss of balance of experts, for train.router.loss."`
	RouterLogits  bool        `key:"output_router_logits" default:"false" families:"some" class:"fixed" doc:"transformers adds the loss of balance to the model's: what train.router.loss: model follows."`
	InitRange     float64     `key:"initializer_range" default:"0.02" min:"0" class:"fixed" flag:"init-method-std" doc:"Standard deviation of random initial weights."`
	BOS           int         `key:"bos_token_id" default:"-1" min:"-1" class:"fixed" doc:"Token that begins a text; -1 if there is none."`
	EOS           []int       `key:"eos_token_id" class:"fixed" doc:"Tokens that end a text."`
	Text          string      `key:"text_model_type" oneof:"decoders" class:"fixed" doc:"Family of the decoder of a composed model."`
	TextPreset    string      `key:"text_preset" class:"fixed" doc:"Published model, as qwen/3-8b, whose decoder a composed model has where it says nothing else."`
	Vision        Vision      `key:"vision"`
	Parameters    int         `key:"parameters" min:"1" class:"fixed" doc:"Number of parameters as published: a claim that tests check."`
	Active        int         `key:"active_parameters" default:"0" min:"0" class:"fixed" doc:"Parameters that a token passes, those of experts as far as it goes to them: a claim too."`
	Names         []string    `key:"names" class:"fixed" doc:"What LoongForge calls the model, for --model-name."`
	Source        string      `key:"source" class:"fixed" doc:"Hugging Face repository of the weights."`
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
				return fmt.Sprintf("rope_type %s: %s = %g, want more than 0", r.Type,
					strings.Split(names, " ")[i], v)
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
			return fmt.Sprintf("rope_type llama3: high_freq_factor = %g does not exceed low_freq_factor = %g", r.HighFreqFactor, r.LowFreqFactor)
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

// complete fills in what follows from other keys.
func (m *Model) complete() {
	if m.KVHeads == 0 {
		m.KVHeads = m.Heads
	}
	if m.HeadDim == 0 {
		m.HeadDim = m.KeyTurning
	}
	if m.HeadDim == 0 && m.Heads > 0 && m.Hidden%m.Heads == 0 {
		m.HeadDim = m.Hidden / m.Heads
	}
	if len(m.Architectures) == 0 {
		class := hf.Families[m.ModelType].Class
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
		at.fault(p+"model_type", "is not given", source.OneOf(source.SortedKeys(hf.Families)))
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
	case m.HeadDim%2 != 0:
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
	m.checkLatent(at)
	m.checkIndexer(at)
	m.checkExperts(at)
	if n := len(m.MLPTypes); n > 0 && n != m.Layers {
		at.fault(p+"mlp_layer_types", fmt.Sprintf("%d entries for num_hidden_layers = %d", n, m.Layers),
			"name one for each layer")
	}
	if n := len(m.NoRope); n > 0 && n != m.Layers {
		at.fault(p+"no_rope_layers", fmt.Sprintf("%d entries for num_hidden_layers = %d", n, m.Layers),
			"give one for each layer")
	}
	if slices.Contains(m.LayerTypes, "sliding_attention") && m.SlidingWindow == 0 {
		at.fault(p+"sliding_window", "is not given, but layer_types has sliding_attention", "")
	}
	if d := int(float64(m.HeadDim) * m.PartialRotary); m.HeadDim > 0 && m.PartialRotary > 0 &&
		m.PartialRotary < 1 && (d == 0 || d%2 != 0) {
		at.fault(p+"partial_rotary_factor",
			fmt.Sprintf("%g of head_dim = %d is %d: rotary embeddings turn pairs", m.PartialRotary,
				m.HeadDim, d), "")
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

// checkLatent holds the numbers of latent attention to each other.
func (m *Model) checkLatent(at faults) {
	const p = "model.overrides."
	if !slices.Contains(hf.Families[m.Decoder()].Has, "kv_lora_rank") {
		return
	}
	for key, n := range map[string]int{"kv_lora_rank": m.KeyRank, "qk_nope_head_dim": m.KeyStill,
		"qk_rope_head_dim": m.KeyTurning, "v_head_dim": m.ValueDim} {
		if n == 0 {
			at.fault(p+key, "is not given", "")
		}
	}
	if m.KeyTurning > 0 && m.HeadDim != m.KeyTurning {
		at.fault(p+"head_dim", fmt.Sprintf("%d, but the part of a head that turns has qk_rope_head_dim = %d",
			m.HeadDim, m.KeyTurning), "leave it out")
	}
}

// IndexFull and IndexShared are the kinds of layers that indexer_types names.
const (
	IndexFull   = "full"
	IndexShared = "shared"
)

// checkIndexer holds the numbers of an indexer to each other.
func (m *Model) checkIndexer(at faults) {
	const p = "model.overrides."
	if !slices.Contains(hf.Families[m.Decoder()].Has, "index_topk") {
		return
	}
	for key, n := range map[string]int{"index_topk": m.IndexTop, "index_n_heads": m.IndexHeads,
		"index_head_dim": m.IndexDim} {
		if n == 0 {
			at.fault(p+key, "is not given", "")
		}
	}
	if m.IndexDim > 0 && m.IndexDim < m.KeyTurning {
		at.fault(p+"index_head_dim", fmt.Sprintf("%d is less than qk_rope_head_dim = %d", m.IndexDim,
			m.KeyTurning), "")
	}
	if m.QueryRank == 0 {
		at.fault(p+"q_lora_rank", "is not given: the indexer reads the latent of queries", "")
	}
	if n := len(m.IndexTypes); n > 0 && n != m.Layers {
		at.fault(p+"indexer_types", fmt.Sprintf("%d entries for num_hidden_layers = %d", n, m.Layers),
			"name one for each layer")
	}
	for i, kind := range m.IndexTypes {
		switch {
		case kind != IndexFull && kind != IndexShared:
			at.fault(p+"indexer_types", fmt.Sprintf("layer %d is %s", i, source.Quoted(kind)),
				source.OneOf([]string{IndexFull, IndexShared}))
			return
		case i == 0 && kind == IndexShared:
			at.fault(p+"indexer_types", "the first layer has none before it whose keys it could read",
				"begin with "+IndexFull)
		}
	}
}

// checkExperts holds the numbers of a mixture to each other.
func (m *Model) checkExperts(at faults) {
	const p = "model.overrides."
	if m.Experts == 0 {
		return
	}
	switch {
	case m.ExpertsEach == 0:
		at.fault(p+"num_experts_per_tok", "is not given", "")
	case m.ExpertsEach > m.Experts:
		at.fault(p+"num_experts_per_tok", fmt.Sprintf("a token cannot go to %d of num_experts = %d",
			m.ExpertsEach, m.Experts), fmt.Sprintf("try %d", m.Experts))
	}
	if m.ExpertWidth == 0 && slices.Contains(hf.Families[m.Decoder()].Has, "moe_intermediate_size") {
		at.fault(p+"moe_intermediate_size", "is not given", "")
	}
	if slices.Contains(hf.Families[m.Decoder()].Has, "moe_intermediate_sizes") {
		if len(m.ExpertWidths) != 2 || slices.Min(m.ExpertWidths) < 1 {
			at.fault(p+"moe_intermediate_sizes", fmt.Sprintf("%v, want the width of an expert for texts and of "+
				"one for images", m.ExpertWidths), "")
		}
		if n := len(m.ImageTokens); n != 0 && n != 4 {
			at.fault(p+"image_expert_token_ids", fmt.Sprintf("%d tokens, want those that begin and end an image "+
				"and a video", n), "")
		}
	}
	switch n := m.ExpertGroups; {
	case m.Experts%n != 0:
		at.fault(p+"n_group", fmt.Sprintf("num_experts = %d cannot be spread evenly over %d groups",
			m.Experts, n), fmt.Sprintf("try %d", nearestDivisor(m.Experts, n)))
	case m.GroupsKept > n:
		at.fault(p+"topk_group", fmt.Sprintf("there are n_group = %d groups, not %d", n, m.GroupsKept),
			fmt.Sprintf("try %d", n))
	case m.GroupsKept*(m.Experts/n) < m.ExpertsEach:
		at.fault(p+"topk_group",
			fmt.Sprintf("%d groups of %d experts are fewer than num_experts_per_tok = %d", m.GroupsKept,
				m.Experts/n, m.ExpertsEach), "")
	}
	if m.DenseFirst > m.Layers {
		at.fault(p+"first_k_dense_replace", fmt.Sprintf("there are num_hidden_layers = %d layers, not %d",
			m.Layers, m.DenseFirst), "")
	}
	for _, i := range m.DenseLayers {
		if i < 0 || i >= m.Layers {
			at.fault(p+"mlp_only_layers", fmt.Sprintf("there is no layer %d of num_hidden_layers = %d", i,
				m.Layers), "")
		}
	}
}

// checkFamily holds keys to what the family's weights can express.
func (m *Model) checkFamily(at faults) {
	const p = "model.overrides."
	f, ok := hf.Families[m.Decoder()]
	if !ok {
		return
	}
	for _, k := range table().keys {
		if !k.some {
			continue
		}
		key := strings.TrimPrefix(k.Name, p)
		if slices.Contains(f.Has, key) || slices.Contains(f.Offered, key) {
			n, _ := k.field(nil, m).Interface().(int)
			if most, ok := f.Most[key]; ok && n > most {
				at.fault(k.Name, fmt.Sprintf("%d, but checkpoints of %s have %d at most", n, m.ModelType,
					most), fmt.Sprintf("try %d", most))
			}
			continue
		}
		want := k.format(cmp.Or(f.Fixed[key], k.Default))
		if have := formatValue(k.field(nil, m)); have != want {
			at.fault(k.Name, fmt.Sprintf("%s, but %s has %s", have, m.ModelType, want),
				"change model_type or "+key)
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
