package decoders

import (
	"maps"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/family"
)

// OLMo 2: norms behind attention and MLP and none before, and norms of queries and keys over all heads.
var _ = family.Register(family.Family{ModelType: "olmo2", Paper: "2501.00656", HF: hf.Family{
	Class: "Olmo2ForCausalLM", OutBias: true, Has: []string{"attention_bias"}, Absent: map[string]string{
		"hidden_size": "4096", "intermediate_size": "11008", "num_hidden_layers": "32", "num_attention_heads": "32",
		"vocab_size": "50304", "max_position_embeddings": "2048", "rms_norm_eps": "1e-5", "eos_token_id": "50279"},
	Omit: []string{"head_dim"}}, Spec: func(_ configs.Model, s *family.Spec) {
	s.QKWhole, s.Norms = true, olmoNorms
}})

// OLMo 3: OLMo 2 with a window in three layers of four, whose rotary frequencies are never stretched.
var _ = family.Register(family.Family{ModelType: "olmo3", Paper: "2512.13961", HF: hf.Family{
	Class: "Olmo3ForCausalLM", OutBias: true, Has: []string{"attention_bias", "sliding_window", "layer_types",
		"rope_local_base_freq"}, Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "11008",
		"num_hidden_layers": "32", "num_attention_heads": "32", "vocab_size": "50304", "eos_token_id": "50279",
		"max_position_embeddings": "2048", "rms_norm_eps": "1e-5", "sliding_window": "4096", "rope_theta": "500000",
		// whatever rope_theta is
		"rope_local_base_freq": "500000"}, Omit: []string{"head_dim"}, Write: writeRopes},
	Spec: func(c configs.Model, s *family.Spec) {
		s.QKWhole, s.Norms = true, olmoNorms
		s.Alternate(4, c.LayerTypes)
	}})

// writeRopes writes the rotary settings of layers with a window and of the others.
func writeRopes(m hf.Values, out map[string]any) {
	full := map[string]any{"rope_type": "default"}
	if more, ok := m["rope_scaling"].(map[string]any); ok && more != nil {
		maps.Copy(full, more)
	}
	full["rope_theta"] = m["rope_theta"]
	out["rope_parameters"] = map[string]any{"full_attention": full, "sliding_attention": map[string]any{
		"rope_type": "default", "rope_theta": m["rope_local_base_freq"]}}
	for _, key := range []string{"rope_theta", "rope_scaling", "rope_local_base_freq"} {
		delete(out, key)
	}
}

// OLMoE: Llama with norms of queries and keys over all heads, and experts in every layer. intermediate_size is an
// expert's width.
var _ = family.Register(olmoe("olmoe", "2409.02060", family.Norms{}, hf.Family{Class: "OlmoeForCausalLM",
	Only: map[string]string{"clip_qkv": "null"}, Omit: []string{"head_dim"}, Absent: map[string]string{
		"hidden_size": "2048", "intermediate_size": "2048", "num_hidden_layers": "16", "num_attention_heads": "16",
		"vocab_size": "50304", "max_position_embeddings": "4096", "rms_norm_eps": "1e-5", "eos_token_id": "50279",
		"num_experts": "64", "num_experts_per_tok": "8", "router_aux_loss_coef": "0.01"}}))

// FlexOlmo: OLMo 2 with OLMoE's experts.
var _ = family.Register(olmoe("flex_olmo", "2507.07024", olmoNorms, hf.Family{Class: "FlexOlmoForCausalLM",
	Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "11008", "num_hidden_layers": "32",
		"num_attention_heads": "32", "vocab_size": "100352", "max_position_embeddings": "4096", "rms_norm_eps": "1e-6",
		"rope_theta": "500000", "eos_token_id": "100257", "num_experts": "7", "num_experts_per_tok": "5",
		"router_aux_loss_coef": "0.01"}}))

// olmoe adds what OLMo's mixtures share.
func olmoe(name, paper string, norms family.Norms, f hf.Family) family.Family {
	f.OutBias, f.Score = true, "softmax"
	f.Has = []string{"attention_bias", "num_experts", "num_experts_per_tok", "norm_topk_prob", "router_aux_loss_coef",
		"output_router_logits"}
	// transformers' own may lie beyond a small vocabulary
	f.Write = func(_ hf.Values, out map[string]any) { out["pad_token_id"] = nil }
	return family.Family{ModelType: name, Paper: paper, HF: family.Mixed(f), Spec: func(c configs.Model, s *family.Spec) {
		s.QKWhole, s.Norms = true, norms
		s.UseExperts(c, func(int) bool { return false })
		s.Experts.Router = routing.Router{Normalize: family.Mixture.Of(c).NormTopK}
	}, Source: family.EachExpert, Other: func(c configs.Model) func(string) family.Source {
		return family.ExpertPlaces{Width: c.Intermediate}.Source
	}}
}

// olmoNorms are those of OLMo 2.
var olmoNorms = family.Norms{AfterMixer: "post_attention_layernorm", AfterMLP: "post_feedforward_layernorm"}
