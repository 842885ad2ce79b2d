package torch

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

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
	on := func(arg string) bool { return args.get(arg) == true }
	latent := on("multi_latent_attention")
	for _, arg := range sortedKeys(argWants) {
		if latent && slices.Contains(latentReads, arg) {
			continue
		}
		if is := args.get(arg); is != nil && is != argWants[arg] && !(is == false && argWants[arg] == nil) {
			return nil, bad(arg)
		}
	}
	family, ok := argTypes[[3]bool{args.get("num_experts") != nil, on("add_qkv_bias"), on("qk_layernorm")}]
	if latent {
		family, ok = latentTypes[on("moe_router_enable_expert_bias")], !on("add_qkv_bias")
	}
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
	if latent {
		if arg := latentOf(a, args, c); arg != "" {
			return nil, bad(arg)
		}
	}
	return json.MarshalIndent(c, "", "  ")
}

// latentTypes are families of latent attention by whether their routers have a bias that balances.
var latentTypes = map[bool][2]string{false: {"deepseek_v2", "DeepseekV2"}, true: {"deepseek_v3", "DeepseekV3"}}

// latentKeys are settings of latent attention and its experts under config.json's names, without a default but for the first.
var latentKeys = [][2]string{{"q_lora_rank", "q_lora_rank"}, {"kv_lora_rank", "kv_lora_rank"}, {"qk_head_dim", "qk_nope_head_dim"},
	{"qk_pos_emb_head_dim", "qk_rope_head_dim"}, {"v_head_dim", "v_head_dim"}, {"num_experts", "n_routed_experts"},
	{"moe_router_topk", "num_experts_per_tok"}, {"moe_ffn_hidden_size", "moe_intermediate_size"}}

// latentReads are settings that latentOf reads itself.
var latentReads = []string{"multi_latent_attention", "moe_router_score_function", "moe_router_pre_softmax", "moe_layer_freq",
	"moe_router_enable_expert_bias", "moe_shared_expert_intermediate_size", "moe_router_num_groups", "moe_router_topk_scaling_factor"}

// latentOf adds to c what settings of latent attention say, and returns the one that is of no family, "" for none. What scores choose
// among groups, what normalizes them and YaRN are as in Megatron core's moe_utils and yarn_rotary_pos_embedding.
func latentOf(a *archive, args *dict, c map[string]any) string {
	for i, k := range latentKeys {
		if c[k[1]] = args.get(k[0]); c[k[1]] == nil && i > 0 {
			return k[0]
		}
	}
	num := func(arg string, absent float64) float64 {
		if x, ok := a.number(args.get(arg)); ok {
			return x
		}
		return absent
	}
	sigmoid, topk := args.get("moe_router_score_function") == "sigmoid", num("moe_router_topk", 0)
	groups, kept := num("moe_router_num_groups", 1), num("moe_router_group_topk", 1)
	expert, shared := num("moe_ffn_hidden_size", 1), num("moe_shared_expert_intermediate_size", 0)
	layers, listed := args.get("moe_layer_freq").(*list)
	if !listed {
		layers = &list{[]any{int64(num("moe_layer_freq", 1))}}
	}
	first := max(0, slices.IndexFunc(layers.items, func(v any) bool { return v != int64(0) }))
	factor, scale := num("rotary_scaling_factor", 1), num("mscale", 1)
	for _, wrong := range []struct {
		arg string
		is  bool
	}{{"qk_layernorm", args.get("qk_layernorm") != true}, {"moe_router_score_function", sigmoid != (args.get("moe_router_enable_expert_bias") == true)},
		{"moe_router_pre_softmax", !sigmoid && args.get("moe_router_pre_softmax") != true},
		{"moe_layer_freq", slices.ContainsFunc(layers.items[first:], func(v any) bool { return v != int64(1) })},
		{"moe_shared_expert_intermediate_size", math.Mod(shared, expert) != 0},
		// Megatron chooses groups by their best topk/kept scores, transformers by two in V3 and one in V2
		{"moe_router_group_topk", groups > 1 && math.Floor(topk/kept) != map[bool]float64{true: 2, false: 1}[sigmoid]},
		{"mscale_all_dim", factor > 1 && scale != num("mscale_all_dim", 0)}} { // releases of Megatron differ in what they scale then
		if wrong.is {
			return wrong.arg
		}
	}
	delete(c, "head_dim")
	c["num_key_value_heads"], c["n_group"], c["topk_group"] = c["num_attention_heads"], groups, kept
	c["n_shared_experts"], c["first_k_dense_replace"] = shared/expert, first
	c["norm_topk_prob"], c["routed_scaling_factor"] = sigmoid && topk > 1, num("moe_router_topk_scaling_factor", 1)
	if !sigmoid && groups > 1 {
		c["topk_method"] = "group_limited_greedy"
	}
	if factor > 1 && args.get("rope_type") != "rope" { // latent attention has YaRN where nothing is said
		c["rope_scaling"] = map[string]any{"rope_type": "yarn", "factor": factor, "mscale": scale, "mscale_all_dim": scale,
			"beta_fast": num("beta_fast", 32), "beta_slow": num("beta_slow", 1),
			"original_max_position_embeddings": num("original_max_position_embeddings", num("max_position_embeddings", 4096))}
	}
	return ""
}
