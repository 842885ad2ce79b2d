package torch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// saidBy is the dictionary that a file of torch.save is; nil where there is no file. No tensor of it is read.
func saidBy(path string) (*archive, *dict, error) {
	a, f, err := opened(path, known)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if root, ok := a.value.(*dict); ok {
		return a, root, nil
	}
	return nil, nil, a.fault("", "is no dictionary")
}

// argKeys are Megatron's settings that config.json has under other names.
var argKeys = [][2]string{{"num_layers", "num_hidden_layers"}, {"hidden_size", "hidden_size"}, {"kv_channels", "head_dim"},
	{"ffn_hidden_size", "intermediate_size"}, {"num_attention_heads", "num_attention_heads"}, {"norm_epsilon", "rms_norm_eps"},
	{"num_query_groups", "num_key_value_heads"}, {"rotary_base", "rope_theta"}, {"padded_vocab_size", "vocab_size"},
	{"vocab_size", "vocab_size"}, {"max_position_embeddings", "max_position_embeddings"}, {"num_experts", "num_experts"},
	{"num_experts", "num_local_experts"}, {"moe_ffn_hidden_size", "moe_intermediate_size"}, {"moe_router_topk", "num_experts_per_tok"}}

// argWants are settings with the only value that the families of argTypes have, but for none.
var argWants = map[string]any{"swiglu": true, "normalization": "RMSNorm", "position_embedding_type": "rope", "add_bias_linear": false,
	"multi_latent_attention": false, "apply_layernorm_1p": false, "rotary_percent": 1.0, "rotary_interleaved": false,
	"use_rope_scaling": false, "moe_router_score_function": "softmax", "moe_router_pre_softmax": false, "moe_layer_freq": int64(1),
	"moe_router_enable_expert_bias": false, "moe_shared_expert_intermediate_size": nil, "mtp_num_layers": nil, "window_size": nil,
	"rotary_seq_len_interpolation_factor": nil, "moe_router_num_groups": nil, "moe_router_topk_scaling_factor": nil}

// argTypes are families by whether they have experts, biases of queries, keys and values, and norms of queries and keys.
var argTypes = map[[3]bool][2]string{{}: {"llama", "Llama"}, {false, true, false}: {"qwen2", "Qwen2"},
	{false, false, true}: {"qwen3", "Qwen3"}, {true, false, false}: {"mixtral", "Mixtral"}, {true, false, true}: {"qwen3_moe", "Qwen3Moe"}}

// ModelOf is the config.json of the model of a directory of Megatron's by the settings of its training, args, which lie beside
// the weights; nil where none do. A model of no family that the settings are known of is refused with the setting.
func ModelOf(dir string) ([]byte, error) {
	path := filepath.Join(dir, "common.pt")
	if found, err := filepath.Glob(filepath.Join(dir, "mp_rank_*", rankFile)); err == nil && len(found) > 0 {
		path = found[0]
	}
	a, root, err := saidBy(path)
	if a == nil {
		return nil, err
	}
	o, _ := root.get("args").(*object)
	if o == nil {
		return nil, nil
	}
	args, _ := o.state.(*dict)
	if args == nil {
		return nil, nil
	}
	bad := func(arg string) error {
		return &checkpoint.Error{File: path, Fault: checkpoint.Malformed, Why: fmt.Sprintf("its args have %s = %s, and a model of that is "+
			"not known by args alone: name a directory with its config.json by --like", arg, show(args.get(arg)))}
	}
	if args.get("position_embedding_type") == "learned_absolute" {
		return nil, &checkpoint.Error{File: path, Fault: checkpoint.Malformed, Why: "its args are of " + notTypes["gpt2"]}
	}
	for _, arg := range sortedKeys(argWants) {
		if is := args.get(arg); is != nil && is != argWants[arg] && !(is == false && argWants[arg] == nil) {
			return nil, bad(arg)
		}
	}
	on := func(arg string) bool { return args.get(arg) == true }
	family, ok := argTypes[[3]bool{args.get("num_experts") != nil, on("add_qkv_bias"), on("qk_layernorm")}]
	if !ok || !on("swiglu") || args.get("normalization") == nil {
		return nil, bad(map[bool]string{true: "swiglu", false: "add_qkv_bias"}[ok])
	}
	c := map[string]any{"model_type": family[0], "architectures": []string{family[1] + "ForCausalLM"}, "hidden_act": "silu",
		"tie_word_embeddings": !on("untie_embeddings_and_output_weights"), "attention_bias": false, "norm_topk_prob": true}
	for _, k := range argKeys {
		if v := args.get(k[0]); v != nil && !(k[0] == "num_query_groups" && !on("group_query_attention")) {
			c[k[1]] = v
		}
	}
	if n := c["moe_intermediate_size"]; n != nil && family[0] == "mixtral" { //lfvet:kind Mixtral's experts are its MLPs
		c["intermediate_size"] = n
	}
	return json.MarshalIndent(c, "", "  ")
}
