package family

import (
	"fmt"

	"github.com/lfactor/lfactor/configs"
)

// ScaleKeys are the keys of factors, caps and exceptions of attention and of the ends of a model,
// which few families have.
type ScaleKeys struct {
	LocalTheta    float64 `key:"rope_local_base_freq" default:"0" min:"0" class:"fixed" doc:"Base of the rotary frequencies of layers with sliding_attention; 0 takes rope_theta."`
	NoRope        []int   `key:"no_rope_layers" class:"fixed" doc:"0 for each layer whose queries and keys do not turn, else 1; by default the family's own pattern."`
	QueryScalar   float64 `key:"query_pre_attn_scalar" default:"0" min:"0" class:"fixed" doc:"Scores are divided by its root; 0 means head_dim."`
	AttnScale     float64 `key:"attention_multiplier" default:"0" min:"0" class:"fixed" doc:"Factor on scores; 0 means 1/sqrt(head_dim)."`
	WidthScale    bool    `key:"scale_attn_weights" default:"true" class:"fixed" doc:"Scores are divided by the root of head_dim."`
	DepthScale    bool    `key:"scale_attn_by_inverse_layer_idx" default:"false" class:"fixed" doc:"Scores of the layer with index i are divided by i + 1."`
	AttnCap       float64 `key:"attn_logit_softcapping" default:"0" min:"0" class:"fixed" doc:"Soft cap c of scores s: c·tanh(s/c); 0 means none."`
	LogitCap      float64 `key:"final_logit_softcapping" default:"0" min:"0" class:"fixed" doc:"The same of logits."`
	EmbedScale    float64 `key:"embedding_multiplier" default:"0" min:"0" class:"fixed" doc:"Factor on embeddings; 0 means the family's own, else 1."`
	ResidualScale float64 `key:"residual_multiplier" default:"0" min:"0" class:"fixed" doc:"Factor on what attention and MLP add to the residual stream; 0 means 1."`
	LogitDivisor  float64 `key:"logits_scaling" default:"0" min:"0" class:"fixed" doc:"Divisor of logits; 0 means 1."`
}

// MLPKeys are the keys of layers whose MLPs differ in kind.
type MLPKeys struct {
	MLPTypes []string `key:"mlp_layer_types" oneof:"mlps" class:"fixed" doc:"Kind of each layer's MLP; by default the family's own pattern."`
}

var mlpKinds = configs.Declare("kinds of MLPs", configs.Rules[MLPKeys]{
	Check: func(m configs.Model, k MLPKeys, at configs.Report) {
		if n := len(k.MLPTypes); n > 0 && n != m.Layers {
			at("mlp_layer_types", fmt.Sprintf("%d entries for num_hidden_layers = %d", n, m.Layers),
				"name one for each layer")
		}
	}})

// Scales is what models say of factors, caps and exceptions.
var Scales = configs.Declare("scales", configs.Rules[ScaleKeys]{
	Check: func(m configs.Model, k ScaleKeys, at configs.Report) {
		if n := len(k.NoRope); n > 0 && n != m.Layers {
			at("no_rope_layers", fmt.Sprintf("%d entries for num_hidden_layers = %d", n, m.Layers),
				"give one for each layer")
		}
	}})
