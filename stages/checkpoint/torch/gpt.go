package torch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// gpt is a model as its config.json has it.
type gpt struct {
	Type    string `json:"model_type"`
	Layers  int    `json:"num_hidden_layers"`
	Hidden  int    `json:"hidden_size"`
	Heads   int    `json:"num_attention_heads"`
	KV      *int   `json:"num_key_value_heads"`
	Dim     int    `json:"head_dim"`
	MLP     int    `json:"intermediate_size"`
	Vocab   int    `json:"vocab_size"`
	Tied    *bool  `json:"tie_word_embeddings"`
	Bias    bool   `json:"attention_bias"`
	MLPBias bool   `json:"mlp_bias"`
	Experts int    `json:"num_experts"`
	Locals  int    `json:"num_local_experts"`
	Expert  int    `json:"moe_intermediate_size"`
	Dense   []int  `json:"mlp_only_layers"`
	Sparse  *int   `json:"decoder_sparse_step"`
	Quant   any    `json:"quantization_config"`
	experts expertNames
	qkNorm  bool
	stacked bool
	has     func(key string) bool
	all     []*composed
}

// expertNames are those of a family's experts in a layer.
type expertNames struct{ router, gate, up, down string }

// gptTypes are the families that Megatron's GPT has, with the names of their experts.
var gptTypes = map[string]expertNames{"llama": {}, "mistral": {}, "qwen2": {}, "qwen3": {},
	"qwen3_moe": {"mlp.gate", "mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj",
		"mlp.experts.%d.down_proj"},
	"mixtral": {"block_sparse_moe.gate", "block_sparse_moe.experts.%d.w1", "block_sparse_moe.experts.%d.w3",
		"block_sparse_moe.experts.%d.w2"}}

// readGPT reads the config.json of a directory.
func readGPT(dir string) (*gpt, error) {
	path := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	g := &gpt{}
	bad := func(format string, a ...any) (*gpt, error) {
		return nil, &checkpoint.Error{File: path, Fault: checkpoint.Malformed,
			Why: fmt.Sprintf(format, a...)}
	}
	if err := json.Unmarshal(text, g); err != nil {
		return bad("%v", err)
	}
	names, ok := gptTypes[g.Type]
	if !ok {
		return bad("model_type is %q: models of %s have names in Megatron that are known", g.Type,
			strings.Join(sortedKeys(gptTypes), ", "))
	}
	if g.KV == nil {
		g.KV = &g.Heads
	}
	if g.Dim == 0 && g.Heads > 0 {
		g.Dim = g.Hidden / g.Heads
		if strings.HasPrefix(g.Type, "qwen3") {
			g.Dim = 128 // transformers' default
		}
	}
	if g.experts, g.qkNorm = names, strings.HasPrefix(g.Type, "qwen3"); names.router != "" {
		if g.Experts == 0 {
			g.Experts = g.Locals
		}
		if g.Expert == 0 {
			g.Expert = g.MLP
		}
		if g.Experts == 0 || len(g.Dense) > 0 || g.Sparse != nil && *g.Sparse != 1 {
			return bad("a mixture of %d experts, dense layers %v: all layers are to have experts",
				g.Experts, g.Dense)
		}
	}
	g.Bias = g.Bias || g.Type == "qwen2"
	for _, n := range []int{g.Layers, g.Hidden, g.Heads, *g.KV, g.Dim, g.MLP, g.Vocab} {
		if n < 1 || n > 1<<24 {
			return bad("a size is %d", n)
		}
	}
	if g.Heads%*g.KV != 0 || g.MLPBias || g.Quant != nil {
		return bad("%d heads of %d groups, biases of MLPs or quantized weights are not converted", g.Heads,
			*g.KV)
	}
	return g, nil
}

// tied reports whether the head is the embedding.
func (g *gpt) tied() bool { return g.Tied != nil && *g.Tied }

// links are all tensors of Hugging Face, made of Megatron's. has says which keys Megatron's side has, where
// a name differs between its ways of building layers.
func (g *gpt) links(stacked bool, has func(key string) bool) []*composed {
	g.stacked, g.has, g.all = stacked, has, nil
	h := g.Hidden
	g.add("model.embed_tokens.weight", []int{h}, piece{"embedding.word_embeddings.weight", nil, 0, g.Vocab})
	g.add("model.norm.weight", nil, piece{"decoder.final_layernorm.weight", nil, 0, h})
	if !g.tied() {
		g.add("lm_head.weight", []int{h}, piece{"output_layer.weight", nil, 0, g.Vocab})
	}
	for n := range g.Layers {
		g.attention(n)
		if g.experts.router != "" {
			g.mixture(n)
			continue
		}
		g.layer(n, "mlp.gate_proj.weight", []int{h}, piece{"mlp.linear_fc1.weight", nil, 0, g.MLP})
		g.layer(n, "mlp.up_proj.weight", []int{h}, piece{"mlp.linear_fc1.weight", nil, g.MLP, g.MLP})
		g.layer(n, "mlp.down_proj.weight", []int{g.MLP}, piece{"mlp.linear_fc2.weight", nil, 0, h})
	}
	return g.all
}

// attention adds a layer's norms and projections.
func (g *gpt) attention(n int) {
	h, d := g.Hidden, g.Dim
	norm := func(hf string, names ...string) {
		at := slices.IndexFunc(names, func(name string) bool { key, _ := g.key(n, name); return g.has(key) })
		g.layer(n, hf, nil, piece{names[max(0, at)], nil, 0, h})
	}
	norm("input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight")
	norm("post_attention_layernorm.weight", "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight")
	if g.qkNorm {
		g.layer(n, "self_attn.q_norm.weight", nil, piece{"self_attention.q_layernorm.weight", nil, 0, d})
		g.layer(n, "self_attn.k_norm.weight", nil, piece{"self_attention.k_layernorm.weight", nil, 0, d})
	}
	r := g.Heads / *g.KV
	for _, kind := range []string{"weight", "bias"} {
		var q, k, v []piece
		from := "self_attention.linear_qkv." + kind
		for group := range *g.KV {
			at := group * (r + 2) * d
			q = append(q, piece{from, nil, at, r * d})
			k = append(k, piece{from, nil, at + r*d, d})
			v = append(v, piece{from, nil, at + r*d + d, d})
		}
		rest := []int{h}
		if kind == "bias" {
			if rest = nil; !g.Bias {
				break
			}
		}
		g.layer(n, "self_attn.q_proj."+kind, rest, q...)
		g.layer(n, "self_attn.k_proj."+kind, rest, k...)
		g.layer(n, "self_attn.v_proj."+kind, rest, v...)
	}
	g.layer(n, "self_attn.o_proj.weight", []int{g.Heads * d},
		piece{"self_attention.linear_proj.weight", nil, 0, h})
	if g.Bias && g.Type != "qwen2" {
		g.layer(n, "self_attn.o_proj.bias", nil, piece{"self_attention.linear_proj.bias", nil, 0, h})
	}
}

// mixture adds a layer's router and experts.
func (g *gpt) mixture(n int) {
	h, x := g.Hidden, &g.experts
	g.layer(n, x.router+".weight", []int{h}, piece{"mlp.router.weight", nil, 0, g.Experts})
	const at = "mlp.experts.experts."
	for e := range g.Experts {
		name := func(form string) string { return fmt.Sprintf(form, e) + ".weight" }
		g.layer(n, name(x.gate), []int{h}, piece{at + "linear_fc1.weight", []int{e}, 0, g.Expert})
		g.layer(n, name(x.up), []int{h}, piece{at + "linear_fc1.weight", []int{e}, g.Expert, g.Expert})
		g.layer(n, name(x.down), []int{g.Expert}, piece{at + "linear_fc2.weight", []int{e}, 0, h})
	}
}

// key is that of a layer's tensor, and the index of the layer where layers are stacked.
func (g *gpt) key(n int, name string) (string, []int) {
	if g.stacked {
		return "decoder.layers." + name, []int{n}
	}
	return fmt.Sprintf("decoder.layers.%d.%s", n, name), nil
}

// layer adds a tensor of a layer.
func (g *gpt) layer(n int, name string, rest []int, pieces ...piece) {
	for i := range pieces {
		key, lead := g.key(n, pieces[i].from)
		pieces[i].from, pieces[i].lead = key, append(lead, pieces[i].lead...)
	}
	g.add(fmt.Sprintf("model.layers.%d.%s", n, name), rest, pieces...)
}

func (g *gpt) add(name string, rest []int, pieces ...piece) {
	g.all = append(g.all, &composed{name: name, rest: rest, parts: map[string][]piece{place0(nil): pieces}})
}

// extras are the states that modules may have beside their weights, for layers in higher precision none:
// Megatron wants an entry for each.
func (g *gpt) extras() (names []string) {
	for n := range g.Layers {
		add := func(module, of string) {
			names = append(names, fmt.Sprintf("decoder.layers.%s._extra_state/shard_%s", module, of))
		}
		layer := fmt.Sprintf("%d_%d", n, g.Layers)
		for _, m := range []string{"self_attention.linear_proj", "self_attention.linear_qkv",
			"self_attention.core_attention"} {
			add(m, layer)
		}
		if g.experts.router == "" {
			add("mlp.linear_fc1", layer)
			add("mlp.linear_fc2", layer)
		}
		for e := range g.Experts {
			of := fmt.Sprintf("%d.%d_%d.%d", n, e, g.Layers, g.Experts)
			add("mlp.experts.experts.linear_fc1", of)
			add("mlp.experts.experts.linear_fc2", of)
		}
	}
	return names
}
