package decoders

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/family"
)

// ERNIE 4.5 with experts: neighbouring numbers of a head turn together, the first layers are dense, and a
// softmax over all experts chooses with the help of numbers of their own.
var _ = family.Register(family.Family{ModelType: "ernie4_5_moe",
	HF: hf.Family{Class: "Ernie4_5_MoeForCausalLM", Score: "softmax", Corrected: true, Has: []string{"num_experts",
		"num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace",
		"decoder_sparse_step", "moe_layer_end_index", "router_aux_loss_coef", "output_router_logits"}, Alias: map[string]string{"moe_num_experts": "num_experts",
		"moe_k": "num_experts_per_tok", "moe_num_shared_experts": "n_shared_experts",
		"moe_layer_start_index": "first_k_dense_replace", "moe_layer_interval": "decoder_sparse_step"}, Only: map[string]string{"use_bias": "false",
		"moe_norm_min": "1e-12"}, Omit: []string{"attention_bias"}, Idle: []string{
		"moe_capacity", "moe_gate", "moe_use_aux_free", "num_nextn_predict_layers"}, Absent: map[string]string{
		"hidden_size": "2560", "intermediate_size": "12288", "num_hidden_layers": "28", "num_attention_heads": "20",
		"num_key_value_heads": "4", "vocab_size": "103424", "max_position_embeddings": "131072",
		"rope_theta": "500000", "tie_word_embeddings": "true", "moe_intermediate_size": "1536",
		"num_experts_per_tok": "6", "num_experts": "64", "n_shared_experts": "2", "first_k_dense_replace": "1",
		"router_aux_loss_coef": "0.001"}},
	Spec: func(c configs.Model, s *family.Spec) {
		s.RopePairs = true
		s.UseExperts(c, ernieDense(c))
		s.Experts.Bias = "gate." + family.Correction
		s.Experts.Router = routing.Router{Normalize: true, Floor: true, Eps: 1e-12}
	},
	Source: func(configs.Model) func(string) family.Source {
		return family.ExpertPlaces{Stack: true, Lead: true, Rename: strings.NewReplacer(".mlp.gate."+
			family.Correction, ".mlp.moe_statics."+family.Correction)}.Source
	},
	Other: func(c configs.Model) func(string) family.Source {
		return family.ExpertPlaces{Width: family.Mixture.Of(c).ExpertWidth, Lead: true,
			Rename: strings.NewReplacer(".gate."+family.Correction, ".gate.moe_statics."+family.Correction)}.Source
	}})

// ernieDense tells the layers without experts: those before the first with experts and behind the last, and
// those between that the interval leaves out.
func ernieDense(c configs.Model) func(layer int) bool {
	k := family.Mixture.Of(c)
	return func(i int) bool {
		return i < k.DenseFirst || k.LastExperts >= 0 && i > k.LastExperts || (i+1)%k.SparseStep != 0
	}
}
