package decoders

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// LFM2: short convolutions between gates, and some layers of Qwen 3's attention.
var _ = family.Register(family.Family{ModelType: "lfm2", Paper: "2511.23404", HF: hf.Family{Class: "Lfm2ForCausalLM",
	Has: []string{"linear_conv_kernel_dim", "layer_types"}, Fixed: map[string]string{"qk_norm": "true",
		"hidden_act": `"silu"`}, Omit: []string{"qk_norm", "attention_bias", "hidden_act"}, Alias: map[string]string{
		"norm_eps": "rms_norm_eps", "conv_L_cache": "linear_conv_kernel_dim", "tie_embedding": "tie_word_embeddings"},
	Only: map[string]string{"conv_bias": "false", "block_auto_adjust_ff_dim": "false"}, Absent: map[string]string{
		"hidden_size": "2560", "intermediate_size": "12288", "num_hidden_layers": "32", "num_attention_heads": "32",
		"num_key_value_heads": "8", "vocab_size": "65536", "max_position_embeddings": "128000", "rms_norm_eps": "1e-5",
		"rope_theta": "1000000", "tie_word_embeddings": "true", "linear_conv_kernel_dim": "3", "bos_token_id": "1",
		"eos_token_id": "2"}, Prepare: lfm2File, Idle: []string{"block_dim", "block_mlp_init_scale", "block_norm_eps",
		"block_out_init_scale", "block_use_swiglu", "block_use_xavier_init", "conv_dim", "conv_dim_out",
		"conv_use_xavier_init", "num_heads", "use_pos_enc"}}, Spec: func(c configs.Model, s *family.Spec) {
	s.Norms = family.Norms{BeforeMixer: "operator_norm", BeforeMLP: "ffn_norm"}
	s.Delta.Taps = family.Linear.Of(c).LinearTaps
}, Source: func(c configs.Model) func(string) family.Source {
	mlp := strings.NewReplacer("mlp.gate_proj", "feed_forward.w1", "mlp.up_proj", "feed_forward.w3", "mlp.down_proj",
		"feed_forward.w2", "model.norm.", "model.embedding_norm.", ".q_norm", ".q_layernorm", ".k_norm", ".k_layernorm",
		".o_proj", ".out_proj")
	return func(name string) family.Source {
		s := family.Source{Name: mlp.Replace(name)}
		before, part, ok := strings.Cut(name, ".self_attn.")
		if !ok || len(c.LayerTypes) == 0 || c.LayerTypes[layerNumber(before)] != family.ConvMixer {
			return s
		}
		s.Name = strings.Replace(s.Name, ".self_attn.", ".conv.", 1)
		if part == "x_conv.weight" {
			s.Name, s.Tail = before+".conv.conv.weight", []int{1, family.Linear.Of(c).LinearTaps}
		} else if i := slices.Index([]string{"b_proj.weight", "c_proj.weight", "x_proj.weight"}, part); i >= 0 {
			s.Name, s.Rows = before+".conv.in_proj.weight", [][2]int{{i * c.Hidden, (i + 1) * c.Hidden}}
		}
		return s
	}
}})

// lfm2File writes out what the MLP's width and the layers with attention come to.
func lfm2File(raw hf.Raw) {
	var k struct {
		Layers   int       `json:"num_hidden_layers"`
		Width    int       `json:"intermediate_size"`
		Other    int       `json:"block_ff_dim"`
		Adjusts  bool      `json:"block_auto_adjust_ff_dim"`
		Factor   float64   `json:"block_ffn_dim_multiplier"`
		Multiple int       `json:"block_multiple_of"`
		Full     *[]int    `json:"full_attn_idxs"`
		Kinds    *[]string `json:"layer_types"`
	}
	k.Layers, k.Width, k.Adjusts, k.Factor, k.Multiple = 32, 12288, true, 1, 256
	text, err := json.Marshal(raw)
	if err != nil || json.Unmarshal(text, &k) != nil || k.Multiple < 1 {
		return // what is of another type is reported where it is entered
	}
	if k.Other > 0 {
		k.Width = k.Other
	}
	if k.Adjusts {
		k.Width = (int(k.Factor*float64(2*k.Width/3)) + k.Multiple - 1) / k.Multiple * k.Multiple
	}
	raw["intermediate_size"], raw["block_auto_adjust_ff_dim"] = json.RawMessage(family.JSONOf(k.Width)), []byte("false")
	for _, key := range []string{"block_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of", "full_attn_idxs"} {
		delete(raw, key)
	}
	if k.Kinds == nil && k.Full != nil {
		kinds := make([]string, k.Layers)
		for i := range kinds {
			if kinds[i] = family.ConvMixer; slices.Contains(*k.Full, i) {
				kinds[i] = "full_attention"
			}
		}
		raw["layer_types"] = json.RawMessage(family.JSONOf(kinds))
	}
}
