package decoders

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// Baichuan 2: a Llama whose checkpoints have one projection for query, key and value, and whose head
// multiplies with rows of length 1. The 7B turns queries and keys; the 13B has linear biases instead, and no
// max_position_embeddings in its config.json but a model_max_length alone.
var _ = family.Register(family.Family{ModelType: "baichuan", Paper: "2309.10305",
	HF: hf.Family{Class: "BaichuanForCausalLM", Remote: true, PlainHeads: true, Has: []string{"position_embeddings"},
		Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "11008", "num_hidden_layers": "32",
			"num_attention_heads": "32", "vocab_size": "125696", "rms_norm_eps": "1e-6", "bos_token_id": "1",
			"eos_token_id": "2"}, Only: map[string]string{"z_loss_weight": "0"}, Omit: []string{"num_key_value_heads",
			"head_dim", "attention_bias", "rope_scaling", "rope_theta", "position_embeddings"},
		Idle: []string{"model_max_length", "gradient_checkpointing", "_from_model_config"}, Read: readBaichuan,
		Write: func(m hf.Values, out map[string]any) {
			out["model_max_length"] = m["max_position_embeddings"]
			if m["position_embeddings"] == alibi {
				delete(out, "max_position_embeddings")
			}
		}}, Spec: func(c configs.Model, s *family.Spec) {
		s.UnitHead, s.LogitScale = true, 1/math.Sqrt(float64(c.Hidden))
	}, Source: baichuanSource})

const alibi = "alibi"

// readBaichuan tells the two sizes apart, and refuses the first generation, whose head is a plain one.
func readBaichuan(d *hf.Decoder, raw map[string]json.RawMessage) {
	const words = "125696" // of all models of the second generation
	if raw["z_loss_weight"] == nil && strings.TrimSpace(string(raw["vocab_size"])) != words {
		d.Fail("z_loss_weight", "is not there, and vocab_size is not "+words+
			": this is a model of Baichuan's first generation, which cannot be trained", "")
	}
	if v := raw["max_position_embeddings"]; v != nil && string(v) != "null" {
		return
	}
	type keys struct {
		Longest int `key:"model_max_length" min:"1"`
	}
	k, ok := hf.Typed(d, raw, "", keys{4096})
	if !ok {
		return
	}
	d.Set("position_embeddings", fmt.Sprintf("%q", alibi))
	d.Set("max_position_embeddings", fmt.Sprint(k.Longest))
}

// baichuanSource maps names to those of Baichuan checkpoints, where query, key and value are the
// rows of one matrix, in that order.
func baichuanSource(c configs.Model) func(string) family.Source {
	width := c.Heads * c.HeadDim
	return func(name string) family.Source {
		s := family.Source{Name: name}
		for i, p := range []string{"q_proj", "k_proj", "v_proj"} {
			if strings.Contains(name, p) {
				s.Name = strings.Replace(name, p, "W_pack", 1)
				s.Rows = [][2]int{{i * width, (i + 1) * width}}
			}
		}
		return s
	}
}
