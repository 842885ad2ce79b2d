package robots

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/denoisers"
	"github.com/lfactor/lfactor/stages/family/towers"
	"github.com/lfactor/lfactor/stages/noise"
)

// GR00T N1.7 (arXiv:2503.14734), as NVIDIA's and lerobot's code have it: the first layers of Qwen3-VL (Cosmos-Reason2)
// host GR00T's head of actions, whose layers read words and views by turns.
var _ = family.Register(family.Family{ModelType: "groot_n1d7", Paper: "2503.14734", Composed: sevenFile(),
	Build: func(c configs.Model) *family.Model { return newSeven(c) }})

// sevenKeys are the keys of GR00T N1.7 beside those of N1.5's head.
type sevenKeys struct {
	Every int `key:"text_every" default:"2" min:"0" max:"1024" class:"fixed" doc:"Of so many layers of GR00T N1.7's transformer that attend to what the language model makes of a prompt one reads words, and the others views; 0 has each read both."`
}

var sevenPart = configs.Declare("groot_n1d7", configs.Rules[sevenKeys]{Check: func(m configs.Model,
	_ sevenKeys, at configs.Report) {
	k := grootPart.Of(m)
	if m.ModelType != "groot_n1d7" {
		return
	}
	if m.Hidden%k.MixHeads != 0 {
		at("mixer_heads", fmt.Sprintf("%d heads, and rows have %d numbers", k.MixHeads, m.Hidden), "")
	}
	grootChunk(m, k, at)
}})

// The beginnings of names of parameters in NVIDIA's files.
const (
	sevenBackbone = "backbone.model."
	sevenHead     = "action_head."
)

// newSeven puts the head behind the language model.
func newSeven(c configs.Model) *family.Model {
	_, _, _, build := towers.Qwen3VL()
	m := build("groot_n1d7", c, family.TextAt("model.language_model."))
	if err := m.Act(newSevenHead(c)); err != nil {
		panic("denoisers: Qwen3-VL hosts GR00T N1.7: " + err.Error()) // it sees
	}
	own := m.Source
	m.Source = func(name string) family.Source {
		s := own(name)
		if !strings.HasPrefix(name, sevenHead) {
			s.Name = sevenBackbone + s.Name
		}
		return s
	}
	return m
}

// seven is the head of N1.7.
type seven struct{ *dit }

func newSevenHead(c configs.Model) seven {
	k, o := grootPart.Of(c), policyPart.Of(c)
	d := &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: denoisers.Shared.Of(c).In, FeatureWidth: grootWaves +
		k.Width, Feature: func(t float64) []float32 { return grootTime(t, k.Width) }, Policy: family.Policy{
		Chunk: o.Chunk, Robots: o.Robots, Early: true, Steps: 4, Prompt: sevenPrompt, PromptBare: true,
		Sight: &family.Sight{Views: new(configs.Policy).ViewsMax(), Patches: 1, Pixels: 3, State: o.State}}}
	d.Learns = func(p *family.Process) {
		grootLearns(p)
		p.Levels = sevenLevels{noise.Flow{Shift: 1, Times: grootBuckets}}
	}
	return seven{&dit{d: d, robots: &ofRobots{d: d, weight: ".W", bias: ".b"}, name: sevenHead,
		port: family.ToldPort, told: c.Hidden, width: k.Width, heads: k.Heads, layers: k.Layers, out: k.Out,
		mixHeads: k.MixHeads, mixLayers: k.MixLayers, places: k.Places, every: sevenPart.Of(c).Every}}
}

// sevenLevels are those of GR00T N1.6 and N1.7: flow matching at times of which the cleanest is a thousandth
// from the actions.
type sevenLevels struct{ noise.Flow }

// At is the level at u.
func (l sevenLevels) At(u float64) noise.Level {
	s := 1 - 0.999*(1-u)
	return noise.Level{Alpha: float32(1 - s), Sigma: float32(s), Time: float32(grootBuckets * s)}
}

// sevenPrompt is what the model is told of a task: lower case, without marks.
func sevenPrompt(task string) string {
	if task == "" {
		task = "Perform the task."
	}
	return strings.Map(func(r rune) rune {
		if r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsSpace(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, task)
}

// Denoiser implements family.Head.
func (e seven) Denoiser() *family.Denoiser { return e.d }

// Blocks implements family.Head.
func (e seven) Blocks() ([]family.Block, map[string]family.Port) {
	norm := family.Block{Name: e.name + "vlln", Takes: []string{e.port}, Gives: []string{e.port}, Weight: 0.02,
		Record: func(r *block.Rec, env map[string]*grad.Value) { env[e.port] = e.first(r, env[e.port]) }}
	return append([]family.Block{norm}, e.blocks()...), e.ports()
}

// cosmos is the model that NVIDIA's files name, a Qwen3-VL of 2 billion parameters.
const cosmos = "nvidia/Cosmos-Reason2-2B"

// cosmosText and cosmosVision are its settings, which NVIDIA's files do not have.
const (
	cosmosText = `{"attention_bias": false, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128,
"hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
"max_position_embeddings": 262144, "num_attention_heads": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-6,
"rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"},
"rope_theta": 5000000, "tie_word_embeddings": true, "vocab_size": 151936}`
	cosmosVision = `{"deepstack_visual_indexes": [5, 11, 17], "depth": 24, "hidden_act": "gelu_pytorch_tanh",
"hidden_size": 1024, "in_channels": 3, "initializer_range": 0.02, "intermediate_size": 4096, "num_heads": 16,
"num_position_embeddings": 2304, "out_hidden_size": 2048, "patch_size": 16, "spatial_merge_size": 2,
"temporal_patch_size": 2}`
)

// sevenOnly are keys of NVIDIA's files that have one value; sevenIdle say nothing about the arithmetic.
var (
	sevenOnly = map[string]string{"use_vlln": "true", "add_pos_embed": "true", "state_history_length": "1",
		"noise_s": "0.999", "num_timestep_buckets": "1000", "noise_beta_alpha": "1.5", "noise_beta_beta": "1.0",
		"apply_sincos_state_encoding": "false", "exclude_state": "false", "num_inference_timesteps": "4",
		"backbone_model_type": `"qwen"`, "reproject_vision": "false", "formalize_language": "true"}
	sevenIdle = []string{"model_dtype", "dtype", "model_name", "base_model_path", "model_revision",
		"tune_top_llm_layers", "tune_llm", "tune_visual", "tune_projector", "tune_diffusion_model",
		"tune_vlln", "use_flash_attention", "load_bf16", "backbone_trainable_params_fp32", "image_crop_size",
		"image_target_size", "shortest_image_edge", "crop_fraction", "random_rotation_angle", "color_jitter_params",
		"use_albumentations_transforms", "extra_augmentation_config", "use_percentiles", "use_relative_action",
		"attn_dropout", "state_dropout_prob", "use_mean_std", "rtc_ramp_rate", "torch_dtype", "use_bf16",
		"collator_overwrite_image_inputs", "letter_box_transform", "use_vl_self_attention"}
	sevenSizes = map[string]string{"max_action_dim": "in_channels", "max_state_dim": "state_size",
		"action_horizon": "chunk_size", "max_num_embodiments": "embodiments", "max_seq_len": "action_positions",
		"input_embedding_dim": "dit_width", "hidden_size": "dit_output"}
	sevenNested = []string{"diffusion_model_cfg", "vl_self_attention_cfg", "use_alternate_vl_dit",
		"attend_text_every_n_blocks", "select_layer", "backbone_embedding_dim"}
)

// sevenFile is how NVIDIA's files are read and written.
func sevenFile() *hf.Composed {
	vision, preset, _, _ := towers.Qwen3VL()
	top := map[string]string{}
	for from, to := range sevenSizes {
		top[from] = to
	}
	for _, key := range slices.Concat(sevenIdle, sevenNested, source.SortedKeys(sevenOnly)) {
		top[key] = ""
	}
	return &hf.Composed{Class: "Gr00tN1d7", Alias: "Gr00tN1d7", Text: "qwen3", Vision: vision, Preset: preset,
		Has: []string{"in_channels", "state_size", "chunk_size", "embodiments", "dit_width", "dit_heads",
			"dit_layers", "dit_output", "mixer_heads", "mixer_layers", "action_positions", "text_every"}, Top: top,
		Prepare: sevenBackboneOf, Rest: sevenRest, Write: writeSeven}
}

// sevenBackboneOf gives a file the settings of the language model that it names.
func sevenBackboneOf(raw hf.Raw) {
	layers, name := json.RawMessage("16"), ""
	if n := raw["select_layer"]; n != nil {
		layers = n
	}
	_ = json.Unmarshal(raw["model_name"], &name) // another value is no name
	if _, own := raw["vision_config"]; !own && (name == "" || strings.TrimSuffix(name, "/") == cosmos) {
		raw["vision_config"] = json.RawMessage(cosmosVision)
		raw["text_config"] = json.RawMessage(cosmosText)
		raw["image_token_id"], raw["video_token_id"] = json.RawMessage("151655"), json.RawMessage("151656")
		raw["vision_start_token_id"] = json.RawMessage("151652")
	}
	var text map[string]json.RawMessage
	if json.Unmarshal(raw["text_config"], &text) != nil || text == nil {
		return // what is no mapping is the reader's to refuse
	}
	text["num_hidden_layers"] = layers
	if b, err := json.Marshal(text); err == nil {
		raw["text_config"] = b
	}
	if raw["tie_word_embeddings"] == nil && text["tie_word_embeddings"] != nil {
		raw["tie_word_embeddings"] = text["tie_word_embeddings"]
	}
}

// sevenRest reads what lies deeper, and holds the rest to the values that are built.
func sevenRest(d *hf.Decoder, raw, _ map[string]json.RawMessage) {
	for _, key := range source.SortedKeys(sevenOnly) {
		if v := raw[key]; v != nil && !source.SameValue(sevenOnly[key], hf.Compact(v)) {
			d.Fail(key, fmt.Sprintf("%s, only %s can be trained", hf.Compact(v), sevenOnly[key]), "")
		}
	}
	type transformer struct {
		Layers int `json:"num_layers"`
		Heads  int `json:"num_attention_heads"`
		Head   int `json:"attention_head_dim"`
		Out    int `json:"output_dim"`
	}
	read := func(key string, usual transformer) transformer {
		if v := raw[key]; v != nil && json.Unmarshal(v, &usual) != nil {
			d.Fail(key, "is no mapping of sizes", "")
		}
		return usual
	}
	ditMapping.hold(d, raw, "diffusion_model_cfg")
	mixMapping.hold(d, raw, "vl_self_attention_cfg")
	dit := read("diffusion_model_cfg", transformer{32, 32, 48, 1024})
	mix := read("vl_self_attention_cfg", transformer{4, 32, 64, 0})
	every := 2
	if v := raw["attend_text_every_n_blocks"]; v != nil && json.Unmarshal(v, &every) != nil {
		d.Fail("attend_text_every_n_blocks", "is no whole number", "")
	}
	if string(raw["use_alternate_vl_dit"]) == "false" {
		every = 0
	}
	usual := map[string]string{"in_channels": "132", "state_size": "132", "chunk_size": "40", "embodiments": "32",
		"action_positions": "1024", "dit_width": "1536", "dit_output": "1024"}
	for _, from := range source.SortedKeys(sevenSizes) {
		if to := sevenSizes[from]; raw[from] == nil {
			d.Set(to, usual[to])
		}
	}
	width, out := 1536, 1024
	for key, to := range map[string]*int{"input_embedding_dim": &width, "hidden_size": &out} {
		if v := raw[key]; v != nil {
			_ = json.Unmarshal(v, to) // another value is the reader's to refuse
		}
	}
	if dit.Heads*dit.Head != width || dit.Out != out {
		d.Fail("diffusion_model_cfg", fmt.Sprintf("%d heads of %d numbers give %d, and input_embedding_dim = %d and "+
			"hidden_size = %d", dit.Heads, dit.Head, dit.Out, width, out), "")
	}
	for key, n := range map[string]int{"dit_layers": dit.Layers, "dit_heads": dit.Heads, "mixer_layers": mix.Layers,
		"mixer_heads": mix.Heads, "text_every": every} {
		d.Set(key, fmt.Sprint(n))
	}
}

// writeSeven writes NVIDIA's file. Settings of another language model than the published one are keys of
// this program's own.
func writeSeven(m hf.Values, out map[string]any, put func(string, any)) {
	_, _, write, _ := towers.Qwen3VL()
	write(m, out, put)
	out["model_type"], out["select_layer"] = "Gr00tN1d7", m["num_hidden_layers"]
	for from, to := range sevenSizes {
		out[from] = m[to]
	}
	width, heads := m.Int("dit_width"), m.Int("dit_heads")
	out["backbone_embedding_dim"], out["backbone_model_type"] = m["hidden_size"], "qwen"
	out["use_alternate_vl_dit"] = m.Int("text_every") > 0
	out["attend_text_every_n_blocks"] = max(1, m.Int("text_every"))
	out["diffusion_model_cfg"] = map[string]any{"positional_embeddings": nil, "num_layers": m["dit_layers"],
		"num_attention_heads": heads, "attention_head_dim": width / heads, "norm_type": "ada_norm", "dropout": 0.2,
		"final_dropout": true, "output_dim": m["dit_output"], "interleave_self_attention": true}
	out["vl_self_attention_cfg"] = map[string]any{"positional_embeddings": nil, "num_layers": m["mixer_layers"],
		"num_attention_heads": m["mixer_heads"], "attention_head_dim": m.Int("hidden_size") / m.Int("mixer_heads"),
		"dropout": 0.2, "final_dropout": true}
	out["model_name"] = cosmos
}
