package gguf

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// family is one whose models are converted: ggml's architecture and Hugging Face's.
type family struct {
	arch      string // general.architecture
	modelType string // model_type of config.json
	also      []string
	class     string
	// rows of query and key projections lie in pairs that turn together, where Hugging Face has the first
	// of all pairs before the second ones
	pairs bool
	// weights of norms have 1 added
	plus bool
	// norms behind attention and MLP too
	sandwich bool
	qkNorm   bool
	tied     bool // always
	window   bool // layers with one
	moe      *experts
}

var families = []family{
	{arch: "llama", modelType: "llama", also: []string{"mistral"}, class: "LlamaForCausalLM", pairs: true},
	{arch: "qwen2", modelType: "qwen2", class: "Qwen2ForCausalLM"},
	{arch: "qwen3", modelType: "qwen3", class: "Qwen3ForCausalLM", qkNorm: true},
	{arch: "gemma2", modelType: "gemma2", class: "Gemma2ForCausalLM", plus: true, sandwich: true,
		tied: true, window: true},
	{arch: "gemma3", modelType: "gemma3_text", class: "Gemma3ForCausalLM", plus: true, sandwich: true, qkNorm: true,
		tied: true, window: true},
	{arch: "llama", modelType: "mixtral", class: "MixtralForCausalLM", pairs: true,
		moe: &experts{router: "block_sparse_moe.gate", each: [3]string{"block_sparse_moe.experts.*.w1",
			"block_sparse_moe.experts.*.w3", "block_sparse_moe.experts.*.w2"}, count: "num_local_experts",
			used: "num_experts_per_tok"}},
	{arch: "qwen3moe", modelType: "qwen3_moe", class: "Qwen3MoeForCausalLM", qkNorm: true,
		moe: &experts{router: "mlp.gate", each: [3]string{"mlp.experts.*.gate_proj", "mlp.experts.*.up_proj",
			"mlp.experts.*.down_proj"}, count: "num_experts", used: "num_experts_per_tok",
			mlp: "moe_intermediate_size"}},
}

// archNames are the architectures that are read.
func archNames() (names []string) {
	for _, f := range families {
		if !slices.Contains(names, f.arch) {
			names = append(names, f.arch)
		}
	}
	return names
}

// whole are the tensors outside of layers, theirs by ours.
var whole = map[string]string{
	"model.embed_tokens.weight": "token_embd.weight",
	"model.norm.weight":         "output_norm.weight",
	"lm_head.weight":            "output.weight",
}

// inLayers are the modules of a layer of a family, theirs by ours.
func (f *family) inLayers() map[string]string {
	m := map[string]string{"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
		"self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output"}
	if f.moe != nil {
		m[f.moe.router] = "ffn_gate_inp"
	} else {
		m["mlp.gate_proj"], m["mlp.up_proj"], m["mlp.down_proj"] = "ffn_gate", "ffn_up", "ffn_down"
	}
	if f.sandwich {
		m["post_attention_layernorm"], m["pre_feedforward_layernorm"], m["post_feedforward_layernorm"] =
			"post_attention_norm", "ffn_norm", "post_ffw_norm"
	} else {
		m["post_attention_layernorm"] = "ffn_norm"
	}
	if f.qkNorm {
		m["self_attn.q_norm"], m["self_attn.k_norm"] = "attn_q_norm", "attn_k_norm"
	}
	return m
}

// theirs is ggml's name of a tensor, "" for one that the family does not have.
func (f *family) theirs(name string) string {
	if t := whole[name]; t != "" {
		return t
	}
	layer, module, end := inLayer(name, "model.layers.")
	t := f.inLayers()[module]
	if t == "" {
		return ""
	}
	return "blk." + layer + "." + t + end
}

// inLayer takes the name of a tensor of a layer apart: its number, its module, and .weight or .bias; all "" for another name.
func inLayer(name, prefix string) (layer, module, end string) {
	rest, ok := strings.CutPrefix(name, prefix)
	layer, module, in := strings.Cut(rest, ".")
	n, err := strconv.Atoi(layer)
	at := strings.LastIndexByte(module, '.')
	if !ok || !in || err != nil || layer != strconv.Itoa(n) || n < 0 || at < 0 || module[at:] != ".weight" && module[at:] != ".bias" {
		return "", "", ""
	}
	return layer, module[:at], module[at:]
}

// ours is Hugging Face's name of a tensor, "" for one that the family does not have.
func (f *family) ours(name string) string {
	for _, ours := range slices.Sorted(maps.Keys(whole)) {
		if whole[ours] == name {
			return ours
		}
	}
	layer, module, end := inLayer(name, "blk.")
	for ours, theirs := range f.inLayers() { //lfvet:order no two have one name
		if theirs == module {
			return "model.layers." + layer + "." + ours + end
		}
	}
	return ""
}

// change is what becomes of a tensor's numbers beside its type.
type change struct {
	heads int     // rows of so many heads lie in pairs; 0 for as they are
	plus  float32 // is added to each in the file
}

// changeOf is that of a tensor by our name.
func (f *family) changeOf(name string, heads, kvHeads int) (c change) {
	switch {
	case f.pairs && strings.Contains(name, ".self_attn.q_proj."):
		c.heads = heads
	case f.pairs && strings.Contains(name, ".self_attn.k_proj."):
		c.heads = kvHeads
	case f.plus && strings.HasSuffix(name, "norm.weight"):
		c.plus = 1
	}
	return c
}

// row is which row of the file is row r of ours, of a tensor with so many.
func (c change) row(r, rows int) int {
	if c.heads == 0 {
		return r
	}
	head := rows / c.heads
	in := r % head
	return r - in + in%(head/2)*2 + in/(head/2)
}
