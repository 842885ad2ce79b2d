package decoders

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// StarCoder 2: layer norms, biases everywhere or nowhere else, an MLP without a gate, and windows in all layers.
var _ = family.Register(family.Family{ModelType: "starcoder2", Paper: "2402.19173", HF: hf.Family{
	Class: "Starcoder2ForCausalLM", OutBias: true, Has: []string{"sliding_window", "attention_bias", "mlp_bias"},
	Null: []string{"sliding_window"}, Usual: map[string]string{"attention_bias": "true", "mlp_bias": "true",
		"hidden_act": `"gelu_pytorch_tanh"`}, Absent: map[string]string{"hidden_act": `"gelu_pytorch_tanh"`,
		"hidden_size": "3072", "intermediate_size": "12288", "num_hidden_layers": "30", "num_attention_heads": "24",
		"num_key_value_heads": "2", "vocab_size": "49152", "max_position_embeddings": "4096",
		"rms_norm_eps": "1e-5", "tie_word_embeddings": "true", "bos_token_id": "50256", "eos_token_id": "50256"},
	Alias: map[string]string{"norm_epsilon": "rms_norm_eps"}, Only: map[string]string{"mlp_type": `"default"`,
		"norm_type": `"layer_norm"`}, Omit: []string{"attention_bias", "mlp_bias", "head_dim", "rope_scaling"},
	Own: []hf.Own{hf.Keys(ernieBias{On: true}, ernieBias.enter)}, Write: writeBiases, Dropouts: []string{
		"attention_dropout", "residual_dropout", "embedding_dropout"}}, Spec: func(_ configs.Model, s *family.Spec) {
	s.Norm = block.Norm{Layer: true}
	everywhere(s, "plain")
	slideAll(s)
}, Source: func(configs.Model) func(string) family.Source {
	rename := strings.NewReplacer(".mlp.up_proj.", ".mlp.c_fc.", ".mlp.down_proj.", ".mlp.c_proj.")
	return func(name string) family.Source { return family.Source{Name: rename.Replace(name)} }
}})

// everywhere gives all layers the same kind of MLP.
func everywhere(s *family.Spec, mlp string) {
	s.MLPs = nil
	for range s.Layers {
		s.MLPs = append(s.MLPs, mlp)
	}
}
