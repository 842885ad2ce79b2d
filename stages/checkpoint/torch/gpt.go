package torch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// gpt is a model as its config.json has it.
//
//lfvet:fields one field a key of config.json that decides over names in Megatron's files
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
	Routed  int    `json:"n_routed_experts"`
	Expert  int    `json:"moe_intermediate_size"`
	QKNorm  bool   `json:"use_qk_norm"`
	Dense   []int  `json:"mlp_only_layers"`
	First   int    `json:"first_k_dense_replace"`
	Sparse  *int   `json:"decoder_sparse_step"`
	Shared  int    `json:"shared_expert_intermediate_size"`
	Shares  *int   `json:"n_shared_experts"`

	Ernie       int  `json:"moe_num_experts"` // ERNIE's names of what others have
	ErnieShared *int `json:"moe_num_shared_experts"`
	ErnieFirst  int  `json:"moe_layer_start_index"`
	ErnieStep   *int `json:"moe_layer_interval"`
	ErnieLast   *int `json:"moe_layer_end_index"`

	Kinds []string `json:"layer_types"`
	Quant any      `json:"quantization_config"`

	QRank    *int `json:"q_lora_rank"` // of latent attention
	KVRank   int  `json:"kv_lora_rank"`
	NoPE     int  `json:"qk_nope_head_dim"`
	Rope     int  `json:"qk_rope_head_dim"`
	ValueDim int  `json:"v_head_dim"`

	LinearKeys   int `json:"linear_num_key_heads"` // of Gated DeltaNet
	LinearValues int `json:"linear_num_value_heads"`
	LinearK      int `json:"linear_key_head_dim"`
	LinearV      int `json:"linear_value_head_dim"`
	LinearConv   int `json:"linear_conv_kernel_dim"`

	Text json.RawMessage `json:"text_config"` // of a model that sees

	of      gptType
	hf      hfNames
	before  string // Megatron's names
	apart   bool   // layers are never stacked
	stacked bool
	packs   bool // experts of a layer share a tensor in Hugging Face's files
	has     func(key string) bool
	all     []*composed
	also    map[string]string // other keys of norms, and the ones that links take
}

// hfNames are what stands before the names of the language model's tensors in Hugging Face's files.
type hfNames struct{ model, head string }

// readGPT reads the config.json of a directory.
func readGPT(dir string) (*gpt, error) {
	path := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	g := &gpt{hf: hfNames{"model.", "lm_head.weight"}}
	if err := json.Unmarshal(text, g); err == nil && g.Text != nil {
		names, ok := seeing[g.Type]
		if !ok {
			return nil, &checkpoint.Error{File: path, Fault: checkpoint.Malformed,
				Why: fmt.Sprintf("model_type is %q: of models that see, those of %s have names in Megatron "+
					"that are known", g.Type, strings.Join(sortedKeys(seeing), ", "))}
		}
		outer := *g
		g = &gpt{hf: names, before: "language_model.", Tied: outer.Tied}
		text = outer.Text
	}
	if err := json.Unmarshal(text, g); err != nil {
		return nil, &checkpoint.Error{File: path, Fault: checkpoint.Malformed, Why: err.Error()}
	}
	if g.Type == "qwen2_5_vl_text" || g.Type == "qwen2_vl_text" {
		g.Type = "qwen2"
	}
	if why := g.check(); why != "" {
		return nil, &checkpoint.Error{File: path, Fault: checkpoint.Malformed, Why: why}
	}
	g.packs = g.of.split
	if g.Tied == nil {
		g.Tied = &g.of.tied
	}
	if hf.OwnHead(dir) {
		g.Tied = nil
	}
	return g, nil
}

// check fills in what follows from the family, and says what cannot be converted.
func (g *gpt) check() string {
	var ok bool
	if g.of, ok = gptTypes[g.Type]; notTypes[g.Type] != "" {
		return fmt.Sprintf("model_type is %q: %s", g.Type, notTypes[g.Type])
	} else if !ok {
		return fmt.Sprintf("model_type is %q: models of %s have names in Megatron that are known", g.Type,
			strings.Join(sortedKeys(gptTypes), ", "))
	}
	if g.Type == "glm4_moe" { // its keys say what those of other families are known for
		g.of.qkvBias, g.of.qkNorm, g.Bias = g.Bias, g.QKNorm, false
	}
	if g.KV == nil {
		g.KV = &g.Heads
	}
	if g.Dim == 0 && g.Heads > 0 {
		if g.Dim = g.Hidden / g.Heads; g.of.dim > 0 {
			g.Dim = g.of.dim
		}
	}
	if g.of.experts.router != "" {
		g.Experts, g.First = max(g.Experts, g.Locals, g.Routed, g.Ernie), max(g.First, g.ErnieFirst)
		if g.ErnieShared != nil {
			g.Shares = g.ErnieShared
		}
		if g.ErnieStep != nil && *g.ErnieStep > 1 || g.ErnieLast != nil && *g.ErnieLast >= 0 && *g.ErnieLast != g.Layers-1 {
			return "experts of layers by moe_layer_interval or moe_layer_end_index"
		}
		g.Expert, g.MLP = cmp.Or(g.Expert, g.MLP), cmp.Or(g.MLP, g.Expert)
		if g.Experts < 1 || g.Experts > 1<<16 {
			return fmt.Sprintf("a mixture of %d experts", g.Experts)
		}
		if g.Shares != nil {
			g.Shared = *g.Shares * g.Expert
		}
	}
	for _, n := range []int{g.Layers, g.Hidden, g.Heads, *g.KV, g.Dim, g.MLP, g.Vocab} {
		if n < 1 || n > 1<<24 {
			return fmt.Sprintf("a size is %d", n)
		}
	}
	for _, n := range []int{g.Expert, g.Shared, g.KVRank, g.NoPE, g.Rope, g.ValueDim, g.LinearK, g.LinearV,
		g.LinearKeys, g.LinearValues, g.LinearConv} {
		if n < 0 || n > 1<<24 {
			return fmt.Sprintf("a size is %d", n)
		}
	}
	if g.of.latent && (g.KVRank < 1 || g.NoPE < 1 || g.ValueDim < 1 || g.Shared < 1 && g.Shares != nil &&
		*g.Shares > 0) {
		return "latent attention without kv_lora_rank, qk_nope_head_dim or v_head_dim"
	}
	if len(g.Kinds) > 0 && len(g.Kinds) != g.Layers || g.linear() && (g.LinearKeys < 1 ||
		g.LinearValues%g.LinearKeys != 0) {
		return fmt.Sprintf("%d layer_types for %d layers, %d keys for %d values of linear attention", len(g.Kinds),
			g.Layers, g.LinearKeys, g.LinearValues)
	}
	if g.Heads%*g.KV != 0 || g.MLPBias || g.Quant != nil {
		return fmt.Sprintf("%d heads of %d groups, biases of MLPs or quantized weights are not converted",
			g.Heads, *g.KV)
	}
	return ""
}

// linear reports whether a layer has linear attention.
func (g *gpt) linear() bool { return slices.Contains(g.Kinds, "linear_attention") }

// mixes reports whether a layer has experts.
func (g *gpt) mixes(n int) bool {
	switch {
	case g.of.experts.router == "":
		return false
	case !g.of.sparse:
		return n >= g.First
	}
	step := 1
	if g.Sparse != nil && *g.Sparse > 0 {
		step = *g.Sparse
	}
	return !slices.Contains(g.Dense, n) && (n+1)%step == 0
}

// alike reports whether all layers have the same tensors: Megatron stacks those alone.
func (g *gpt) alike() bool {
	for n := range g.Layers {
		if g.mixes(n) != g.mixes(0) || g.linear() {
			return false
		}
	}
	return true
}

// tied reports whether the head is the embedding.
func (g *gpt) tied() bool { return g.Tied != nil && *g.Tied }

// links are all tensors of Hugging Face, made of Megatron's. has says which keys Megatron's side has, where
// a name differs between its ways of building layers.
func (g *gpt) links(stacked bool, has func(key string) bool) []*composed {
	g.stacked, g.has, g.all, g.also = stacked, has, nil, map[string]string{}
	h := g.Hidden
	g.add(g.hf.model+"embed_tokens.weight", []int{h}, piece{g.before + "embedding.word_embeddings.weight",
		nil, 0, g.Vocab})
	g.add(g.hf.model+"norm.weight", nil, piece{g.before + "decoder.final_layernorm.weight", nil, 0, h})
	if !g.tied() {
		g.add(g.hf.head, []int{h}, piece{g.before + "output_layer.weight", nil, 0, g.Vocab})
	}
	for n := range g.Layers {
		switch {
		case g.of.latent:
			g.latent(n)
		case len(g.Kinds) > 0 && g.Kinds[n] == "linear_attention":
			g.deltaNet(n)
		default:
			g.attention(n)
		}
		if g.mixes(n) {
			g.mixture(n)
			continue
		}
		g.gatedMLP(n, "mlp.", "mlp.", g.MLP)
	}
	return g.all
}

// gatedMLP adds gate, up and down of a width.
func (g *gpt) gatedMLP(n int, hf, ours string, width int) {
	h := g.Hidden
	if g.of.fused {
		g.layer(n, hf+"gate_up_proj.weight", []int{h}, piece{ours + "linear_fc1.weight", nil, 0, 2 * width})
	} else {
		g.layer(n, hf+"gate_proj.weight", []int{h}, piece{ours + "linear_fc1.weight", nil, 0, width})
		g.layer(n, hf+"up_proj.weight", []int{h}, piece{ours + "linear_fc1.weight", nil, width, width})
	}
	g.layer(n, hf+"down_proj.weight", []int{width}, piece{ours + "linear_fc2.weight", nil, 0, h})
}

// norm adds a vector under the first of the names that Megatron's side has, the first where it has none.
func (g *gpt) norm(n int, hf string, size int, names ...string) {
	at := max(0, slices.IndexFunc(names, func(name string) bool {
		key, _ := g.key(n, name)
		return g.has(key)
	}))
	mine, _ := g.key(n, names[at])
	for i, name := range names {
		if key, _ := g.key(n, name); i != at {
			g.also[key] = mine
		}
	}
	g.layer(n, hf, nil, piece{names[at], nil, 0, size})
}

// norms adds those before attention and MLP; first is where that before attention lies of other attention
// than that of query, key and value.
func (g *gpt) norms(n int, first ...string) {
	first = append(first, "self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight")
	g.norm(n, "input_layernorm.weight", g.Hidden, first...)
	before := "post_attention_layernorm.weight"
	if g.of.behind {
		g.norm(n, before, g.Hidden, "self_attention.linear_proj.post_layernorm.weight")
		g.norm(n, "post_feedforward_layernorm.weight", g.Hidden, "mlp.linear_fc2.post_layernorm.weight")
		before = "pre_feedforward_layernorm.weight"
	}
	g.norm(n, before, g.Hidden, "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight")
}

// attention adds a layer's norms and projections.
func (g *gpt) attention(n int) {
	h, d := g.Hidden, g.Dim
	g.norms(n)
	if g.of.qkNorm {
		q, k := d, d
		if g.of.whole {
			q, k = g.Heads*d, *g.KV*d
		}
		g.layer(n, "self_attn.q_norm.weight", nil, piece{"self_attention.q_layernorm.weight", nil, 0, q})
		g.layer(n, "self_attn.k_norm.weight", nil, piece{"self_attention.k_layernorm.weight", nil, 0, k})
	}
	r := g.Heads / *g.KV
	wide := r // heads of queries in a group, with their gates
	if g.of.gated {
		wide = 2 * r
	}
	for _, kind := range []string{"weight", "bias"} {
		var q, k, v []piece
		from := "self_attention.linear_qkv." + kind
		for group := range *g.KV {
			at := group * (wide + 2) * d
			if g.of.gated { // there query and gate of each head, here queries of all heads and then gates
				for i := range r {
					q = append(q, piece{from, nil, at + i*d, d}, piece{from, nil, at + (r+i)*d, d})
				}
			} else {
				q = append(q, piece{from, nil, at, r * d})
			}
			k = append(k, piece{from, nil, at + wide*d, d})
			v = append(v, piece{from, nil, at + wide*d + d, d})
		}
		rest := []int{h}
		if kind == "bias" {
			if rest = nil; !g.Bias && !g.of.qkvBias {
				break
			}
		}
		if g.of.fused {
			g.layer(n, "self_attn.qkv_proj."+kind, rest, slices.Concat(q, k, v)...)
			continue
		}
		g.layer(n, "self_attn.q_proj."+kind, rest, q...)
		g.layer(n, "self_attn.k_proj."+kind, rest, k...)
		g.layer(n, "self_attn.v_proj."+kind, rest, v...)
	}
	g.layer(n, "self_attn.o_proj.weight", []int{g.Heads * d}, piece{"self_attention.linear_proj.weight", nil, 0, h})
	if g.Bias && !g.of.qkvBias {
		g.layer(n, "self_attn.o_proj.bias", nil, piece{"self_attention.linear_proj.bias", nil, 0, h})
	}
}

// latent adds a layer's latent attention.
func (g *gpt) latent(n int) {
	h := g.Hidden
	one := func(hf, ours string, rows, cols int) {
		g.layer(n, "self_attn."+hf+".weight", []int{cols}, piece{"self_attention." + ours + ".weight", nil, 0, rows})
	}
	g.norms(n, "input_layernorm.weight")
	if g.QRank != nil && *g.QRank > 0 {
		one("q_a_proj", "linear_q_down_proj", *g.QRank, h)
		g.norm(n, "self_attn.q_a_layernorm.weight", *g.QRank, "self_attention.linear_q_up_proj.layer_norm_weight",
			"self_attention.q_layernorm.weight")
		one("q_b_proj", "linear_q_up_proj", g.Heads*(g.NoPE+g.Rope), *g.QRank)
	} else {
		one("q_proj", "linear_q_proj", g.Heads*(g.NoPE+g.Rope), h)
	}
	one("kv_a_proj_with_mqa", "linear_kv_down_proj", g.KVRank+g.Rope, h)
	g.norm(n, "self_attn.kv_a_layernorm.weight", g.KVRank, "self_attention.linear_kv_up_proj.layer_norm_weight",
		"self_attention.kv_layernorm.weight")
	one("kv_b_proj", "linear_kv_up_proj", g.Heads*(g.NoPE+g.ValueDim), g.KVRank)
	one("o_proj", "linear_proj", h, g.Heads*g.ValueDim)
}

// deltaNet adds a layer's Gated DeltaNet: Hugging Face has query, key, value and gate of a head of keys
// together, and so beta and alpha; Megatron each of all heads.
func (g *gpt) deltaNet(n int) {
	h, r := g.Hidden, g.LinearValues/g.LinearKeys
	k, v := g.LinearK, g.LinearV*r
	g.norms(n, "self_attention.in_proj.layer_norm_weight")
	in := func(name string, at, rows int) piece { return piece{"self_attention." + name, nil, at, rows} }
	all := func(name string, rows int) piece { return in(name, 0, rows*g.LinearKeys) }
	if g.of.split {
		const at = "in_proj.weight."
		g.layer(n, "linear_attn.in_proj_qkv.weight", []int{h}, all(at+"query", k), all(at+"key", k), all(at+"value", v))
		g.layer(n, "linear_attn.in_proj_z.weight", []int{h}, all(at+"z", v))
		g.layer(n, "linear_attn.in_proj_b.weight", []int{h}, all(at+"beta", r))
		g.layer(n, "linear_attn.in_proj_a.weight", []int{h}, all(at+"alpha", r))
	} else {
		var qkvz, ba []piece
		for head := range g.LinearKeys {
			of := func(name string, rows int) piece { return in("in_proj.weight."+name, head*rows, rows) }
			qkvz = append(qkvz, of("query", k), of("key", k), of("value", v), of("z", v))
			ba = append(ba, of("beta", r), of("alpha", r))
		}
		g.layer(n, "linear_attn.in_proj_qkvz.weight", []int{h}, qkvz...)
		g.layer(n, "linear_attn.in_proj_ba.weight", []int{h}, ba...)
	}
	const conv = "conv1d.weight."
	g.layer(n, "linear_attn.conv1d.weight", []int{1, g.LinearConv}, all(conv+"query", k), all(conv+"key", k), all(conv+"value", v))
	for _, x := range [][2]string{{"A_log", "A_log"}, {"dt_bias", "dt_bias"}} {
		g.layer(n, "linear_attn."+x[0], nil, in(x[1], 0, g.LinearValues))
	}
	g.layer(n, "linear_attn.norm.weight", nil, in("out_norm.weight", 0, g.LinearV))
	g.layer(n, "linear_attn.out_proj.weight", []int{g.LinearValues * g.LinearV}, in("out_proj.weight", 0, h))
}

// mixture adds a layer's router and experts.
func (g *gpt) mixture(n int) {
	h, x := g.Hidden, &g.of.experts
	g.layer(n, x.router+".weight", []int{h}, piece{"mlp.router.weight", nil, 0, g.Experts})
	if at := cmp.Or(g.of.bias, x.router+".e_score_correction_bias"); g.of.balance {
		g.layer(n, at, nil, piece{"mlp.router.expert_bias", nil, 0, g.Experts})
		if strings.Contains(at, "moe_statics") { // [1 experts]
			l := g.all[len(g.all)-1]
			l.lead = []int{1}
			l.parts = map[string][]piece{place0(l.lead): l.parts[place0(nil)]}
		}
	}
	if g.of.shared != "" && g.Shared > 0 {
		g.gatedMLP(n, "mlp."+g.of.shared+".", "mlp.shared_experts.", g.Shared)
		if g.of.shared == "shared_expert" {
			g.layer(n, "mlp.shared_expert_gate.weight", []int{h}, piece{"mlp.shared_experts.gate_weight", nil, 0, 1})
		}
	}
	const at = "mlp.experts.experts."
	if g.packs {
		g.packed(n, "mlp.experts.gate_up_proj", at+"linear_fc1.weight", 2*g.Expert, h)
		g.packed(n, "mlp.experts.down_proj", at+"linear_fc2.weight", h, g.Expert)
		return
	}
	for e := range g.Experts {
		name := func(form string) string { return fmt.Sprintf(form, e) + ".weight" }
		g.layer(n, name(x.gate), []int{h}, piece{at + "linear_fc1.weight", []int{e}, 0, g.Expert})
		g.layer(n, name(x.up), []int{h}, piece{at + "linear_fc1.weight", []int{e}, g.Expert, g.Expert})
		g.layer(n, name(x.down), []int{g.Expert}, piece{at + "linear_fc2.weight", []int{e}, 0, h})
	}
}

// packed adds a tensor of all experts, of rows each.
func (g *gpt) packed(n int, name, from string, rows, cols int) {
	l := &composed{name: fmt.Sprintf("%slayers.%d.%s", g.hf.model, n, name), lead: []int{g.Experts}, rest: []int{cols}, parts: map[string][]piece{}}
	key, lead := g.key(n, from)
	for e := range g.Experts {
		l.parts[fmt.Sprint([]int{e})] = []piece{{key, append(slices.Clone(lead), e), 0, rows}}
	}
	g.all = append(g.all, l)
}

// key is that of a layer's tensor, and the index of the layer where layers are stacked.
func (g *gpt) key(n int, name string) (string, []int) {
	if g.stacked {
		return g.before + "decoder.layers." + name, []int{n}
	}
	return fmt.Sprintf("%sdecoder.layers.%d.%s", g.before, n, name), nil
}

// layer adds a tensor of a layer.
func (g *gpt) layer(n int, name string, rest []int, pieces ...piece) {
	for i := range pieces {
		key, lead := g.key(n, pieces[i].from)
		pieces[i].from, pieces[i].lead = key, append(lead, pieces[i].lead...)
	}
	g.add(fmt.Sprintf("%slayers.%d.%s", g.hf.model, n, name), rest, pieces...)
}

func (g *gpt) add(name string, rest []int, pieces ...piece) {
	g.all = append(g.all, &composed{name: name, rest: rest, parts: map[string][]piece{place0(nil): pieces}})
}

// extras are the states that modules may have beside their weights, for layers in higher precision none:
// Megatron wants an entry for each linear layer, and Transformer Engine for attention.
func (g *gpt) extras() (names []string) {
	add := func(n int, module string, expert int) {
		at, of := "0", "1"
		switch {
		case g.stacked && expert >= 0:
			at, of = fmt.Sprintf("%d.%d", n, expert), fmt.Sprintf("%d.%d", g.Layers, g.Experts)
		case g.stacked:
			at, of = fmt.Sprint(n), fmt.Sprint(g.Layers)
		case expert >= 0:
			at, of = fmt.Sprint(expert), fmt.Sprint(g.Experts)
		}
		key, _ := g.key(n, module)
		names = append(names, fmt.Sprintf("%s._extra_state/shard_%s_%s", key, at, of))
	}
	g.links(g.alike(), func(string) bool { return false })
	seen := map[string]bool{}
	for _, l := range g.all {
		for _, p := range l.pieces() {
			for n := range g.Layers {
				key, lead := g.key(n, "")
				module, linear := strings.CutSuffix(strings.TrimPrefix(p.from, key), ".weight")
				if !strings.HasPrefix(p.from, key) || !linear || !strings.Contains(module, "linear_") ||
					len(lead) > 0 && p.lead[0] != n {
					continue
				}
				expert := -1
				if len(p.lead) > len(lead) {
					expert = p.lead[len(lead)]
				}
				if id := fmt.Sprint(n, module, expert); !seen[id] {
					seen[id] = true
					add(n, module, expert)
				}
			}
		}
	}
	for n := range g.Layers {
		add(n, "self_attention.core_attention", -1)
	}
	return names
}
