package family

import (
	"encoding/json"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
)

// SmolLM 3: Llama without positions in every fourth layer (arXiv:2501.18795).
var _ = Register(Family{ModelType: "smollm3", Paper: "2501.18795",
	HF: hf.Family{Class: "SmolLM3ForCausalLM", Has: []string{"no_rope_layers", "attention_bias"},
		Absent: map[string]string{"hidden_size": "2048", "intermediate_size": "11008",
			"num_hidden_layers": "36", "num_attention_heads": "16", "num_key_value_heads": "4",
			"vocab_size": "128256", "max_position_embeddings": "32768", "rms_norm_eps": "1e-6",
			"rope_theta": "2000000", "tie_word_embeddings": "true",
			"bos_token_id": "128000", "eos_token_id": "128001"},
		Omit: []string{"head_dim"}, Idle: []string{"no_rope_layer_interval"},
		Read: func(d *hf.Decoder, raw map[string]json.RawMessage) {
			var n int
			if raw["no_rope_layers"] == nil && json.Unmarshal(raw["no_rope_layer_interval"],
				&n) == nil && n != 4 {
				d.Sink.Fail(d.O, "no_rope_layer_interval",
					"only 4 can be trained where no_rope_layers does not name the layers", "")
			}
		}},
	Spec: func(c configs.Model, s *Spec) {
		s.OBias = c.AttentionBias
		s.NoRope = func(i int) bool {
			if turns := scales.Of(c).NoRope; i < len(turns) {
				return turns[i] == 0
			}
			return (i+1)%4 == 0
		}
	}})
