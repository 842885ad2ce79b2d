package decoders

import (
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen 3 Next: three layers of linear attention to one of gated attention, and experts beside an MLP behind a gate.
var _ = family.Register(family.Family{ModelType: "qwen3_next", Paper: "2412.06464", HF: family.Mixed(
	hybrid(hf.Family{Class: "Qwen3NextForCausalLM", Score: "softmax", Write: func(m hf.Values, out map[string]any) {
		if m.Int(furtherKey) == 0 { // published files do not have it
			delete(out, furtherKey)
		}
	}, Has: append([]string{"shared_expert_intermediate_size"}, qwenExperts...), Absent: map[string]string{
		"hidden_size":                     "2048",
		"intermediate_size":               "5632",
		"num_hidden_layers":               "48",
		"num_attention_heads":             "16",
		"num_key_value_heads":             "2",
		"vocab_size":                      "151936",
		"num_experts":                     "512",
		"num_experts_per_tok":             "10",
		"moe_intermediate_size":           "512",
		"shared_expert_intermediate_size": "512",
		"norm_topk_prob":                  "true",
		"router_aux_loss_coef":            "0.001",
	}})), Spec: func(c configs.Model, s *family.Spec) {
	hybridSpec(s, c)
	s.UseExperts(c, family.DenseSteps(c))
	s.Experts.Router = routing.Router{Normalize: family.Mixture.Of(c).NormTopK}
	sharedExpert(s, c)
}, Loong: []loong.Decoder{{Class: "Qwen3NextConfig", Preset: map[string]string{"norm_topk_prob": "true",
	"partial_rotary_factor": "0.25"}}}, Source: func(c configs.Model) func(string) family.Source {
	return family.BesideLayers(grouped(c, family.EachExpert(c)))
}, Other: func(c configs.Model) func(string) family.Source {
	return family.BesideLayers(grouped(c, family.FusedExperts(c)))
}})

// Qwen 3.5 as a model of text, dense: the same layers, with the projections of linear attention one after the other.
var _ = family.Register(family.Family{ModelType: "qwen3_5_text", Paper: "2412.06464", HF: counted3_5(hybrid(hf.Family{
	Class: "Qwen3_5ForCausalLM", Absent: map[string]string{"hidden_size": "4096", "intermediate_size": "12288",
		"num_hidden_layers": "32", "num_attention_heads": "16", "num_key_value_heads": "4", "vocab_size": "248320"}})),
	Loong: []loong.Decoder{{Class: "Qwen35Config", Preset: qwen3_5Preset}},
	Spec:  func(c configs.Model, s *family.Spec) { hybridSpec(s, c) }, Source: InOrder})

// qwen3_5Preset is what LoongForge's class says by itself.
var qwen3_5Preset = map[string]string{"partial_rotary_factor": "0.25", "rope_theta": "10000000"}

// sharedExpert is an MLP beside the experts, behind a gate.
func sharedExpert(s *family.Spec, c configs.Model) {
	if family.Mixture.Of(c).SharedWidth > 0 {
		s.Experts.Shared = s.GatedOf(family.Mixture.Of(c).SharedWidth)
		s.Experts.SharedName, s.Experts.SharedGate = "shared_expert", "shared_expert_gate"
	}
}

// furtherKey is the number of layers that predict further tokens.
const furtherKey = "num_nextn_predict_layers"

// counted3_5 has Qwen 3.5's names of what its layer for a further token is.
func counted3_5(f hf.Family) hf.Family {
	f.Alias = map[string]string{"mtp_num_hidden_layers": furtherKey}
	f.Only = map[string]string{"mtp_use_dedicated_embeddings": "false"}
	return f
}

// hybridKeys are the names of those of linear attention.
var hybridKeys = []string{
	"linear_num_key_heads",
	"linear_num_value_heads",
	"linear_key_head_dim",
	"linear_value_head_dim",
	"linear_conv_kernel_dim",
}

// hybrid adds what families with layers of linear attention and of gated attention share.
func hybrid(f hf.Family) hf.Family {
	f.Has = append(f.Has, append([]string{"layer_types", "partial_rotary_factor", "attention_bias"}, hybridKeys...)...)
	f.Fixed, f.Omit = map[string]string{"qk_norm": "true"}, []string{"qk_norm"}
	f.OutBias = true
	f.Offered, f.Most = []string{furtherKey}, map[string]int{furtherKey: 1}
	for key, value := range map[string]string{"head_dim": "256", "max_position_embeddings": "32768",
		"rms_norm_eps":          "1e-6",
		"partial_rotary_factor": "0.25", "linear_conv_kernel_dim": "4", "linear_key_head_dim": "128",
		"linear_value_head_dim": "128", "linear_num_key_heads": "16", "linear_num_value_heads": "32"} {
		f.Absent[key] = value
	}
	type keys struct {
		Every  int      `key:"full_attention_interval" min:"1"`
		Layers int      `key:"num_hidden_layers"`
		Types  []string `key:"layer_types"`
	}
	f.Own = append(f.Own, hf.Keys(keys{Every: hybridEvery, Layers: family.WholeOf(f.Absent["num_hidden_layers"])},
		func(k keys, d *hf.Decoder) {
			if k.Types == nil && k.Every != hybridEvery {
				d.Set("layer_types", family.JSONOf(hybridLayers(k.Layers, k.Every)))
			}
		}))
	return f
}

// hybridEvery is how many layers there are to one of attention, where a configuration does not say.
const hybridEvery = 4

// hybridLayers are linear but for each one in so many.
func hybridLayers(n, every int) (kinds []string) {
	for i := range n {
		kind := family.LinearAttention
		if (i+1)%every == 0 {
			kind = "full_attention"
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// hybrid is what the keys of a configuration say of linear and gated attention; weights of norms count from 1.
func hybridSpec(s *family.Spec, c configs.Model) {
	k := family.Linear.Of(c)
	s.AttnGate, s.Norm.Plus = true, 1
	s.Further, s.TokenFirst = 1, true
	s.Delta = block.Delta{
		Hidden:   s.Hidden,
		Keys:     k.LinearKeys,
		Values:   k.LinearValues,
		KeyDim:   k.LinearKeyDim,
		ValueDim: k.LinearDim,
		Taps:     k.LinearTaps,
		Eps:      s.Eps,
	}
	if len(s.Mixers) == 0 {
		s.Mixers = hybridLayers(s.Layers, hybridEvery)
	}
}

// hybridPlaces finds the tensors of both kinds of layers; rows gives those of a projection of linear attention.
func hybridPlaces(c configs.Model, source func(string) family.Source,
	rows func(part string) (tensor string, rows [][2]int)) func(string) family.Source {
	own := family.Linear.Of(c)
	d, e := own.LinearKeys*own.LinearKeyDim, own.LinearValues*own.LinearDim
	kinds := c.LayerTypes
	if len(kinds) == 0 {
		kinds = hybridLayers(c.Layers, hybridEvery)
	}
	return func(name string) family.Source {
		before, part, ok := strings.Cut(name, ".self_attn.")
		if !ok {
			return source(name)
		}
		if strings.HasPrefix(name, family.FurtherName) || kinds[layerNumber(before)] != family.LinearAttention {
			return gatedQuery(c, name, part)
		}
		s := family.Source{Name: before + ".linear_attn." + part}
		place := func(tensor string) { s.Name = before + ".linear_attn." + tensor }
		switch part {
		case "q_conv.weight", "k_conv.weight", "v_conv.weight":
			place("conv1d.weight")
			from := map[byte]int{'q': 0, 'k': d, 'v': 2 * d}[part[0]]
			to := from + map[bool]int{true: e, false: d}[part[0] == 'v']
			s.Rows, s.Tail = [][2]int{{from, to}}, []int{1, own.LinearTaps}
		case "decay":
			place("A_log")
		case "o_proj.weight":
			place("out_proj.weight")
		case "q_proj.weight", "k_proj.weight", "v_proj.weight", "z_proj.weight", "a_proj.weight", "b_proj.weight":
			tensor, at := rows(part[:1])
			place(tensor + ".weight")
			s.Rows = at
		}
		return s
	}
}

// layerNumber is that of model.layers.N.
func layerNumber(name string) (n int) {
	// checkpoints name layers by numbers; another name is none
	n, _ = strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
	return n
}

// gatedQuery finds attention's query and gate, which lie head by head in one matrix.
func gatedQuery(c configs.Model, name, part string) family.Source {
	s := family.Source{Name: name}
	for i, p := range []string{"q_proj.", "gate_proj."} {
		if !strings.HasPrefix(part, p) {
			continue
		}
		s.Name = strings.Replace(name, p, "q_proj.", 1)
		for h := range c.Heads {
			s.Rows = append(s.Rows, [2]int{(2*h + i) * c.HeadDim, (2*h + i + 1) * c.HeadDim})
		}
	}
	return s
}

// grouped finds the projections of linear attention key head by key head: query, key, values, gates; and
// what is written and kept of each value head.
func grouped(c configs.Model, source func(string) family.Source) func(string) family.Source {
	own := family.Linear.Of(c)
	each := own.LinearValues / max(1, own.LinearKeys)
	k, v := own.LinearKeyDim, each*own.LinearDim
	return hybridPlaces(c, source, func(part string) (string, [][2]int) {
		tensor, width := "in_proj_qkvz", 2*k+2*v
		at, ok := map[string][2]int{"q": {0, k}, "k": {k, 2 * k}, "v": {2 * k, 2*k + v}, "z": {2*k + v,
			2*k + 2*v}}[part]
		if !ok {
			tensor, width = "in_proj_ba", 2*each
			at = map[string][2]int{"b": {0, each}, "a": {each, 2 * each}}[part]
		}
		var rows [][2]int
		for h := range own.LinearKeys {
			rows = append(rows, [2]int{h*width + at[0], h*width + at[1]})
		}
		return tensor, rows
	})
}

// InOrder finds them as query, key and value in one tensor, and the others by themselves.
func InOrder(c configs.Model) func(string) family.Source {
	return InOrderBeside(c, func(name string) family.Source { return family.Source{Name: name} })
}

// InOrderBeside is inOrder for layers whose other tensors another function finds.
func InOrderBeside(c configs.Model, source func(string) family.Source) func(string) family.Source {
	k := family.Linear.Of(c)
	d, e := k.LinearKeys*k.LinearKeyDim, k.LinearValues*k.LinearDim
	return family.BesideLayers(hybridPlaces(
		c,
		source,
		func(part string) (string, [][2]int) {
			at, ok := map[string][2]int{"q": {0, d}, "k": {d, 2 * d}, "v": {2 * d, 2*d + e}}[part]
			if !ok {
				return "in_proj_" + part, nil
			}
			return "in_proj_qkv", [][2]int{at}
		},
	))
}
