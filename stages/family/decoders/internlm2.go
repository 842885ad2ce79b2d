package decoders

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/stages/family"
)

// InternLM2.5: a Llama whose checkpoints keep, for each key head, its query heads, key and value next to each other.
var _ = family.Register(family.Family{ModelType: "internlm2", Paper: "2403.17297",
	HF: hf.Family{Class: "InternLM2ForCausalLM", Remote: true, Alias: map[string]string{"bias": "attention_bias"},
		Absent: map[string]string{"rms_norm_eps": "1e-6", "max_position_embeddings": "2048"}},
	Loong: []loong.Decoder{{Class: "InternLMConfig", Dynamic: func(base string) string {
		if source.SameValue(base, "5e7") {
			return "2.5" // InternLM2.5's own factor is 2 with a base of 1e6, 2.5 with 5e7
		}
		return "2"
	}}}, Source: internSource})

// internSource maps names to those of InternLM2 checkpoints. Its one matrix for attention is
// ordered by groups: the queries of a key-value head, then its key, then its value.
func internSource(c configs.Model) func(string) family.Source {
	rename := strings.NewReplacer("model.embed_tokens", "model.tok_embeddings", "lm_head", "output", "input_layernorm",
		"attention_norm", "post_attention_layernorm", "ffn_norm", "self_attn.o_proj", "attention.wo", "mlp.gate_proj",
		"feed_forward.w1", "mlp.up_proj", "feed_forward.w3", "mlp.down_proj", "feed_forward.w2", "self_attn.q_proj",
		"attention.wqkv", "self_attn.k_proj", "attention.wqkv", "self_attn.v_proj", "attention.wqkv")
	per := c.Heads / max(1, c.KVHeads)
	group := (per + 2) * c.HeadDim
	return func(name string) family.Source {
		s := family.Source{Name: rename.Replace(name)}
		from, to := 0, 0
		switch {
		case strings.Contains(name, ".q_proj."):
			to = per * c.HeadDim
		case strings.Contains(name, ".k_proj."):
			from, to = per*c.HeadDim, (per+1)*c.HeadDim
		case strings.Contains(name, ".v_proj."):
			from, to = (per+1)*c.HeadDim, group
		default:
			return s
		}
		for g := range c.KVHeads {
			s.Rows = append(s.Rows, [2]int{g*group + from, g*group + to})
		}
		return s
	}
}
