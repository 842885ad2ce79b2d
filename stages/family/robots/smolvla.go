package robots

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// smolKeys are the keys that SmolVLA alone has.
type smolKeys struct {
	Every int `key:"self_attention_every" default:"2" min:"1" max:"1024" class:"fixed" unit:"layers" doc:"Of so many layers of SmolVLA's expert one attends to actions too; the others attend to what is seen and told alone."`
	Fold  int `key:"view_fold" default:"4" min:"1" max:"64" class:"fixed" doc:"Side of the squares of patches whose features become one row."`
}

var smolPart = configs.Declare("smolvla", configs.Rules[smolKeys]{Check: func(m configs.Model, k smolKeys,
	at configs.Report) {
	if o := piPart.Of(m); m.ModelType == "smolvla" && (k.Fold < 1 || o.Side/max(1, o.Patch)%k.Fold != 0) {
		at("view_fold", fmt.Sprintf("%d, and a view has %d patches on each side", k.Fold, o.Side/max(1, o.Patch)),
			"take a divisor")
	}
}})

// SmolVLA (arXiv:2506.01844), as lerobot has it: the first layers of SmolVLM, whose rows are what is seen and told and
// the robot's state, and an expert of actions beside them. In every other layer actions see each other, none after it,
// and what the language model has; in the others they read its keys and values by projections of their own.
var _ = family.Register(family.Family{ModelType: "smolvla", Paper: "2506.01844", HF: smolFile(),
	Build: func(c configs.Model) *family.Model { return newSmol(c).model() }})

// smolHub is the model of the hub that lerobot's class is made of.
const smolHub = "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"

// smolSizes are the sizes that lerobot's files name by the model of the hub.
var smolSizes = map[string]map[string]int{smolHub: {"hidden_size": 960, "num_attention_heads": 15,
	"num_key_value_heads": 5, "head_dim": 64, "intermediate_size": 2560, "vocab_size": 49280, "view_size": 512,
	"view_patch": 16, "view_hidden_size": 768, "view_intermediate_size": 3072, "view_heads": 12, "view_layers": 12,
	"view_fold": 4}}

// smolFile is how lerobot's files are read and written.
func smolFile() hf.Family {
	only := map[string]string{"attention_mode": `"cross_attn"`, "num_expert_layers": "-1",
		"add_image_special_tokens": "false", "adapt_to_pi_aloha": "false", "use_delta_joint_actions_aloha": "false"}
	for _, key := range []string{"n_obs_steps", "min_period", "max_period"} {
		only[key] = piOnly[key]
	}
	only["tokenizer_max_length"] = "48"
	return hf.Family{Class: "smolvla", Diffusers: true, Has: []string{"latent_patch", "in_channels", "state_size",
		"expert_hidden_size", "expert_intermediate_size", "chunk_size", "views", "view_size", "view_patch",
		"view_hidden_size", "view_intermediate_size", "view_heads", "view_layers", "view_fold", "self_attention_every"},
		Fixed: map[string]string{"hidden_act": `"silu"`}, Absent: map[string]string{"num_hidden_layers": "16",
			"rms_norm_eps": "1e-5", "in_channels": "32", "state_size": "32", "latent_patch": "[1, 1, 1]"},
		Alias: map[string]string{"max_action_dim": "in_channels", "max_state_dim": "state_size",
			"num_vlm_layers": "num_hidden_layers", "self_attn_every_n_layers": "self_attention_every"},
		Omit: []string{"latent_patch"}, Only: only, Idle: append([]string{"vlm_model_name", "load_vlm_weights",
			"resize_imgs_with_padding", "expert_width_multiplier", "num_steps", "use_cache", "train_state_proj",
			"prefix_length", "pad_language_to"}, lerobotIdle...), Prepare: smolVariant, Write: writeSmol}
}

// smolExpert are the sizes of an expert of a share of a language model's width, as lerobot derives them.
func smolExpert(hidden int, share float64) (width, inter int) {
	width = int(float64(hidden) * share)
	return width, (4*(2*width/3) + 255) / 256 * 256
}

// smolVariant makes sizes of what lerobot's file names.
func smolVariant(raw hf.Raw) {
	viewed(raw)
	for _, key := range []string{"state_size", "view_height", "view_width"} { // there is room for more numbers
		delete(raw, key)
	}
	set := func(key string, n int) {
		if raw[key] == nil {
			raw[key] = json.RawMessage(fmt.Sprint(n))
		}
	}
	var name string
	_ = json.Unmarshal(raw["vlm_model_name"], &name) // another value is the reader's to refuse
	for key, n := range smolSizes[name] {
		set(key, n)
	}
	var sides []int
	if json.Unmarshal(raw["resize_imgs_with_padding"], &sides) == nil && (len(sides) != 2 || fmt.Sprint(sides[0]) != string(raw["view_size"]) || sides[0] != sides[1]) {
		raw["view_size"] = raw["resize_imgs_with_padding"] // which is refused: the tower reads squares of its size
	}
	if n := string(raw["num_expert_layers"]); n == "0" {
		raw["num_expert_layers"] = json.RawMessage("-1") // as many as the language model has
	}
	hidden, share := 0, 0.75
	if json.Unmarshal(raw["hidden_size"], &hidden) == nil && hidden > 0 {
		if text := raw["expert_width_multiplier"]; text != nil {
			_ = json.Unmarshal(text, &share) // no number is lerobot's to make, and leaves the share
		}
		width, inter := smolExpert(hidden, share)
		set("expert_hidden_size", width)
		set("expert_intermediate_size", inter)
	}
}

// writeSmol is the inverse of smolVariant: sizes have a name where lerobot has one.
func writeSmol(m hf.Values, out map[string]any) {
	delete(out, "_class_name")
	delete(out, "_diffusers_version")
	out["type"] = m.Text("model_type")
	sizes := []string{"hidden_size", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
		"num_attention_heads", "rms_norm_eps"}
	for _, key := range sizes {
		out[key] = m[key]
	}
	for name, have := range smolSizes {
		width, inter := m.Int("expert_hidden_size"), m.Int("expert_intermediate_size")
		share := float64(width) / float64(m.Int("hidden_size"))
		w, i := smolExpert(m.Int("hidden_size"), share)
		same := w == width && i == inter && m["rms_norm_eps"] == 1e-5
		for key, n := range have {
			same = same && m.Int(key) == n
		}
		if !same {
			continue
		}
		for key := range maps.Keys(have) {
			delete(out, key)
		}
		for _, key := range []string{"expert_hidden_size", "expert_intermediate_size", "views", "rms_norm_eps"} {
			delete(out, key)
		}
		side := m.Int("view_size")
		out["vlm_model_name"], out["expert_width_multiplier"] = name, share
		out["resize_imgs_with_padding"] = []int{side, side}
	}
}

// smol is a model of the family.
type smol struct {
	*pi
	s smolKeys
}

// The beginnings of names of parameters in lerobot's files.
const (
	smolName = "model.vlm_with_expert."
	smolVLM  = smolName + "vlm.model."
)

func newSmol(c configs.Model) *smol {
	p := &smol{newPi(c), smolPart.Of(c)}
	p.tower, p.language, p.expert = smolVLM+"vision_model.", smolVLM+"text_model.", smolName+"lm_expert."
	p.plus, p.act = 0, kernels.SiLU
	v := p.d.Sight
	v.State, v.Token, v.Fold, v.Corner = policyPart.Of(c).State, true, p.s.Fold, true
	p.d.Prompt = func(task string) string { return strings.TrimSuffix(task, "\n") + "\n" }
	p.d.PromptMost, p.d.PromptBare = 48, true
	p.d.Words = family.Words{Step: "smolvla_new_line_processor", Tokenizer: smolHub, Padding: "longest"}
	return p
}

func (p *smol) model() *family.Model {
	m := p.seeing()
	m.Beginnings = nil
	m.Initial = func(string) family.Start { return family.Start{} }
	m.Ports["state"] = family.Port{Width: p.c.Hidden, Rows: family.Levels, Whole: true}
	all := []string{"x", "state", "text"}
	m.Add(family.Block{Name: smolName + "embed", Takes: []string{"view"}, Gives: all, Weight: 0.05, Record: p.embed})
	for i := range p.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("%slayers.%d", p.language, i), Takes: all, Gives: all, Recompute: true,
			Weight: 1, Record: func(r *block.Rec, env map[string]*grad.Value) { p.layer(r, i, env) }})
	}
	m.Add(family.Block{Name: "model.action_out_proj", Takes: []string{"x"}, Weight: 0.05, Record: p.head})
	return m
}

// embed makes rows of what is seen and told, of states, and of noisy actions with the time of their noise.
func (p *smol) embed(r *block.Rec, env map[string]*grad.Value) {
	t, w, whole := r.T, p.o.Expert, block.LinearOpts{Bias: true, Rep: true}
	env["text"] = p.prompt(r, env["view"])
	env["state"] = r.Linear("model.state_proj", t.Cast(p.d.State(r)), p.c.Hidden, p.d.Sight.State, whole)
	a := r.Linear("model.action_in_proj", p.d.Noisy(r), w, p.d.Width(), whole)
	c := t.Cast(t.Data("dif.feature", tensor.F32, family.Levels(r.Shape), w))
	a = t.Concat(1, a, t.Take(c, p.d.Level(r)))
	a = t.Act(r.Linear("model.action_time_mlp_in", a, w, 2*w, whole), kernels.SiLU)
	env["x"] = t.Place("residual", r.Linear("model.action_time_mlp_out", a, w, w, whole))
}

// squares lists patches of all views, of so many on a side, square of fold² patches by square.
func squares(r *block.Rec, v *family.Sight, side, fold int) *grad.Value {
	rows := make([]int32, 0, v.Rows(r.Shape))
	for image := range family.Levels(r.Shape) * v.Views {
		for at := range v.Features() {
			y, x := at/(side/fold)*fold, at%(side/fold)*fold
			for k := range fold * fold {
				rows = append(rows, int32(image*v.Patches+(y+k/fold)*side+x+k%fold))
			}
		}
	}
	return r.T.ConstI32("view.squares", rows)
}

// prompt makes rows of squares of patches and of words, and declares what the model could say, which nothing reads.
func (p *smol) prompt(r *block.Rec, view *grad.Value) *grad.Value {
	t, n, v := r.T, p.c.Hidden, p.d.Sight
	h := r.LayerNorm(p.tower+"post_layernorm", view, p.o.Hidden, 1e-6)
	fold := p.s.Fold
	wide := p.o.Hidden * fold * fold
	h = t.View(t.Take(h, squares(r, v, p.o.Side/p.o.Patch, fold)), v.FeatureRows(r.Shape), wide)
	h = r.Linear(smolVLM+"connector.modality_projection.proj", h, n, wide, block.LinearOpts{Rep: true})
	words := t.Param(p.language+"embed_tokens.weight", []int{p.c.Vocab, n}, -1, 1, true)
	e := t.Take(words, t.Data("dif.ids", tensor.I32, family.Captions(r.Shape)))
	defer t.Still()()
	t.Param(smolName+"vlm.lm_head.weight", []int{p.c.Vocab, n}, -1, 1, true)
	return t.Scale(t.Take(t.Concat(0, h, e), t.Data("dif.text.take", tensor.I32, family.Captions(r.Shape))),
		math.Sqrt(float64(n)))
}

// layer is layer i of the language model's rows, which are what is seen and told and states, and of actions.
func (p *smol) layer(r *block.Rec, i int, env map[string]*grad.Value) {
	t, last, levels := r.T, i == p.c.Layers-1, family.Levels(r.Shape)
	text := piStream{name: fmt.Sprintf("%slayers.%d", p.language, i), width: p.c.Hidden, inter: p.c.Intermediate,
		x: env["text"]}
	state := text
	state.x = env["state"]
	x := piStream{name: fmt.Sprintf("%slayers.%d", p.expert, i), width: p.o.Expert, inter: p.o.ExpertInter,
		x: env["x"], shared: true}
	heads := func(s *piStream, data string, rows int) (q, k, v *grad.Value) {
		h := p.norm(r, s, s.name+".input_layernorm", nil)
		if !last || s.shared { // nothing asks for the language model's last layer
			q = p.headAt(r, s, h, "q_proj", p.c.Heads, data, rows)
		}
		return q, p.headAt(r, s, h, "k_proj", p.c.KVHeads, data, rows),
			p.headAt(r, s, h, "v_proj", p.c.KVHeads, "", rows)
	}
	qt, kt, vt := heads(&text, "dif.text.pos", family.Captions(r.Shape))
	qs, ks, vs := heads(&state, "dif.state.pos", levels)
	told, cu := p.d.Told(r, kt, ks)
	values, _ := p.d.Told(r, vt, vs)
	if last {
		p.unread(r, &text)
		end := t.Still()
		t.Param(text.name+".self_attn.q_proj.weight", []int{p.c.Heads * p.c.HeadDim, p.c.Hidden}, -1, 1, true)
		end()
	} else {
		p.attend(r, &text, qt, kt, vt, p.d.TextCu(r), p.d.TextCu(r), false)
		p.attend(r, &state, qs, told, values, borders(r, "pi.states", 1), cu, false)
	}
	if i%p.s.Every == 0 {
		q, k, v := heads(&x, "dif.pos", r.Shape.Rows)
		p.attend(r, &x, q, p.d.All(r, kt, ks, k), p.d.All(r, vt, vs, v), r.Cu(), p.d.JointCu(r), true)
	} else {
		p.cross(r, &x, told, values)
	}
	env["text"], env["state"], env["x"] = text.x, state.x, x.x
}

// cross has actions attend to the language model's keys and values, by projections of their own.
func (p *smol) cross(r *block.Rec, s *piStream, told, values *grad.Value) {
	t, n, wide := r.T, p.c.HeadDim, p.c.KVHeads*p.c.HeadDim
	h := p.norm(r, s, s.name+".input_layernorm", nil)
	cos, sin := p.d.Turned(r, "dif.step", r.Shape.Rows, p.c.RopeTheta, [3]int{n, 0, 0})
	proj := func(part string, x *grad.Value, out, in int) *grad.Value {
		return t.Heads(r.Linear(s.name+".self_attn."+part, x, out, in, block.LinearOpts{Unit: n}), n)
	}
	q := t.Rope(proj("q_proj", h, p.c.Heads*n, s.width), cos, sin, false)
	k := proj("k_proj", t.Place("", t.Flat(told)), wide, wide)
	v := proj("v_proj", t.Place("", t.Flat(values)), wide, wide)
	p.attend(r, s, q, k, v, r.Cu(), p.d.ToldCu(r), false)
}

// attend adds what a stream's attention and its MLP give.
//
//lfvet:params the operands of one operation, by the names of its contract
func (p *smol) attend(r *block.Rec, s *piStream, q, k, v, cuQ, cuK *grad.Value, causal bool) {
	o := r.T.Attention(q, k, v, cuQ, cuK, grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(p.c.HeadDim)),
		Tokens: s.shared, Causal: causal})
	s.x = p.add(r, s, r.Linear(s.name+".self_attn.o_proj", r.T.Flat(o), s.width, p.c.Heads*p.c.HeadDim,
		block.LinearOpts{Row: true, Unit: p.c.HeadDim}))
	p.fed(r, s, nil)
}

// head is the last norm of the expert, and the numbers of each action.
func (p *smol) head(r *block.Rec, env map[string]*grad.Value) {
	s := &piStream{width: p.o.Expert, x: env["x"], shared: true}
	h := p.norm(r, s, p.expert+"norm", nil)
	p.d.Predicted(r, env, r.Linear("model.action_out_proj", h, p.d.Width(), p.o.Expert,
		block.LinearOpts{Bias: true, Rep: true}))
}
