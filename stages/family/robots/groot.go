package robots

import (
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
	"github.com/lfactor/lfactor/stages/family/denoisers"
	"github.com/lfactor/lfactor/stages/noise"
)

// grootKeys are the keys of GR00T beside those of its tower and its language model.
type grootKeys struct {
	Image     int `key:"image_token" default:"151669" min:"1" max:"10000000" class:"fixed" doc:"Token in whose place rows of what is seen lie in a prompt."`
	Future    int `key:"future_tokens" default:"32" min:"1" max:"65536" class:"fixed" doc:"Learned rows between the state and the actions."`
	Width     int `key:"dit_width" default:"1536" min:"2" max:"65536" class:"fixed" doc:"Width of the diffusion transformer of actions."`
	Heads     int `key:"dit_heads" default:"32" min:"1" max:"1024" class:"fixed" doc:"Its heads."`
	Layers    int `key:"dit_layers" default:"16" min:"1" max:"1024" class:"fixed" doc:"Its layers: every other one attends to what is seen and told, and the others to its own rows."`
	Out       int `key:"dit_output" default:"1024" min:"1" max:"65536" class:"fixed" doc:"Width of what it gives, and of the hidden layers that each robot has of its own."`
	MixHeads  int `key:"mixer_heads" default:"32" min:"1" max:"1024" class:"fixed" doc:"Heads of the transformer between the language model and that of actions."`
	MixLayers int `key:"mixer_layers" default:"4" min:"0" max:"1024" class:"fixed" doc:"Its layers."`
	Places    int `key:"action_positions" default:"1024" min:"1" max:"1048576" class:"fixed" doc:"Actions that have learned places."`
}

var grootPart = configs.Declare("groot", configs.Rules[grootKeys]{Check: func(m configs.Model, k grootKeys,
	at configs.Report) {
	if m.ModelType != "groot" {
		return
	}
	if o := piPart.Of(m); o.Side%max(1, o.Patch) != 0 || o.Hidden%max(1, o.Heads) != 0 {
		at("view_size", fmt.Sprintf("views of %d pixels in patches of %d, and rows of %d in %d heads: neither may leave a rest",
			o.Side, o.Patch, o.Hidden, o.Heads), "")
	}
	if m.Hidden%k.MixHeads != 0 {
		at("mixer_heads", fmt.Sprintf("%d heads, and rows have %d numbers", k.MixHeads, m.Hidden), "")
	}
	grootChunk(m, k, at)
	if k.Image >= m.Vocab {
		at("image_token", fmt.Sprintf("%d, and the vocabulary has %d tokens", k.Image, m.Vocab), "")
	}
}})

// grootChunk reports heads that leave a rest, and a chunk of more actions than have places, or than a model gives.
func grootChunk(m configs.Model, k grootKeys, at configs.Report) {
	if k.Width%k.Heads != 0 || k.Width%2 != 0 {
		at("dit_width", fmt.Sprintf("%d is no multiple of 2 and of dit_heads = %d", k.Width, k.Heads), "")
	}
	if c := policyPart.Of(m).Chunk; c > k.Places {
		at("chunk_size", fmt.Sprintf("%d actions, of which %d have places", c, k.Places), "")
	}
	chunkFits(m, at)
}

// GR00T N1.5 (arXiv:2503.14734), as lerobot has it: the first layers of Qwen3 read what SigLIP sees and what
// is told, and a diffusion transformer of the state and the actions attends to what they say. What reads
// states and reads and gives actions has weights for each robot.
var _ = family.Register(family.Family{ModelType: "groot", Paper: "2503.14734", HF: grootFile(),
	Build: func(c configs.Model) *family.Model { return newGroot(c).model() }})

// grootFile is how lerobot's files are read and written: they say the sizes of rooms and of chunks, and
// those of the published model follow from its name; other sizes are keys of this program's own.
func grootFile() hf.Family {
	return hf.Family{Class: "groot", Diffusers: true, Has: []string{"latent_patch", "in_channels", "state_size",
		"chunk_size", "views", "view_size", "view_patch", "view_hidden_size", "view_intermediate_size",
		"view_heads", "view_layers", "embodiments", "image_token", "future_tokens", "dit_width",
		"dit_heads", "dit_layers", "dit_output", "mixer_heads", "mixer_layers", "action_positions"},
		Fixed: map[string]string{"hidden_act": `"silu"`}, Absent: map[string]string{"hidden_size": "2048",
			"num_hidden_layers": "12", "num_attention_heads": "16", "num_key_value_heads": "8", "head_dim": "128",
			"intermediate_size": "6144", "vocab_size": "151680", "rms_norm_eps": "1e-6", "rope_theta": "1000000",
			"in_channels": "32", "state_size": "64", "embodiments": "32", "latent_patch": "[1, 1, 1]"},
		Alias: map[string]string{"max_action_dim": "in_channels", "max_state_dim": "state_size"},
		Omit:  []string{"latent_patch"}, Only: map[string]string{"n_obs_steps": "1"}, Idle: append(
			[]string{"base_model_path", "tokenizer_assets_repo", "embodiment_tag", "tune_llm", "tune_visual",
				"tune_projector", "tune_diffusion_model", "lora_rank", "lora_alpha", "lora_dropout", "lora_full_model",
				"warmup_ratio", "use_bf16", "video_backend", "balance_dataset_weights", "balance_trajectory_weights",
				"dataset_paths", "output_dir", "save_steps", "max_steps", "batch_size", "dataloader_num_workers",
				"report_to", "resume", "image_size"}, lerobotIdle...), Prepare: grootSizes, Write: writeGroot}
}

// groot is a model of the family, whose tower is Pi0.5's.
type groot struct {
	*pi
	head  *dit
	eagle string // beginning of the names of what sees and reads
	fold  int    // side of the squares of patches that become one row, 0 for patches
	tied  bool   // what the model could say has the weights of its words
	mask  bool   // files have a row in the place of states that are dropped, which nothing reads
}

// The beginnings of names of parameters in lerobot's files.
const (
	grootName  = "_groot_model."
	grootEagle = grootName + "backbone.eagle_model."
	grootHead  = grootName + "action_head."
)

// grootBuckets is in how many steps the time of the noise is told, and grootWaves the cosines and sines of it.
const (
	grootBuckets = 1000
	grootWaves   = 256
)

func newGroot(c configs.Model) *groot {
	p, k := &groot{pi: newPi(c), eagle: grootEagle}, grootPart.Of(c)
	p.tower, p.language = p.eagle+"vision_model.vision_model.", p.eagle+"language_model.model."
	p.plus, p.act = 0, kernels.SiLU
	o, side := policyPart.Of(c), p.o.Side/max(1, p.o.Patch)
	p.d = &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: denoisers.Shared.Of(c).In, Canvas: true, TextStep: 1,
		FeatureWidth: grootWaves + k.Width, Feature: func(t float64) []float32 { return grootTime(t, k.Width) },
		Policy: family.Policy{Chunk: o.Chunk, Robots: o.Robots, Sight: &family.Sight{Views: o.Views,
			Patches: side * side, Pixels: 3 * p.o.Patch * p.o.Patch, State: o.State},
			Words: family.Words{Image: int32(k.Image), Between: grootPrompt,
				Robot: family.RobotStep{Step: "groot_pack_inputs_v3", Key: "embodiment_mapping", Tag: "embodiment_tag",
					Name: "new_embodiment", More: map[string]any{"normalize_min_max": false}}}, Steps: 4}}
	p.d.Learns = grootLearns
	p.head = &dit{d: p.d, robots: &ofRobots{d: p.d, weight: ".W", bias: ".b"}, name: grootHead, port: "text",
		told: c.Hidden, width: k.Width, heads: k.Heads, layers: k.Layers, out: k.Out, mixHeads: k.MixHeads,
		mixLayers: k.MixLayers, future: k.Future, places: k.Places}
	return p
}

// grootLearns is what GR00T is trained by.
func grootLearns(p *family.Process) {
	p.Loss, p.Times = kernels.SquaredLoss, noise.Times{Kind: "beta", Alpha: 1.5, Beta: 1}
	p.Levels = grootLevels{noise.Flow{Shift: 1, Times: grootBuckets}}
	p.Target, _ = noise.Lookup("flow_prediction") // it is one of the package's own
}

// grootLevels are those of GR00T: flow matching at times that may be a thousandth beyond the noise.
type grootLevels struct{ noise.Flow }

// At is the level at u.
func (l grootLevels) At(u float64) noise.Level {
	s := (1 - u) / 0.999
	return noise.Level{Alpha: float32(1 - s), Sigma: float32(s), Time: float32(grootBuckets * s)}
}

// grootTime is what the model is told of a time in thousandths, of which 1,000 is noise: cosines and sines
// of whole steps from the noise, as its transformer reads them and as its actions have them.
func grootTime(t float64, width int) []float32 {
	step := math.Trunc(grootBuckets - t + 1e-3) // a time that is whole but for its rounding is that one
	out := make([]float32, grootWaves+width)
	waves := func(out []float32, last float64, cosFirst bool) {
		half := len(out) / 2
		for i := range half {
			s, c := math.Sincos(step * math.Exp(-math.Log(10000)*float64(i)/last))
			if cosFirst {
				s, c = c, s
			}
			out[i], out[half+i] = float32(s), float32(c)
		}
	}
	waves(out[:grootWaves], grootWaves/2-1, true)
	waves(out[grootWaves:], float64(width/2), false)
	return out
}

// grootPrompt is what the model is told of a task and of so many views, in the parts that these lie between.
func grootPrompt(task string, views int) []string {
	out := []string{"<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"}
	for i := range views {
		out[i] += fmt.Sprintf("<image %d><img>", i+1)
		out = append(out, "</img>")
	}
	quote := "'"
	if strings.Contains(task, quote) && !strings.Contains(task, `"`) {
		quote = `"`
	}
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`, "\r", `\r`)
	text := escape.Replace(task)
	if quote == "'" {
		text = strings.ReplaceAll(text, "'", `\'`)
	}
	out[views] += "[" + quote + text + quote + "]<|im_end|>\n<|im_start|>assistant\n"
	return out
}

func (p *groot) model() *family.Model {
	m := p.seeing()
	m.Beginnings = [][2]string{{grootName, ""}}
	m.Source, m.Initial = p.source, func(name string) family.Start { return denoisers.Zeroed(name, ".b") }
	maps.Copy(m.Ports, p.head.ports())
	text := func(name string, weight float64, again bool, f func(r *block.Rec, x *grad.Value) *grad.Value) {
		m.Add(family.Block{Name: name, Takes: []string{"text"}, Gives: []string{"text"}, Recompute: again,
			Weight: weight,
			Record: func(r *block.Rec, env map[string]*grad.Value) { env["text"] = f(r, env["text"]) }})
	}
	m.Add(family.Block{Name: p.eagle + "mlp1", Takes: []string{"view"}, Gives: []string{"text"}, Weight: 0.1,
		Record: func(r *block.Rec, env map[string]*grad.Value) { env["text"] = p.told(r, env["view"]) }})
	for i := range p.c.Layers {
		name := fmt.Sprintf("%slayers.%d", p.language, i)
		text(name, 1, true, func(r *block.Rec, x *grad.Value) *grad.Value { return p.reads(r, name, x) })
	}
	text(p.head.name+"vlln", 0.05, false, p.between)
	for _, b := range p.head.blocks() {
		m.Add(b)
	}
	return m
}

// told makes rows of what is seen and told, and declares what the model could say, which nothing reads.
func (p *groot) told(r *block.Rec, view *grad.Value) *grad.Value {
	t, n := r.T, p.c.Hidden
	h := r.LayerNorm(p.tower+"post_layernorm", view, p.o.Hidden, 1e-6)
	if p.fold > 0 {
		h = p.squares(r, h)
	} else {
		h = r.Linear(p.eagle+"mlp1.0", h, n, p.o.Hidden, block.LinearOpts{Bias: true, Rep: true})
	}
	words := t.Param(p.language+"embed_tokens.weight", []int{p.c.Vocab, n}, -1, 1, true)
	e := t.Take(words, t.Data("dif.ids", tensor.I32, family.Captions(r.Shape)))
	defer t.Still()()
	if !p.tied {
		t.Param(p.eagle+"language_model.lm_head.weight", []int{p.c.Vocab, n}, -1, 1, true)
	}
	if p.mask {
		t.Param(p.head.name+"mask_token", []int{1, p.head.width}, -1, 1, true)
	}
	p.pooled(r)
	return t.Take(t.Concat(0, h, e), t.Data("dif.text.take", tensor.I32, family.Captions(r.Shape)))
}

// pooled declares the tower's own way of making one row of a view, which nothing reads.
func (p *groot) pooled(r *block.Rec) {
	n, name := p.o.Hidden, p.tower+"head."
	for _, w := range []struct {
		name    string
		out, in int
	}{{"attention.in_proj_", 3 * n, n}, {"attention.out_proj.", n, n}, {"mlp.fc1.", p.o.Inter, n},
		{"mlp.fc2.", n, p.o.Inter}} {
		r.T.Param(name+w.name+"weight", []int{w.out, w.in}, -1, 1, true)
		r.T.Param(name+w.name+"bias", []int{w.out}, -1, 1, false)
	}
	r.T.Param(name+"probe", []int{1, n}, -1, 1, true)
	r.T.Param(name+"layernorm.weight", []int{n}, -1, 1, false)
	r.T.Param(name+"layernorm.bias", []int{n}, -1, 1, false)
}

// source says where parameters lie in lerobot's files.
func (p *groot) source(name string) family.Source {
	if name == family.HeadName+".weight" {
		return family.Source{Name: p.eagle + "language_model.lm_head.weight"}
	}
	s := p.pi.source(name)
	if p.fold > 0 {
		s.Tail = nil // patches are read by a matrix
	}
	if name == p.tower+"head.probe" || strings.HasSuffix(name, ".mask_token") {
		s.Lead = 1
	}
	return s
}

// reads is a layer of Qwen3.
func (p *groot) reads(r *block.Rec, name string, x *grad.Value) *grad.Value {
	t, n, head := r.T, p.c.Hidden, p.c.HeadDim
	rows := family.Captions(r.Shape)
	weight := func(part string, n int) *grad.Value {
		return t.Param(name+part+".weight", []int{n}, -1, 1, false)
	}
	h := t.RMSNorm(x, weight(".input_layernorm", n), p.c.NormEps)
	cos, sin := p.d.Turned(r, "dif.text.pos", rows, p.c.RopeTheta, [3]int{head, 0, 0})
	proj := func(part string, heads int) *grad.Value {
		return t.Heads(r.Linear(name+".self_attn."+part, h, heads*head, n, block.LinearOpts{Unit: head}), head)
	}
	turned := func(part, norm string, heads int) *grad.Value {
		return t.Rope(t.RMSNorm(proj(part, heads), weight(".self_attn."+norm, head), p.c.NormEps), cos, sin, false)
	}
	cu := p.d.CanvasCu(r)
	o := t.Attention(turned("q_proj", "q_norm", p.c.Heads), turned("k_proj", "k_norm", p.c.KVHeads), proj("v_proj",
		p.c.KVHeads), cu, cu, grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(head)), Causal: true})
	x = t.Add(x, t.Place("",
		r.Linear(name+".self_attn.o_proj", t.Flat(o), n, p.c.Heads*head, block.LinearOpts{Row: true, Unit: head})))
	h = t.RMSNorm(x, weight(".post_attention_layernorm", n), p.c.NormEps)
	gate := t.Act(r.Linear(name+".mlp.gate_proj", h, p.c.Intermediate, n, block.LinearOpts{}), kernels.SiLU)
	up := r.Linear(name+".mlp.up_proj", h, p.c.Intermediate, n, block.LinearOpts{})
	return t.Add(x, t.Place("", r.Linear(name+".mlp.down_proj", t.Mul(gate, up), n, p.c.Intermediate,
		block.LinearOpts{Row: true})))
}

// between is the last norm of the language model, and the first of the head of actions.
func (p *groot) between(r *block.Rec, x *grad.Value) *grad.Value {
	n := p.c.Hidden
	x = r.T.RMSNorm(x, r.T.Param(p.language+"norm.weight", []int{n}, -1, 1, false), p.c.NormEps)
	return p.head.first(r, x)
}
