package family

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs"
)

// ExpertKeys are the keys of layers with a mixture of experts.
type ExpertKeys struct {
	Experts       int     `key:"num_experts" flag:"num-experts" default:"0" min:"0" max:"65536" class:"fixed" doc:"Experts of a layer with a mixture of them."`
	ExpertsEach   int     `key:"num_experts_per_tok" flag:"moe-router-topk" default:"0" min:"0" max:"65536" class:"fixed" doc:"Experts that a token goes to."`
	ExpertWidth   int     `key:"moe_intermediate_size" default:"0" min:"0" max:"16777216" class:"fixed" doc:"Width of gate and up in an expert."`
	NormTopK      bool    `key:"norm_topk_prob" default:"false" class:"fixed" doc:"The weights of a token's experts are divided by their sum."`
	ExpertGroups  int     `key:"n_group" flag:"moe-router-num-groups" default:"1" min:"1" class:"fixed" doc:"Groups of neighbouring experts, of which the best are chosen from first."`
	GroupsKept    int     `key:"topk_group" flag:"moe-router-group-topk" default:"1" min:"1" class:"fixed" doc:"Groups that a token's experts are chosen from."`
	RoutedScale   float64 `key:"routed_scaling_factor" flag:"moe-router-topk-scaling-factor" default:"1" min:"0" class:"fixed" doc:"Factor on the weights of a token's experts."`
	SharedExperts int     `key:"n_shared_experts" default:"0" min:"0" class:"fixed" doc:"Experts that all tokens go to, beside those that are chosen."`
	SharedWidth   int     `key:"shared_expert_intermediate_size" default:"0" min:"0" class:"fixed" doc:"Width of an MLP that all tokens go to, through a gate of its own."`
	DenseFirst    int     `key:"first_k_dense_replace" default:"0" min:"0" class:"fixed" doc:"First layers that have one MLP in place of experts."`
	RouterJitter  float64 `key:"router_jitter_noise" flag:"moe-input-jitter-eps" default:"0" min:"0" max:"1" class:"fixed" doc:"How far from 1 what experts and their router read is multiplied at random in training (arXiv:2101.03961, section 2.2)."`
	SparseStep    int     `key:"decoder_sparse_step" default:"1" min:"1" class:"fixed" doc:"Every layer of so many, from the last of the first ones on, has experts; the others one MLP."`
	DenseLayers   []int   `key:"mlp_only_layers" class:"fixed" doc:"Layers that have one MLP whatever decoder_sparse_step says."`
	LastExperts   int     `key:"moe_layer_end_index" default:"-1" min:"-1" class:"fixed" doc:"Index of the last layer with experts, behind which layers have one MLP; -1 is that of the last layer."`
	BalanceCoef   float64 `key:"router_aux_loss_coef" default:"0" min:"0" class:"fixed" doc:"Factor on the loss of balance of experts, for train.router.loss."`
	RouterLogits  bool    `key:"output_router_logits" default:"false" class:"fixed" doc:"transformers adds the loss of balance to the model's: what train.router.loss: model follows."`
}

// Mixture is what models say of experts.
var Mixture = configs.Declare("experts", configs.Rules[ExpertKeys]{
	Check: func(m configs.Model, k ExpertKeys, at configs.Report) {
		if k.Experts == 0 {
			return
		}
		switch {
		case k.ExpertsEach == 0:
			at("num_experts_per_tok", "is not given", "")
		case k.ExpertsEach > k.Experts:
			at("num_experts_per_tok", fmt.Sprintf("a token cannot go to %d of num_experts = %d",
				k.ExpertsEach, k.Experts), fmt.Sprintf("try %d", k.Experts))
		}
		if m.Has("moe_intermediate_size") {
			required(at, "moe_intermediate_size", k.ExpertWidth)
		}
		k.checkGroups(at)
		k.checkLayers(m.Layers, at)
	}})

// checkGroups holds the groups that experts are chosen from to their number.
func (k ExpertKeys) checkGroups(at configs.Report) {
	switch n := k.ExpertGroups; {
	case k.Experts%n != 0:
		at("n_group", fmt.Sprintf("num_experts = %d cannot be spread evenly over %d groups", k.Experts, n),
			fmt.Sprintf("try %d", configs.NearestDivisor(k.Experts, n)))
	case k.GroupsKept > n:
		at("topk_group", fmt.Sprintf("there are n_group = %d groups, not %d", n, k.GroupsKept),
			fmt.Sprintf("try %d", n))
	case k.GroupsKept*(k.Experts/n) < k.ExpertsEach:
		at("topk_group", fmt.Sprintf("%d groups of %d experts are fewer than num_experts_per_tok = %d",
			k.GroupsKept, k.Experts/n, k.ExpertsEach), "")
	}
}

// checkLayers holds the layers without experts to those that there are.
func (k ExpertKeys) checkLayers(layers int, at configs.Report) {
	if k.DenseFirst > layers {
		at("first_k_dense_replace", fmt.Sprintf("there are num_hidden_layers = %d layers, not %d", layers,
			k.DenseFirst), "")
	}
	for _, i := range k.DenseLayers {
		if i < 0 || i >= layers {
			at("mlp_only_layers", fmt.Sprintf("there is no layer %d of num_hidden_layers = %d", i, layers), "")
		}
	}
}

// ImageExpertKeys are the keys of experts of which some are for images.
type ImageExpertKeys struct {
	ExpertWidths []int `key:"moe_intermediate_sizes" class:"fixed" doc:"Width of gate and up in an expert for texts, and in one for images and videos, where each have experts of their own."`
	ImageTokens  []int `key:"image_expert_token_ids" class:"fixed" doc:"Tokens that go to the experts for images beside features: those that begin and end an image, and a video."`
}

// ImageExperts is what models say of experts for images.
var ImageExperts = configs.Declare("experts for images", configs.Rules[ImageExpertKeys]{
	Check: func(m configs.Model, k ImageExpertKeys, at configs.Report) {
		if !m.Has("moe_intermediate_sizes") || Mixture.Of(m).Experts == 0 {
			return
		}
		if len(k.ExpertWidths) != 2 || slices.Min(k.ExpertWidths) < 1 {
			at("moe_intermediate_sizes", fmt.Sprintf("%v, want the width of an expert for texts and of one "+
				"for images", k.ExpertWidths), "")
		}
		if n := len(k.ImageTokens); n != 0 && n != 4 {
			at("image_expert_token_ids", fmt.Sprintf("%d tokens, want those that begin and end an image "+
				"and a video", n), "")
		}
	}})

// BoundKeys are the keys of experts whose gate and up have bounds.
type BoundKeys struct {
	GateBound float64 `key:"swiglu_limit" default:"0" min:"0" class:"fixed" doc:"Bound of gate (from above) and up (from both sides) in an expert."`
	GateSlope float64 `key:"swiglu_alpha" default:"1.702" min:"0" class:"fixed" doc:"Factor on what the sigmoid of an expert's bounded gate reads."`
}

// Bounds is what models say of bounds of experts.
var Bounds = configs.Declare("bounded experts", configs.Rules[BoundKeys]{})
