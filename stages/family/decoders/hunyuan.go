package decoders

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/family"
)

// Hunyuan, dense: Llama with norms of each head's query and key once they have turned.
var _ = family.Register(family.Family{ModelType: "hunyuan_v1_dense", HF: hunyuan(hf.Family{
	Class: "HunYuanDenseV1ForCausalLM"}), Spec: func(_ configs.Model, s *family.Spec) { s.QKNormLast = true },
	Source: func(configs.Model) func(string) family.Source {
		return func(name string) family.Source { return family.Source{Name: hunyuanNames.Replace(name)} }
	}})

// Hunyuan with experts beside an MLP of their width in every layer, which is intermediate_size.
var _ = family.Register(family.Family{ModelType: "hunyuan_v1_moe", HF: hunyuan(hf.Family{
	Class: "HunYuanMoEV1ForCausalLM", Score: "softmax", Has: []string{"num_experts", "num_experts_per_tok"},
	Alias: map[string]string{"moe_topk": "num_experts_per_tok"}, Idle: []string{"output_router_logits",
		"moe_intermediate_size", "norm_topk_prob", "n_group", "topk_group", "routed_scaling_factor"}}),
	Spec: func(c configs.Model, s *family.Spec) {
		s.QKNormLast = true
		s.UseExperts(c, func(int) bool { return false })
		s.Experts.Router = routing.Router{Normalize: true}
		s.Experts.Shared, s.Experts.SharedName = s.GatedOf(c.Intermediate), "shared_mlp"
	}, Source: func(configs.Model) func(string) family.Source {
		return family.ExpertPlaces{Stack: true, Rename: hunyuanNames}.Source
	}, Other: func(c configs.Model) func(string) family.Source {
		return family.ExpertPlaces{Width: c.Intermediate, Rename: hunyuanNames}.Source
	}})

var hunyuanNames = strings.NewReplacer(".q_norm.", ".query_layernorm.", ".k_norm.", ".key_layernorm.",
	".mlp.gate.", ".mlp.gate.wg.")

// hunyuan adds what both share.
func hunyuan(f hf.Family) hf.Family {
	f.OutBias, f.Has = true, append(f.Has, "attention_bias")
	f.Fixed, f.Omit = map[string]string{"qk_norm": "true"}, []string{"qk_norm"}
	f.Absent = map[string]string{"hidden_size": "4096", "intermediate_size": "11008", "num_hidden_layers": "32",
		"num_attention_heads": "32", "vocab_size": "290943", "max_position_embeddings": "2048", "rms_norm_eps": "1e-5",
		"bos_token_id": "1", "eos_token_id": "2"}
	if f.Score != "" {
		f.Absent["num_experts"], f.Absent["num_experts_per_tok"] = "1", "1"
	}
	f.Idle = append(f.Idle, "eod_token_id", "sep_token_id", "eod_id", "use_qk_norm", "use_rotary_pos_emb",
		"attention_head_dim")
	f.Prepare = hunyuanFile
	return f
}

// hunyuanFile turns numbers that are the same for each layer into one, and the rotary embedding that alpha stretches
// into its base, which is all that it changes.
func hunyuanFile(raw hf.Raw) {
	for _, key := range []string{"num_experts", "moe_topk", "num_experts_per_tok"} {
		var each []int
		if json.Unmarshal(raw[key], &each) == nil && len(each) > 0 && slices.Min(each) == slices.Max(each) {
			raw[key] = json.RawMessage(family.JSONOf(each[0]))
		}
	}
	key := "rope_parameters"
	if raw[key] == nil {
		key = "rope_scaling"
	}
	k := struct {
		Type  string  `json:"rope_type"`
		Other string  `json:"type"`
		Alpha float64 `json:"alpha"`
		Theta float64 `json:"rope_theta"`
	}{}
	whole := struct {
		Theta float64 `json:"rope_theta"`
		Head  float64 `json:"head_dim"`
	}{Theta: 10000}
	text, err := json.Marshal(raw)
	if err != nil || json.Unmarshal(text, &whole) != nil || json.Unmarshal(raw[key], &k) != nil || k.Alpha == 0 ||
		k.Type+k.Other != "dynamic" && k.Type != "dynamic" || whole.Head <= 2 {
		return // what is of another type is reported where it is entered
	}
	if k.Theta == 0 {
		k.Theta = whole.Theta
	}
	delete(raw, key)
	raw["rope_theta"] = json.RawMessage(family.JSONOf(k.Theta * math.Pow(k.Alpha, whole.Head/(whole.Head-2))))
}
