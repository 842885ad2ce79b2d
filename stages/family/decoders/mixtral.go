package decoders

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/family"
)

// Mixtral: Mistral with experts, whose weights are a softmax over the chosen ones.
var _ = family.Register(family.Family{ModelType: "mixtral", Paper: "2401.04088",
	HF: hf.Family{Class: "MixtralForCausalLM", Score: "softmax", Has: []string{"sliding_window", "num_experts",
		"num_experts_per_tok", "router_aux_loss_coef", "output_router_logits", "router_jitter_noise"}, Null: []string{
		"sliding_window"}, Alias: map[string]string{"num_local_experts": "num_experts"}, Absent: map[string]string{
		"hidden_size": "4096", "intermediate_size": "14336", "num_hidden_layers": "32", "num_attention_heads": "32",
		"num_key_value_heads": "8", "vocab_size": "32000", "max_position_embeddings": "131072", "rope_theta": "1000000",
		"num_experts": "8", "num_experts_per_tok": "2", "router_aux_loss_coef": "0.001", "bos_token_id": "1",
		"eos_token_id": "2"}}, Spec: func(c configs.Model, s *family.Spec) {
		if c.SlidingWindow > 0 {
			slideAll(s)
		}
		s.UseExperts(c, func(int) bool { return false })
		s.Experts.Router = routing.Router{Normalize: true}
	}, Source: sparseBlocks, Other: func(c configs.Model) func(string) family.Source {
		return family.ExpertPlaces{Width: c.Intermediate}.Source
	}})

// sparseBlocks is where Mixtral and MiniMax keep their experts.
func sparseBlocks(configs.Model) func(string) family.Source {
	return family.ExpertPlaces{Stack: true, Rename: strings.NewReplacer(".mlp.gate."+family.Correction,
		".block_sparse_moe."+family.Correction, ".mlp.", ".block_sparse_moe.",
		".gate_proj.", ".w1.", ".up_proj.", ".w3.", ".down_proj.", ".w2.")}.Source
}
