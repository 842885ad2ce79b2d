package decoders

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// ernieBias is what files say of biases.
type ernieBias struct {
	On bool `key:"use_bias"`
}

// enter sets the biases of attention and MLP from the one key that the files have for both.
func (k ernieBias) enter(d *hf.Decoder) {
	d.Set("attention_bias", strconv.FormatBool(k.On))
	d.Set("mlp_bias", strconv.FormatBool(k.On))
}

// minimaxKeys are what files say of the part of a head that turns: of several, transformers heeds the share
// in rope_parameters, then the share by itself, then rotary_dim.
type minimaxKeys struct {
	Turns int      `key:"rotary_dim" min:"1"`
	Head  int      `key:"head_dim"`
	Part  *float64 `key:"partial_rotary_factor"`
	Rope  hf.Raw   `key:"rope_parameters"`
}

// enter turns the number of rotated columns that MiniMax files give into the share of a head,
// unless the file has the share as well.
func (k minimaxKeys) enter(d *hf.Decoder) {
	if k.Turns > 0 && k.Head > 0 && k.Part == nil && k.Rope["partial_rotary_factor"] == nil {
		d.Set("partial_rotary_factor", fmt.Sprint(float64(k.Turns)/float64(k.Head)))
	}
}

// lfm2File writes out what the MLP's width and the layers with attention come to.
func lfm2File(raw hf.Raw, adjusts bool) {
	var k struct {
		Layers   int       `json:"num_hidden_layers"`
		Width    int       `json:"intermediate_size"`
		Other    int       `json:"block_ff_dim"`
		Adjusts  bool      `json:"block_auto_adjust_ff_dim"`
		Factor   float64   `json:"block_ffn_dim_multiplier"`
		Multiple int       `json:"block_multiple_of"`
		Full     *[]int    `json:"full_attn_idxs"`
		Kinds    *[]string `json:"layer_types"`
	}
	k.Layers, k.Width, k.Adjusts, k.Factor, k.Multiple = 32, 12288, adjusts, 1, 256
	text, err := json.Marshal(raw)
	if err != nil || json.Unmarshal(text, &k) != nil || k.Multiple < 1 {
		return // what is of another type is reported where it is entered
	}
	if k.Other > 0 {
		k.Width = k.Other
	}
	if k.Adjusts {
		k.Width = (int(k.Factor*float64(2*k.Width/3)) + k.Multiple - 1) / k.Multiple * k.Multiple
	}
	raw["intermediate_size"], raw["block_auto_adjust_ff_dim"] = json.RawMessage(family.JSONOf(k.Width)), []byte("false")
	for _, key := range []string{"block_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of", "full_attn_idxs"} {
		delete(raw, key)
	}
	if k.Kinds == nil && k.Full != nil {
		kinds := make([]string, k.Layers)
		for i := range kinds {
			if kinds[i] = family.ConvMixer; slices.Contains(*k.Full, i) {
				kinds[i] = "full_attention"
			}
		}
		raw["layer_types"] = json.RawMessage(family.JSONOf(kinds))
	}
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

// phiLong brings the length that longrope begins at to the other numbers of the scaling: Phi has it at the
// top. What is no mapping is reported with its key.
func phiLong(raw hf.Raw) {
	var scaling hf.Raw
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		if json.Unmarshal(raw[key], &scaling) == nil && scaling["long_factor"] != nil &&
			raw["original_max_position_embeddings"] != nil {
			scaling["original_max_position_embeddings"] = raw["original_max_position_embeddings"]
			raw[key] = json.RawMessage(family.JSONOf(scaling))
		}
	}
}

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

// glmKeys are the other ways to say which layers have an indexer: a letter a layer, or how often one comes
// after the first ones.
type glmKeys struct {
	Types   []string `key:"indexer_types"`
	Letters string   `key:"index_topk_pattern"`
	Every   int      `key:"index_topk_freq" min:"1"`
	First   int      `key:"index_skip_topk_offset" min:"0"`
	Layers  int      `key:"num_hidden_layers"`
}

// enter writes out for each layer whether it has an indexer of its own or shares one. The files say
// it by a list, by letters, or by a period.
func (k glmKeys) enter(d *hf.Decoder) {
	if k.Types != nil || k.Letters == "" && k.Every == 1 {
		return // each has one, or what it has
	}
	kinds := configs.IndexerKinds(k.Layers, k.Every, k.First)
	for i, letter := range k.Letters {
		if i < k.Layers {
			kinds[i] = map[rune]string{'F': configs.IndexFull, 'S': configs.IndexShared}[letter]
		}
	}
	d.Set("indexer_types", family.JSONOf(kinds))
}

// writeRopes writes the rotary settings of layers with a window and of the others.
func writeRopes(m hf.Values, out map[string]any) {
	full := map[string]any{"rope_type": "default"}
	if more, ok := m["rope_scaling"].(map[string]any); ok && more != nil {
		maps.Copy(full, more)
	}
	full["rope_theta"] = m["rope_theta"]
	out["rope_parameters"] = map[string]any{"full_attention": full, "sliding_attention": map[string]any{
		"rope_type": "default", "rope_theta": m["rope_local_base_freq"]}}
	for _, key := range []string{"rope_theta", "rope_scaling", "rope_local_base_freq"} {
		delete(out, key)
	}
}

// Files of ERNIE 4.5 and of StarCoder 2 have one key for all biases.
var _ = configs.Declare("one key for biases", configs.Rules[struct{}]{
	Check: func(m configs.Model, _ struct{}, at configs.Report) {
		family := m.Decoder()
		if (family == "ernie4_5" || family == "starcoder2") && m.AttentionBias != m.MLPBias {
			at("mlp_bias", strconv.FormatBool(m.MLPBias)+", but "+family+" has all biases or none",
				"set attention_bias and mlp_bias alike")
		}
	}})

// Cohere2Keys are the keys that Command R7B alone has.
type Cohere2Keys struct {
	LogitScale float64 `key:"logit_scale" default:"0.0625" min:"0" class:"fixed" doc:"Factor on logits."`
}

var _ = configs.Declare("cohere2", configs.Rules[Cohere2Keys]{})
