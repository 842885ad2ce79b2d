package decoders

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// rule changes a family that a description has; n is the number that stands beside its name.
type rule func(f *family.Family, n int)

// rules are what descriptions may name for what their other fields cannot say.
var rules = map[string]rule{
	// which layers have a window: sliding_window counts where use_sliding_window is true, in layers from
	// max_window_layers on, in every other of those before, or in all
	"windows_from":        func(f *family.Family, _ int) { windowed(f, fromOn) },
	"windows_every_other": func(f *family.Family, _ int) { windowed(f, everyOther) },
	"windows_in_all":      func(f *family.Family, _ int) { windowed(f, nil) },
	"windows_always":      windowsFrom,
	// layer_types follows from sliding_window_pattern, of so many layers where the file does not say
	"window_pattern": func(f *family.Family, n int) {
		own(f, hf.Keys(cohere2File{Pattern: n, Layers: layersOf(f)}, cohere2File.enter))
	},
	"window_pattern_or_word": func(f *family.Family, _ int) {
		own(f, hf.Keys(exaone4File{Layers: layersOf(f)}, exaone4File.enter))
	},
	"no_rope_layers": noRopeLayers,
	// one key, use_bias, stands for all biases; its default is the number
	"use_bias": func(f *family.Family, n int) {
		own(f, hf.Keys(ernieBias{On: n == 1}, ernieBias.enter))
		writes(f, func(m hf.Values, out map[string]any) { out["use_bias"] = m["attention_bias"] })
	},
	"local_experts":   func(f *family.Family, _ int) { f.HF = family.Mixed(f.HF) },
	"always_experts":  alwaysMixed,
	"dense_or_sparse": denseOrSparse,
	"topk_method":     topkMethod,
	"indexed":         func(f *family.Family, _ int) { f.HF = family.Indexed(f.HF) },
	"indexer_types": func(f *family.Family, _ int) {
		own(f, hf.Keys(glmKeys{Every: 1, First: 2, Layers: layersOf(f)}, glmKeys.enter))
	},
	"rotary_dim":        rotaryDim,
	"linear_every":      linearEvery,
	"linear_attention":  func(f *family.Family, _ int) { specs(f, linearAttention) },
	"hide_further":      hideFurther,
	"short_convolution": shortConvolution,
	"hunyuan_file":      func(f *family.Family, _ int) { f.HF.Prepare = hunyuanFile },
	"original_length":   originalLength,
	"ropes_by_kind":     func(f *family.Family, _ int) { writes(f, writeRopes) },
	"score_factor":      scoreFactor,
	// transformers' own may lie beyond a small vocabulary
	"no_padding": func(f *family.Family, _ int) {
		writes(f, func(_ hf.Values, out map[string]any) { out["pad_token_id"] = nil })
	},
	"internlm_dynamic": func(f *family.Family, _ int) {
		if len(f.Loong) == 0 {
			return
		}
		f.Loong[0].Dynamic = func(base string) string {
			if source.SameValue(base, "5e7") {
				return "2.5" // InternLM2.5's own factor is 2 with a base of 1e6, 2.5 with 5e7
			}
			return "2"
		}
	},
	"baichuan": baichuan,
	"gpt2":     gpt2,
}

// conditions of rules: the least number beside their names, and keys whose defaults they go by.
var conditions = map[string]struct {
	least    int
	defaults string
}{
	"windows_from": {defaults: "num_hidden_layers"}, "windows_every_other": {defaults: "num_hidden_layers"},
	"windows_in_all": {defaults: "num_hidden_layers"}, "windows_always": {defaults: "num_hidden_layers"},
	"window_pattern": {1, "num_hidden_layers"}, "window_pattern_or_word": {defaults: "num_hidden_layers"},
	"no_rope_layers": {1, "num_hidden_layers"}, "linear_every": {1, "num_hidden_layers"},
	"indexer_types": {defaults: "num_hidden_layers"}, "always_experts": {defaults: "moe_intermediate_size"},
	"dense_or_sparse": {least: -1}, "indexed": {defaults: "first_k_dense_replace"},
}

func own(f *family.Family, o hf.Own) { f.HF.Own = append(f.HF.Own, o) }

// layersOf is the number of layers where a file does not say.
func layersOf(f *family.Family) int { return family.WholeOf(f.HF.Absent["num_hidden_layers"]) }

// writes adds to what is written into config.json.
func writes(f *family.Family, w func(m hf.Values, out map[string]any)) {
	before := f.HF.Write
	f.HF.Write = func(m hf.Values, out map[string]any) {
		if before != nil {
			before(m, out)
		}
		w(m, out)
	}
}

// specs adds to what a family's layers are.
func specs(f *family.Family, more func(c configs.Model, s *family.Spec)) {
	before := f.Spec
	f.Spec = func(c configs.Model, s *family.Spec) {
		before(c, s)
		more(c, s)
	}
}

// sourceOf finds a family's tensors, by names of ours where it has no others.
func sourceOf(f *family.Family) func(c configs.Model) func(name string) family.Source {
	if f.Source != nil {
		return f.Source
	}
	return (&Names{}).source()
}

// writeWindow says that there is a window.
func writeWindow(m hf.Values, out map[string]any) {
	if m.Int("sliding_window") > 0 {
		out["use_sliding_window"] = true
	}
}

// windowed has windows where use_sliding_window is true, in layers of which slides holds: a layer's place, and
// max_window_layers. Where it is nil, all layers have the window, and files have no layer_types.
func windowed(f *family.Family, slides func(layer, most int) bool) {
	window := 4096
	own(f, hf.Keys(windowKeys{Window: &window, Most: 28, Layers: layersOf(f)},
		func(k windowKeys, d *hf.Decoder) { k.enter(d, slides) }))
	writes(f, writeWindow)
}

// windowsFrom has windows in layers from max_window_layers on, which most stands for, and in no layer where
// sliding_window is null.
func windowsFrom(f *family.Family, most int) {
	window := 4096
	own(f, hf.Keys(windowKeys{Window: &window, Most: most, Layers: layersOf(f)},
		func(k windowKeys, d *hf.Decoder) {
			k.Use = true
			k.enter(d, fromOn)
		}))
}

// noRopeLayers reads which layers do not turn: those that no_rope_layers names, else each so many-th.
func noRopeLayers(f *family.Family, every int) {
	own(f, hf.Keys(smolKeys{Every: every, Layers: layersOf(f)}, smolKeys.enter))
	writes(f, writeWindow)
	specs(f, func(c configs.Model, s *family.Spec) {
		s.NoRope = func(i int) bool {
			if turns := family.Scales.Of(c).NoRope; i < len(turns) {
				return turns[i] == 0
			}
			return (i+1)%every == 0
		}
	})
}

// alwaysMixed gives a family without a width of dense layers that of an expert in its place.
func alwaysMixed(f *family.Family, _ int) {
	type keys struct {
		Width  int `key:"intermediate_size"`
		Expert int `key:"moe_intermediate_size"`
	}
	own(f, hf.Keys(keys{Expert: family.WholeOf(f.HF.Absent["moe_intermediate_size"])},
		func(k keys, d *hf.Decoder) {
			if k.Width == 0 {
				d.Set("intermediate_size", fmt.Sprint(k.Expert))
			}
		}))
}

// denseOrSparse reads mlp_layer_types in transformers' words. Without them so many first layers are dense, or as many
// as the file says if first is below 0.
func denseOrSparse(f *family.Family, first int) {
	const list, number = "mlp_layer_types", "first_k_dense_replace"
	f.HF.Prepare = func(raw hf.Raw) {
		if first >= 0 {
			raw[number] = json.RawMessage(strconv.Itoa(first))
		}
		var kinds []string
		if json.Unmarshal(raw[list], &kinds) != nil || len(kinds) == 0 {
			return
		}
		for i, kind := range kinds {
			kinds[i] = cmp.Or(map[string]string{"dense": "gated", "sparse": "experts"}[kind], kind)
		}
		raw[list] = json.RawMessage(family.JSONOf(kinds))
	}
	writes(f, func(m hf.Values, out map[string]any) {
		kinds, _ := m[list].([]string)
		if len(kinds) == 0 && first < 0 {
			return // the number says it
		}
		words := make([]string, m.Int("num_hidden_layers"))
		for i := range words {
			words[i] = "sparse"
			if len(kinds) == 0 && i < m.Int(number) || len(kinds) > 0 && kinds[i] == "gated" {
				words[i] = "dense"
			}
		}
		out[list] = words
	})
}

// topkMethod: groups of experts count only with the method of choice that is limited by groups.
func topkMethod(f *family.Family, _ int) {
	type keys struct {
		Method string `key:"topk_method" oneof:"greedy|group_limited_greedy"`
		Groups int    `key:"n_group"`
	}
	own(f, hf.Keys(keys{Method: "greedy"}, func(k keys, d *hf.Decoder) {
		if k.Method == "greedy" && k.Groups > 1 {
			d.Fail("n_group", "groups play no part where topk_method is greedy",
				"set n_group to 1, or topk_method to group_limited_greedy")
		}
	}))
	writes(f, func(m hf.Values, out map[string]any) {
		out["topk_method"] = "greedy"
		if m.Int("n_group") > 1 {
			out["topk_method"] = "group_limited_greedy"
		}
	})
}

// rotaryDim reads and writes how many numbers of a head turn.
func rotaryDim(f *family.Family, _ int) {
	own(f, hf.Keys(minimaxKeys{Head: 128}, minimaxKeys.enter))
	writes(f, func(m hf.Values, out map[string]any) {
		out["rotary_dim"] = int(m["partial_rotary_factor"].(float64) * float64(m.Int("head_dim")))
	})
}

// linearEvery has attention in each layer of so many, as full_attention_interval says, and linear attention in the others.
func linearEvery(f *family.Family, every int) {
	type keys struct {
		Every  int      `key:"full_attention_interval" min:"1"`
		Layers int      `key:"num_hidden_layers"`
		Types  []string `key:"layer_types"`
	}
	own(f, hf.Keys(keys{Every: every, Layers: layersOf(f)}, func(k keys, d *hf.Decoder) {
		if k.Types == nil && k.Every != every {
			d.Set("layer_types", family.JSONOf(hybridLayers(k.Layers, k.Every)))
		}
	}))
}

// linearAttention is what the keys of a configuration say of layers of linear attention.
func linearAttention(c configs.Model, s *family.Spec) {
	k := family.Linear.Of(c)
	s.Delta = block.Delta{Hidden: s.Hidden, Keys: k.LinearKeys, Values: k.LinearValues, KeyDim: k.LinearKeyDim,
		ValueDim: k.LinearDim, Taps: k.LinearTaps, Eps: s.Eps}
}

// hideFurther leaves layers for further tokens out of files where there are none, as published files do.
func hideFurther(f *family.Family, _ int) {
	const key = "num_nextn_predict_layers"
	writes(f, func(m hf.Values, out map[string]any) {
		if m.Int(key) == 0 {
			delete(out, key)
		}
	})
}

// shortConvolution has LFM2's convolutions between gates, and the file that tells of them.
func shortConvolution(f *family.Family, adjusts int) {
	f.HF.Prepare = func(raw hf.Raw) { lfm2File(raw, adjusts > 0) }
	specs(f, func(c configs.Model, s *family.Spec) { s.Delta.Taps = family.Linear.Of(c).LinearTaps })
	if f.Source = convolved(sourceOf(f)); f.Other != nil {
		f.Other = convolved(f.Other)
	}
}

// convolved has mixers that are short convolutions under names of their own.
func convolved(inner func(c configs.Model) func(string) family.Source) func(c configs.Model) func(string) family.Source {
	return func(c configs.Model) func(string) family.Source {
		find := inner(c)
		return func(name string) family.Source {
			s := find(name)
			before, part, ok := strings.Cut(name, ".self_attn.")
			if !ok || len(c.LayerTypes) == 0 || c.LayerTypes[layerNumber(before)] != family.ConvMixer {
				return s
			}
			s.Name = strings.Replace(s.Name, ".self_attn.", ".conv.", 1)
			if part == "x_conv.weight" {
				s.Name, s.Tail = before+".conv.conv.weight", []int{1, family.Linear.Of(c).LinearTaps}
			} else if i := slices.Index([]string{"b_proj.weight", "c_proj.weight", "x_proj.weight"}, part); i >= 0 {
				s.Name, s.Rows = before+".conv.in_proj.weight", [][2]int{{i * c.Hidden, (i + 1) * c.Hidden}}
			}
			return s
		}
	}
}

// originalLength reads and writes the length that longrope begins at, which Phi has at the top.
func originalLength(f *family.Family, _ int) {
	const key = "original_max_position_embeddings"
	f.HF.Prepare = phiLong
	writes(f, func(m hf.Values, out map[string]any) {
		if scaling, ok := m["rope_scaling"].(map[string]any); ok && scaling[key] != nil {
			out[key] = scaling[key]
		}
	})
}

// scoreFactor writes the usual factor on scores, where transformers' default is 1.
func scoreFactor(f *family.Family, _ int) {
	writes(f, func(m hf.Values, out map[string]any) {
		if out["attention_multiplier"] == nil {
			out["attention_multiplier"] = 1 / math.Sqrt(float64(m.Int("head_dim")))
		}
	})
}

// baichuan tells the two sizes of Baichuan 2 apart, in reading and in writing.
func baichuan(f *family.Family, _ int) {
	f.HF.Read = readBaichuan
	writes(f, func(m hf.Values, out map[string]any) {
		out["model_max_length"] = m["max_position_embeddings"]
		if m["position_embeddings"] == alibi {
			delete(out, "max_position_embeddings")
		}
	})
}

// gpt2 reads and writes GPT-2's words for MLPs, and finds tensors with and without the prefix of transformers' class.
func gpt2(f *family.Family, _ int) {
	own(f, hf.Keys(gpt2Keys{Width: 768, Act: "gelu_new"}, gpt2Keys.enter))
	writes(f, func(m hf.Values, out map[string]any) {
		act := m.Text("hidden_act")
		if act == "gelu_pytorch_tanh" {
			act = "gelu_new" // as published files have it
		}
		out["activation_function"] = act
	})
	specs(f, func(c configs.Model, s *family.Spec) {
		k := family.Scales.Of(c)
		if s.DepthScale = k.DepthScale; !k.WidthScale {
			s.AttnScale = 1
		}
	})
	inner := sourceOf(f)
	f.Other = func(c configs.Model) func(string) family.Source {
		find := inner(c)
		return family.InTransformers(func(name string) family.Source {
			s := find(name)
			s.Name = strings.TrimPrefix(s.Name, "transformer.")
			return s
		}, [2]string{"", "transformer."})
	}
}
