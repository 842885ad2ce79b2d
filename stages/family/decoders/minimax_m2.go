package decoders

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/family"
)

// MiniMax M2: queries and keys are normed over all heads together, some of each head turns, and experts that
// a sigmoid scores and numbers of their own help to choose. intermediate_size is an expert's width.
var _ = family.Register(family.Family{ModelType: "minimax_m2",
	HF: hf.Family{Class: "MiniMaxM2ForCausalLM", Score: "sigmoid", Corrected: true, Has: []string{"num_experts",
		"num_experts_per_tok", "router_aux_loss_coef", "output_router_logits", "router_jitter_noise",
		"partial_rotary_factor"}, Fixed: map[string]string{"qk_norm": "true"}, Omit: []string{"qk_norm",
		"partial_rotary_factor", "attention_bias"}, Alias: map[string]string{"num_local_experts": "num_experts"},
		Only: map[string]string{"use_qk_norm": "true", "qk_norm_type": `"per_layer"`, "scoring_func": `"sigmoid"`,
			"use_routing_bias": "true", "shared_intermediate_size": "0"}, Idle: []string{"attn_type_list",
			"num_mtp_modules", "mtp_transformer_layers", "use_mtp", "layernorm_full_attention_beta",
			"layernorm_linear_attention_beta", "layernorm_mlp_beta", "shared_moe_mode"}, Absent: map[string]string{
			"hidden_size": "3072", "intermediate_size": "1536", "num_hidden_layers": "62", "num_attention_heads": "48",
			"num_key_value_heads": "8", "head_dim": "128", "vocab_size": "200064", "max_position_embeddings": "196608",
			"rms_norm_eps": "1e-6", "rope_theta": "5000000", "num_experts": "256", "num_experts_per_tok": "8",
			"router_aux_loss_coef": "0.001", "bos_token_id": "200034", "eos_token_id": "200020"}, Own: []hf.Own{
			hf.Keys(minimaxKeys{Head: 128}, minimaxKeys.enter)}, Write: func(m hf.Values, out map[string]any) {
			out["rotary_dim"] = int(m["partial_rotary_factor"].(float64) * float64(m.Int("head_dim")))
		}},
	Spec: func(c configs.Model, s *family.Spec) {
		s.QKNorm, s.QKWhole = false, true
		s.UseExperts(c, func(int) bool { return false })
		s.Experts.Bias = "gate." + family.Correction
		s.Experts.Router = routing.Router{Score: routing.Sigmoid, Normalize: true}
	},
	Loong:  []loong.Decoder{{Class: "MinimaxConfig", Alone: true}},
	Source: sparseBlocks,
	Other: func(c configs.Model) func(string) family.Source {
		return family.ExpertPlaces{Width: c.Intermediate,
			Rename: strings.NewReplacer(".mlp.gate."+family.Correction, ".mlp."+family.Correction)}.Source
	}})

// minimaxKeys are what files say of the part of a head that turns: of several, transformers heeds the share
// in rope_parameters, then the share by itself, then rotary_dim.
type minimaxKeys struct {
	Turns int      `key:"rotary_dim" min:"1"`
	Head  int      `key:"head_dim"`
	Part  *float64 `key:"partial_rotary_factor"`
	Rope  hf.Raw   `key:"rope_parameters"`
}

// enter turns the number of rotated columns that MiniMax files give into the share of a head,
// unless the file has the share as well.
func (k minimaxKeys) enter(d *hf.Decoder) {
	if k.Turns > 0 && k.Head > 0 && k.Part == nil && k.Rope["partial_rotary_factor"] == nil {
		d.Set("partial_rotary_factor", fmt.Sprint(float64(k.Turns)/float64(k.Head)))
	}
}
