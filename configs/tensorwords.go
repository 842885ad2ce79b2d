package configs

import (
	"path"
	"slices"

	"github.com/lfactor/lfactor/configs/source"
)

// Megatron-LM and LoongForge name what is moved or computed again by modules. Entries of plan.offload_tensors
// and plan.recompute_tensors may be such words; they stand for the tensors of these names, in which * is
// anything, as far as a model has them.

// movedBy are the tensors that a module reads and the backward needs, and tensors by LoongForge's names.
var movedBy = map[string][]string{
	"attn_norm":                {"sum.*"},
	"core_attn":                {"rope", "rope.*", "join_heads", "*.v_proj", "*.v_b_proj"},
	"attn_proj":                {"attention"},
	"mlp_norm":                 {"sum"},
	"expert_fc1":               dispatched,
	"moe_act":                  {"*.experts.gate_proj", "*.experts.up_proj", "*.experts.w1", "*.experts.w3"},
	"dispatched_input":         dispatched,
	"pre_mlp_layernorm_output": {"*post_attention_layernorm"},
}

var dispatched = []string{"spread", "spread.exchanged"}

// againBy are the tensors that a module makes.
var againBy = map[string][]string{
	"core_attn":             {"attention"},
	"layernorm":             {"*input_layernorm", "*post_attention_layernorm"},
	"mla_up_proj":           {"*.q_b_proj", "*.k_b_proj", "*.v_b_proj", "join_heads"},
	"moe_act":               {"swiglu", "swiglu.*"},
	"mlp":                   {"mlp.gate_proj", "mlp.up_proj"},
	"moe":                   slices.Concat(dispatched, expertsOwn),
	"shared_experts":        {"*.shared_expert*.gate_proj", "*.shared_expert*.up_proj"},
	"a2a_overlap_attn":      {"*input_layernorm", "self_attn.*", "rope", "rope.*", "join_heads", "attention"},
	"a2a_overlap_post_attn": {"*post_attention_layernorm", "*.gate", "spread"},
	"a2a_overlap_mlp":       expertsOwn,
}

var expertsOwn = []string{"*.experts.gate_proj", "*.experts.up_proj", "*.experts.w1", "*.experts.w3", "swiglu"}

// Globs are the patterns of names that an entry of plan.offload_tensors, or of plan.recompute_tensors, stands
// for if its name is a module's word; nil for a tensor's own name.
func (t *TensorName) Globs(offload bool) []string {
	if offload {
		return movedBy[t.Name]
	}
	return againBy[t.Name]
}

// Matches reports whether a tensor of a block has one of an entry's names.
func (t *TensorName) Matches(globs []string, block int, name string) bool {
	if globs == nil {
		return t.Has(block, name)
	}
	of := *t
	of.Name = name
	return of.Has(block, name) && slices.ContainsFunc(globs, func(g string) bool {
		ok, err := path.Match(g, name)
		return ok && err == nil
	})
}

// moveFlags are the flags whose values together are plan.offload_tensors.
var moveFlags = source.Set("offload-modules", "offload-tensors")

// moveFlag enters what the flags name.
func (l *loader) moveFlag() {
	if len(l.moved) == 0 {
		return
	}
	l.add(setting{table().byName["plan.offload_tensors"], source.ListNode(l.moved),
		Origin{Layer: source.LayerFlag, Text: "--offload-modules or --offload-tensors"}})
}
