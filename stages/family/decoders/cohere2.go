package decoders

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Cohere2Keys are the keys that Command R7B alone has.
type Cohere2Keys struct {
	LogitScale float64 `key:"logit_scale" default:"0.0625" min:"0" class:"fixed" doc:"Factor on logits."`
}

var cohere2 = configs.Declare("cohere2", configs.Rules[Cohere2Keys]{})

// Command R7B: attention and MLP read the same rows, normed to mean 0 by layer norms without a bias, and are
// added together; three layers with a window, whose neighbouring numbers turn together, to one that sees
// everything and has no positions (arXiv:2501.18795).
var _ = family.Register(family.Family{ModelType: "cohere2", Paper: "2504.00698",
	HF: hf.Family{Class: "Cohere2ForCausalLM", OutBias: true,
		Has: []string{"attention_bias", "hidden_act", "sliding_window", "layer_types", "logit_scale"},
		Absent: map[string]string{"hidden_size": "8192", "intermediate_size": "22528", "num_hidden_layers": "40",
			"num_attention_heads": "64", "vocab_size": "256000", "max_position_embeddings": "8192",
			"rms_norm_eps": "1e-5", "tie_word_embeddings": "true", "sliding_window": "4096", "bos_token_id": "5",
			"eos_token_id": "255001"}, Alias: map[string]string{"layer_norm_eps": "rms_norm_eps"},
		Omit: []string{"head_dim"}, Idle: []string{"cache_implementation", "order_of_interleaved_layers",
			"position_embedding_type", "rotary_pct", "use_embedding_sharing", "use_gated_activation",
			"use_parallel_block", "use_parallel_embedding"}, Only: map[string]string{"use_qk_norm": "false"},
		Own: []hf.Own{hf.Keys(cohere2File{Pattern: 4, Layers: 40}, cohere2File.enter)}},
	Spec: func(c configs.Model, s *family.Spec) {
		s.RopePairs = true
		s.Norm = block.Norm{Layer: true, Bare: true}
		s.Norms = family.Norms{BeforeMixer: "input_layernorm", Abreast: true}
		s.LogitScale = cohere2.Of(c).LogitScale
		s.Alternate(4, c.LayerTypes)
		s.NoRope = func(layer int) bool { return s.Mixers[layer] == "full_attention" }
	}})

// cohere2File is what files say of layers without a window.
type cohere2File struct {
	Pattern int      `key:"sliding_window_pattern" min:"1"`
	Layers  int      `key:"num_hidden_layers"`
	Types   []string `key:"layer_types"`
}

// enter writes out the kind of each layer for files that only give the pattern. A pattern of 4 is
// what layers have without being told.
func (k cohere2File) enter(d *hf.Decoder) {
	if k.Types != nil || k.Pattern == 4 {
		return
	}
	s := family.Spec{Layers: k.Layers}
	s.Alternate(k.Pattern, nil)
	d.Set("layer_types", family.JSONOf(s.Mixers))
}

// Command R: Command R7B without windows, whose layers all turn.
var _ = family.Register(family.Family{ModelType: "cohere", HF: hf.Family{Class: "CohereForCausalLM", OutBias: true,
	Has: []string{"attention_bias", "logit_scale"}, Absent: map[string]string{"hidden_size": "8192",
		"intermediate_size": "22528", "num_hidden_layers": "40", "num_attention_heads": "64", "vocab_size": "256000",
		"max_position_embeddings": "8192", "rms_norm_eps": "1e-5", "rope_theta": "500000",
		"tie_word_embeddings": "true", "bos_token_id": "5", "eos_token_id": "255001"},
	Alias: map[string]string{"layer_norm_eps": "rms_norm_eps"}, Omit: []string{"head_dim"},
	Only: map[string]string{"use_qk_norm": "false"}}, Spec: func(c configs.Model, s *family.Spec) {
	s.RopePairs = true
	s.Norm = block.Norm{Layer: true, Bare: true}
	s.Norms = family.Norms{BeforeMixer: "input_layernorm", Abreast: true}
	s.LogitScale = cohere2.Of(c).LogitScale
}})
