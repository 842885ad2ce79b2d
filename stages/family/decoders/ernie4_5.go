package decoders

import (
	"strconv"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// ERNIE 4.5 without experts: Llama whose neighbouring numbers of a head turn together, with biases in all
// linear layers or none.
var _ = family.Register(family.Family{ModelType: "ernie4_5",
	Paper: "https://ernie.baidu.com/blog/posts/ernie4.5",
	HF: hf.Family{Class: "Ernie4_5ForCausalLM", OutBias: true, Has: []string{"attention_bias", "mlp_bias"},
		Omit: []string{"attention_bias", "mlp_bias"}, Absent: map[string]string{"hidden_size": "1024",
			"intermediate_size": "3072", "num_hidden_layers": "18", "num_attention_heads": "16",
			"num_key_value_heads": "2", "head_dim": "128", "vocab_size": "103424", "max_position_embeddings": "131072",
			"rms_norm_eps": "1e-5", "tie_word_embeddings": "true", "bos_token_id": "1", "eos_token_id": "2"},
		Own: []hf.Own{hf.Keys(ernieBias{}, ernieBias.enter)}, Write: writeBiases},
	Spec: func(_ configs.Model, s *family.Spec) { s.RopePairs = true }})

// ernieBias is what files say of biases.
type ernieBias struct {
	On bool `key:"use_bias"`
}

// enter sets the biases of attention and MLP from the one key that the files have for both.
func (k ernieBias) enter(d *hf.Decoder) {
	d.Set("attention_bias", strconv.FormatBool(k.On))
	d.Set("mlp_bias", strconv.FormatBool(k.On))
}

func writeBiases(m hf.Values, out map[string]any) { out["use_bias"] = m["attention_bias"] }

// Files of ERNIE 4.5 and of StarCoder 2 have one key for all biases.
var _ = configs.Declare("one key for biases", configs.Rules[struct{}]{
	Check: func(m configs.Model, _ struct{}, at configs.Report) {
		family := m.Decoder()
		if (family == "ernie4_5" || family == "starcoder2") && m.AttentionBias != m.MLPBias {
			at("mlp_bias", strconv.FormatBool(m.MLPBias)+", but "+family+" has all biases or none",
				"set attention_bias and mlp_bias alike")
		}
	}})
