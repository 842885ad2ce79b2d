package decoders

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// GPT-2: learned positions, layer norms, biases everywhere, an MLP without a gate. Checkpoints keep
// matrices as [in out], and query, key and value as one; those that transformers' own class wrote have a
// prefix that the published ones lack.
var _ = family.Register(family.Family{ModelType: "gpt2",
	Paper: "https://openai.com/index/better-language-models",
	HF: hf.Family{Class: "GPT2LMHeadModel", PlainHeads: true, Has: []string{"hidden_act",
		"scale_attn_weights", "scale_attn_by_inverse_layer_idx"},
		Fixed: map[string]string{"attention_bias": "true", "attention_out_bias": "true", "mlp_bias": "true",
			"position_embeddings": `"learned"`}, Absent: map[string]string{"hidden_size": "768",
			"num_hidden_layers": "12", "num_attention_heads": "12", "vocab_size": "50257",
			"max_position_embeddings": "1024", "rms_norm_eps": "1e-5", "tie_word_embeddings": "true",
			"bos_token_id": "50256", "eos_token_id": "50256", "hidden_act": `"gelu_pytorch_tanh"`},
		Alias: map[string]string{"n_embd": "hidden_size", "n_layer": "num_hidden_layers",
			"n_head": "num_attention_heads", "n_inner": "intermediate_size", "n_positions": "max_position_embeddings",
			"layer_norm_epsilon": "rms_norm_eps"}, Only: map[string]string{"add_cross_attention": "false"}, Omit: []string{
			"attention_bias", "head_dim", "rope_scaling", "rope_theta", "num_key_value_heads", "hidden_act"},
		Idle: []string{"n_ctx", "reorder_and_upcast_attn", "summary_type", "summary_use_proj", "summary_activation",
			"summary_proj_to_labels", "summary_first_dropout", "task_specific_params"}, Dropouts: []string{"attn_pdrop",
			"embd_pdrop", "resid_pdrop"}, Write: func(m hf.Values, out map[string]any) {
			act := m.Text("hidden_act")
			if act == "gelu_pytorch_tanh" {
				act = "gelu_new" // as published files have it
			}
			out["activation_function"] = act
		}, Own: []hf.Own{hf.Keys(gpt2Keys{Width: 768, Act: "gelu_new"}, gpt2Keys.enter)}},
	Spec: func(c configs.Model, s *family.Spec) {
		k := family.Scales.Of(c)
		s.Norm, s.DepthScale = block.Norm{Layer: true}, k.DepthScale
		if !k.WidthScale {
			s.AttnScale = 1
		}
		everywhere(s, "plain")
	},
	Build: func(c configs.Model) *family.Model {
		m := family.Decoder("gpt2", family.SpecOf(c))
		own := gpt2Source(c)
		m.Source = own
		m.Other = family.InTransformers(func(name string) family.Source {
			s := own(name)
			s.Name = strings.TrimPrefix(s.Name, "transformer.")
			return s
		}, [2]string{"", "transformer."})
		return m
	}})

// gpt2Source names parameters as transformers' class does.
func gpt2Source(c configs.Model) func(string) family.Source {
	rename := strings.NewReplacer("model.layers.", "transformer.h.", "model.embed_tokens", "transformer.wte",
		"model.embed_positions", "transformer.wpe", "model.norm", "transformer.ln_f", "input_layernorm",
		"ln_1", "post_attention_layernorm", "ln_2", "self_attn.o_proj", "attn.c_proj", "mlp.up_proj", "mlp.c_fc",
		"mlp.down_proj", "mlp.c_proj", "self_attn.q_proj", "attn.c_attn", "self_attn.k_proj", "attn.c_attn",
		"self_attn.v_proj", "attn.c_attn")
	width := c.Heads * c.HeadDim
	return func(name string) family.Source {
		s := family.Source{Name: rename.Replace(name)}
		s.Turned = strings.Contains(name, "_proj.weight")
		for i, p := range []string{".q_proj.", ".k_proj.", ".v_proj."} {
			if strings.Contains(name, p) {
				s.Rows = [][2]int{{i * width, (i + 1) * width}}
			}
		}
		return s
	}
}

// gpt2Keys are what files say of MLPs. Two names mean the same activation.
type gpt2Keys struct {
	Width int    `key:"hidden_size"`
	Inner int    `key:"intermediate_size"`
	Act   string `key:"activation_function" oneof:"gelu_new|gelu|gelu_pytorch_tanh|relu|silu"`
}

// enter fills in what GPT-2 files leave out or call differently: the MLP is four times as wide as
// the model, and gelu_new is the tanh form of GELU.
func (k gpt2Keys) enter(d *hf.Decoder) {
	if k.Inner == 0 {
		d.Set("intermediate_size", fmt.Sprint(4*k.Width))
	}
	if k.Act == "gelu_new" {
		k.Act = "gelu_pytorch_tanh"
	}
	d.Set("hidden_act", family.JSONOf(k.Act))
}
