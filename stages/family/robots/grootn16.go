package robots

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// GR00T N1.6 (arXiv:2503.14734), as NVIDIA's code has it: the first layers of Qwen3 read what SigLIP 2 sees,
// four patches a row, and what is told; the head of actions is N1.7's, without layers between both.
var _ = family.Register(family.Family{ModelType: "groot_n1d6", Paper: "2503.14734", HF: sixFile(),
	Build: func(c configs.Model) *family.Model { return newSix(c) }})

// sixKeys are the keys of GR00T N1.6 beside those of N1.5 and N1.7.
type sixKeys struct {
	Table int  `key:"view_places" default:"16" min:"1" max:"1024" class:"fixed" unit:"patches" doc:"Side of the table of learned places of patches, which is brought to the side of a view."`
	Mask  bool `key:"state_mask" default:"false" class:"fixed" doc:"Checkpoints have a row that stands for states which are dropped; it is kept, and nothing reads it."`
}

var sixPart = configs.Declare("groot_n1d6", configs.Rules[sixKeys]{Check: func(m configs.Model,
	_ sixKeys, at configs.Report) {
	if m.ModelType != "groot_n1d6" {
		return
	}
	k, o := grootPart.Of(m), piPart.Of(m)
	if square := o.Patch * smolPart.Of(m).Fold; square < 1 || o.Side%square != 0 {
		at("view_size", fmt.Sprintf("%d pixels, and squares of patches have %d on each side", o.Side, square),
			"take a multiple of that")
	}
	if o.Hidden%max(1, o.Heads) != 0 {
		at("view_hidden_size", fmt.Sprintf("%d is no multiple of view_heads = %d", o.Hidden, o.Heads), "")
	}
	grootChunk(m, k, at)
	if k.Image >= m.Vocab {
		at("image_token", fmt.Sprintf("%d, and the vocabulary has %d tokens", k.Image, m.Vocab), "")
	}
}})

// The beginnings of names of parameters in NVIDIA's files.
const (
	sixEagle = "backbone.model."
	sixHead  = "action_head."
)

// newSix is N1.5 with what N1.6 has otherwise.
func newSix(c configs.Model) *family.Model {
	k := sixPart.Of(c)
	p := newGroot(c)
	p.eagle, p.fold, p.tied, p.mask, p.table = sixEagle, smolPart.Of(c).Fold, c.TieEmbeddings, k.Mask, k.Table
	p.tower, p.language = sixEagle+"vision_model.vision_model.", sixEagle+"language_model.model."
	p.head.name, p.head.mixLayers, p.head.future, p.head.every = sixHead, 0, 0, sevenPart.Of(c).Every
	p.d.Sight.Fold, p.d.Sight.Last, p.d.Words.Between = p.fold, true, sixPrompt
	p.d.Learns = func(process *family.Process) {
		grootLearns(process)
		process.Levels = sevenLevels{noise.Flow{Shift: 1, Times: grootBuckets}}
	}
	m := p.model()
	m.Beginnings, m.Spec.Tie = nil, p.tied // files may repeat the words as the head
	return m
}

// sixPrompt is what the model is told of a task and of so many views, which lie behind it.
func sixPrompt(task string, views int) []string {
	out := []string{"<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n" +
		sevenPrompt(task)}
	for i := range views {
		out[i] += fmt.Sprintf("<image %d><img>", i+1)
		out = append(out, "</img>")
	}
	out[views] += "<|im_end|>\n"
	return out
}

// places are the learned places of a view's patches, [patches width]: those of a table of another side are
// blended as torch's bilinear interpolation with antialias blends them.
func (p *pi) places(t *grad.Tape) *grad.Value {
	n, side := p.o.Hidden, p.o.Side/p.o.Patch
	name := p.tower + "embeddings.position_embedding.weight"
	if p.table == 0 || p.table == side {
		return t.Param(name, []int{side * side, n}, -1, 1, true)
	}
	table := t.Param(name, []int{p.table * p.table, n}, -1, 1, true)
	rows, weights := smoothTaps(p.table, side)
	var out *grad.Value
	for k := range len(rows[0]) * len(rows[0]) {
		i, j := k/len(rows[0]), k%len(rows[0])
		at, by := make([]int32, 0, side*side), make([]float32, 0, side*side)
		for y := range side {
			for x := range side {
				at = append(at, int32(rows[y][i]*p.table+rows[x][j]))
				by = append(by, weights[y][i]*weights[x][j])
			}
		}
		tap := t.ScaleRows(t.Take(table, t.ConstI32(fmt.Sprintf("pi.tap.%d", k), at)),
			t.Const(fmt.Sprintf("pi.blend.%d", k), by))
		if out != nil {
			tap = t.Add(out, tap)
		}
		out = tap
	}
	return out
}

// smoothTaps are the rows of a table of n that each of so many places blends, as many for all of them, with
// their weights: those of a triangle about it, which is as wide as the places lie apart, or one row.
func smoothTaps(n, side int) (rows [][]int, weights [][]float32) {
	scale, most := float64(n)/float64(side), 0
	reach := max(1, scale)
	for i := range side {
		middle, sum := scale*(float64(i)+0.5), 0.0
		from := max(int(middle-reach+0.5), 0)
		var at []int
		var by []float64
		for j := from; j < min(int(middle+reach+0.5), n); j++ {
			w := max(0, 1-math.Abs((float64(j)-middle+0.5)/reach))
			at, by, sum = append(at, j), append(by, w), sum+w
		}
		var shares []float32
		for _, w := range by {
			shares = append(shares, float32(w/sum))
		}
		rows, weights, most = append(rows, at), append(weights, shares), max(most, len(at))
	}
	for i := range rows {
		for len(rows[i]) < most {
			rows[i], weights[i] = append(rows[i], 0), append(weights[i], 0)
		}
	}
	return rows, weights
}

// squares makes one row of each square of patches of what is seen: of a row a patch's number varies slowest,
// and its place in the square fastest.
func (p *groot) squares(r *block.Rec, h *grad.Value) *grad.Value {
	t, v, n, fold := r.T, p.d.Sight, p.o.Hidden, p.fold
	features, each := v.FeatureRows(r.Shape), fold*fold
	h = t.Reshape(t.Take(h, squares(r, v, p.o.Side/p.o.Patch, fold)), features, each, n)
	h = t.Reshape(t.Permute(h, 0, 2, 1), features, n*each)
	h = r.LayerNorm(p.eagle+"mlp1.0", h, n*each, actEps)
	whole := block.LinearOpts{Bias: true, Rep: true}
	h = t.Act(r.Linear(p.eagle+"mlp1.1", h, p.c.Hidden, n*each, whole), kernels.GELU)
	return r.Linear(p.eagle+"mlp1.3", h, p.c.Hidden, p.c.Hidden, whole)
}

// eagleText and eagleVision are the settings of nvidia/Eagle-Block2A-2B-v2, which NVIDIA's files do not have,
// by their names in this program: those of the language model, and of the tower.
var (
	eagleText = map[string]string{"hidden_size": "2048", "num_attention_heads": "16", "num_key_value_heads": "8",
		"head_dim": "128", "intermediate_size": "6144", "vocab_size": "151680", "rms_norm_eps": "1e-6",
		"rope_theta": "1000000", "tie_word_embeddings": "true"}
	eagleVision = map[string][2]string{"hidden_size": {"view_hidden_size", "1152"},
		"intermediate_size": {"view_intermediate_size", "4304"}, "num_attention_heads": {"view_heads", "16"},
		"num_hidden_layers": {"view_layers", "27"}, "patch_size": {"view_patch", "14"}}
)

// sixOnly are keys of NVIDIA's files that have one value; sixSizes are sizes.
var (
	sixOnly = map[string]string{"use_vlln": "true", "add_pos_embed": "true", "noise_s": "0.999",
		"num_timestep_buckets": "1000", "noise_beta_alpha": "1.5", "noise_beta_beta": "1.0",
		"apply_sincos_state_encoding": "false", "num_inference_timesteps": "4", "backbone_model_type": `"eagle"`,
		"reproject_vision": "false", "formalize_language": "true", "state_additive_noise_scale": "0.0"}
	sixSizes = map[string][2]string{"max_action_dim": {"in_channels", "29"}, "max_state_dim": {"state_size", "29"},
		"action_horizon": {"chunk_size", "16"}, "max_num_embodiments": {"embodiments", "32"},
		"max_seq_len": {"action_positions", "1024"}, "input_embedding_dim": {"dit_width", "1536"},
		"select_layer": {"num_hidden_layers", "16"}}
)

// sixFile is how NVIDIA's files are read and written.
func sixFile() hf.Family {
	alias := map[string]string{}
	for from, to := range sixSizes {
		alias[from] = to[0]
	}
	return hf.Family{Class: "Gr00tN1d6", Type: "Gr00tN1d6", Diffusers: true, Alias: alias, Has: []string{"latent_patch",
		"in_channels", "state_size", "chunk_size", "views", "view_size", "view_patch", "view_hidden_size",
		"view_intermediate_size", "view_heads", "view_layers", "view_fold", "view_places", "embodiments", "image_token",
		"dit_width", "dit_heads", "dit_layers", "dit_output", "action_positions", "text_every", "state_mask"},
		Fixed: map[string]string{"hidden_act": `"silu"`}, Usual: map[string]string{"view_fold": "2"},
		Absent: map[string]string{"latent_patch": "[1, 1, 1]", "view_fold": "2"}, Omit: []string{"latent_patch"},
		Only: sixOnly, Idle: slices.Concat(sevenIdle, sevenNested, []string{"eagle_collator", "text_config",
			"vision_config", "architectures", "transformers_version", "auto_map"}, lerobotIdle), Prepare: sixSizesOf,
		Read: sixRest, Write: writeSix}
}

// sixSizesOf makes sizes of what NVIDIA's file has.
func sixSizesOf(raw hf.Raw) {
	delete(raw, "hidden_act")
	raw["dit_output"] = raw["hidden_size"] // of the head, and not of the language model
	set := func(key, usual string) {
		if raw[key] == nil {
			raw[key] = json.RawMessage(usual)
		}
	}
	set("dit_output", "1024")
	for from, to := range sixSizes {
		if raw[to[0]] == nil {
			set(from, to[1])
		}
	}
	delete(raw, "hidden_size")
	part := func(key string) map[string]json.RawMessage {
		var m map[string]json.RawMessage
		_ = json.Unmarshal(raw[key], &m) // what is no mapping is sixRest's to refuse
		return m
	}
	text, vision, dit := part("text_config"), part("vision_config"), part("diffusion_model_cfg")
	take := func(to string, from json.RawMessage, usual string) {
		if from != nil {
			raw[to] = from
		}
		set(to, usual)
	}
	for key, usual := range eagleText {
		take(key, text[key], usual)
	}
	for key, to := range eagleVision {
		take(to[0], vision[key], to[1])
	}
	take("dit_layers", dit["num_layers"], "32")
	take("dit_heads", dit["num_attention_heads"], "32")
	take("text_every", raw["attend_text_every_n_blocks"], "2")
	if string(raw["use_alternate_vl_dit"]) == "false" {
		raw["text_every"] = json.RawMessage("0")
	}
	var n int
	if json.Unmarshal(vision["num_patches"], &n) == nil && n > 0 {
		set("view_places", fmt.Sprint(int(math.Sqrt(float64(n)))))
	}
	var size []int
	if json.Unmarshal(raw["image_target_size"], &size) == nil && len(size) == 2 && size[0] == size[1] {
		const step = 28 // of NVIDIA's processor
		set("view_size", fmt.Sprint(int(math.RoundToEven(float64(size[0])/step))*step))
	}
	set("view_size", "252")
	var drops float64
	if json.Unmarshal(raw["state_dropout_prob"], &drops) == nil && drops > 0 {
		set("state_mask", "true")
	}
}

// sixRest holds what lies deeper to the values that are built.
func sixRest(d *hf.Decoder, raw map[string]json.RawMessage) {
	for _, key := range []string{"text_config", "vision_config", "diffusion_model_cfg"} {
		var m map[string]json.RawMessage
		if v := raw[key]; v != nil && json.Unmarshal(v, &m) != nil {
			d.Fail(key, "is no mapping of sizes", "")
		}
	}
	eagleTextMapping.hold(d, raw, "text_config")
	eagleVisionMapping.hold(d, raw, "vision_config")
	ditMapping.hold(d, raw, "diffusion_model_cfg")
	var dit struct {
		Heads int `json:"num_attention_heads"`
		Head  int `json:"attention_head_dim"`
		Out   int `json:"output_dim"`
	}
	dit.Heads, dit.Head, dit.Out = 32, 48, 1024
	_ = json.Unmarshal(raw["diffusion_model_cfg"], &dit) // another value is refused above
	width, out := 0, 0
	for key, to := range map[string]*int{"input_embedding_dim": &width, "dit_output": &out} {
		_ = json.Unmarshal(raw[key], to) // another value is the reader's to refuse
	}
	if raw["input_embedding_dim"] != nil && (dit.Heads*dit.Head != width || dit.Out != out) {
		d.Fail("diffusion_model_cfg", fmt.Sprintf("%d heads of %d numbers give %d, and "+
			"input_embedding_dim = %d and hidden_size = %d", dit.Heads, dit.Head, dit.Out, width, out), "")
	}
}

// writeSix writes NVIDIA's file. Settings of another tower or language model than the published ones are
// text_config and vision_config in it.
func writeSix(m hf.Values, out map[string]any) {
	for _, key := range []string{"_class_name", "_diffusers_version", "num_attention_heads", "view_fold",
		"view_places", "state_mask", "text_every", "dit_heads", "dit_layers", "dit_output"} {
		delete(out, key)
	}
	text, vision := map[string]any{}, map[string]any{"use_rope": false, "use_windows_attn": false,
		"num_patches": m.Int("view_places") * m.Int("view_places")}
	for key := range eagleText {
		text[key] = m[key]
	}
	for key, to := range eagleVision {
		vision[key] = m[to[0]]
		delete(out, to[0])
	}
	width, heads := m.Int("dit_width"), m.Int("dit_heads")
	out["model_type"], out["architectures"] = "Gr00tN1d6", []string{"Gr00tN1d6"}
	out["text_config"], out["vision_config"] = text, vision
	out["hidden_size"], out["backbone_embedding_dim"] = m["dit_output"], m["hidden_size"]
	out["model_name"] = "nvidia/Eagle-Block2A-2B-v2"
	out["use_alternate_vl_dit"] = m.Int("text_every") > 0
	out["attend_text_every_n_blocks"] = max(1, m.Int("text_every"))
	out["diffusion_model_cfg"] = map[string]any{"positional_embeddings": nil, "num_layers": m["dit_layers"],
		"num_attention_heads": heads, "attention_head_dim": width / heads, "norm_type": "ada_norm", "dropout": 0.2,
		"final_dropout": true, "output_dim": m["dit_output"], "interleave_self_attention": true}
	if m["state_mask"] == true {
		out["state_dropout_prob"] = 0.1 // NVIDIA's class has the row where states are dropped
	}
}
