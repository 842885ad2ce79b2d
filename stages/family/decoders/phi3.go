package decoders

import (
	"encoding/json"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// Phi-3 and Phi-4: Llama with a window, part of each head turning in the small ones, and query, key and
// value, and gate and up, as one matrix each in checkpoints.
var _ = family.Register(family.Family{ModelType: "phi3", Paper: "2404.14219, 2412.08905",
	HF: hf.Family{Class: "Phi3ForCausalLM", Has: []string{"sliding_window", "partial_rotary_factor"},
		Null: []string{"sliding_window"}, Absent: map[string]string{"hidden_size": "3072",
			"intermediate_size": "8192", "num_hidden_layers": "32", "num_attention_heads": "32", "vocab_size": "32064",
			"max_position_embeddings": "4096", "rms_norm_eps": "1e-5", "bos_token_id": "1", "eos_token_id": "32000"},
		Only: map[string]string{"resid_pdrop": "0.0", "embd_pdrop": "0.0"}, Omit: []string{"head_dim"}, Idle: []string{
			"original_max_position_embeddings"}, Prepare: phiLong, Write: func(m hf.Values, out map[string]any) {
			if scaling, ok := m["rope_scaling"].(map[string]any); ok &&
				scaling["original_max_position_embeddings"] != nil {
				out["original_max_position_embeddings"] = scaling["original_max_position_embeddings"]
			}
		}}, Spec: func(_ configs.Model, s *family.Spec) {
		slideAll(s)
	}, Source: func(c configs.Model) func(string) family.Source {
		gateUp := gateUpSource(c)
		return func(name string) family.Source {
			s := gateUp(name)
			q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
			for p, rows := range map[string][2]int{".q_proj.": {0, q}, ".k_proj.": {q, q + kv},
				".v_proj.": {q + kv, q + 2*kv}} {
				if strings.Contains(name, p) {
					s = family.Source{Name: strings.Replace(name, p, ".qkv_proj.", 1), Rows: [][2]int{rows}}
				}
			}
			return s
		}
	}})

// phiLong brings the length that longrope begins at to the other numbers of the scaling: Phi has it at the
// top. What is no mapping is reported with its key.
func phiLong(raw hf.Raw) {
	var scaling hf.Raw
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		if json.Unmarshal(raw[key], &scaling) == nil && scaling["long_factor"] != nil &&
			raw["original_max_position_embeddings"] != nil {
			scaling["original_max_position_embeddings"] = raw["original_max_position_embeddings"]
			raw[key] = json.RawMessage(family.JSONOf(scaling))
		}
	}
}
