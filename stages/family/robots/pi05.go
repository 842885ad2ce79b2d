package robots

import (
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/denoisers"
)

// piKeys are the keys of Pi0.5 beside those of its language model.
type piKeys struct {
	Expert      int `key:"expert_hidden_size" default:"1024" min:"2" max:"65536" class:"fixed" doc:"Width of the expert that gives actions."`
	ExpertInter int `key:"expert_intermediate_size" default:"4096" min:"1" max:"1048576" class:"fixed" doc:"Width of gate and up in the expert's MLP."`
	Side        int `key:"view_size" default:"224" min:"1" max:"65536" class:"fixed" unit:"pixels" doc:"Height and width that what they see is brought to."`
	Patch       int `key:"view_patch" default:"14" min:"1" max:"1024" class:"fixed" unit:"pixels" doc:"Height and width of a patch of it."`
	Hidden      int `key:"view_hidden_size" default:"1152" min:"2" max:"65536" class:"fixed" doc:"Width of the tower that sees."`
	Inter       int `key:"view_intermediate_size" default:"4304" min:"1" max:"1048576" class:"fixed" doc:"Width of the tower's MLP."`
	Heads       int `key:"view_heads" default:"16" min:"1" max:"1024" class:"fixed" doc:"Heads of the tower."`
	Layers      int `key:"view_layers" default:"27" min:"1" max:"1024" class:"fixed" doc:"Layers of the tower."`
}

var piPart = configs.Declare("pi", configs.Rules[piKeys]{Check: func(m configs.Model, k piKeys, at configs.Report) {
	if !m.Has("expert_hidden_size") {
		return
	}
	if k.Patch > 0 && k.Side%k.Patch != 0 {
		at("view_size", fmt.Sprintf("%d is no multiple of view_patch = %d", k.Side, k.Patch), "")
	}
	if k.Hidden%k.Heads != 0 {
		at("view_hidden_size", fmt.Sprintf("%d is no multiple of view_heads = %d", k.Hidden, k.Heads), "")
	}
	if k.Expert%2 != 0 {
		at("expert_hidden_size", fmt.Sprintf("%d is odd: sines and cosines come in pairs", k.Expert), "")
	}
}})

// Pi0.5 (arXiv:2504.16054), as lerobot and openpi have it: a vision-language model whose keys and values
// an expert of actions attends to, layer by layer. Rows of latents are actions, and those of captions
// what the robot sees and is told.
var _ = family.Register(family.Family{ModelType: "pi05", Paper: "2504.16054", HF: piFamily("pi05"),
	Build: func(c configs.Model) *family.Model { return newPi(c).model() }})

// pi is a model of the family, or of one made of the same layers: its parts by the beginnings of their
// names, what its plain norms add to their weights, and the activation of its MLPs.
type pi struct {
	c                       configs.Model
	o                       piKeys
	d                       *family.Denoiser
	tower, language, expert string
	plus                    float64
	act                     int
	table                   int // side of the table of places of patches, 0 for that of a view
}

// The beginnings of names of parameters in lerobot's files.
const (
	piName     = "model.paligemma_with_expert."
	piTower    = piName + "paligemma.model.vision_tower."
	piLanguage = piName + "paligemma.model.language_model."
	piExpert   = piName + "gemma_expert.model."
)

func newPi(c configs.Model) *pi {
	k, o := denoisers.Shared.Of(c), piPart.Of(c)
	side := o.Side / max(1, o.Patch)
	p := &pi{c: c, o: o, tower: piTower, language: piLanguage, expert: piExpert, plus: 1, act: kernels.GELUTanh,
		d: &family.Denoiser{Patch: [3]int(k.Patch), Channels: k.In, Joint: true, TextStep: 1, Behind: true, Times: 1000,
			FeatureWidth: o.Expert, Feature: func(t float64) []float32 {
				return periods(t, o.Expert)
			}, Policy: family.Policy{Chunk: policyPart.Of(c).Chunk, Sight: &family.Sight{Views: policyPart.Of(c).Views,
				Patches: side * side, Pixels: 3 * o.Patch * o.Patch}}}}
	p.d.Words = family.Words{Step: "pi05_prepare_state_tokenizer_processor_step", Tokenizer: paliGemma,
		Padding: "max_length", Scaled: true}
	return p
}

// paliGemma is the model of the hub whose tokenizer lerobot's Pi0 and Pi0.5 take.
const paliGemma = "google/paligemma-3b-pt-224"

// periods are the sines and cosines of 2πt over periods from 0.004 to 4.
func periods(t float64, width int) []float32 {
	const least, most = 4e-3, 4.0
	out, half := make([]float32, width), width/2
	for i := range half {
		period := least * math.Pow(most/least, float64(i)/float64(max(1, half-1)))
		out[i], out[half+i] = float32(math.Sin(2*math.Pi*t/period)), float32(math.Cos(2*math.Pi*t/period))
	}
	return out
}

func (p *pi) model() *family.Model {
	m := p.seeing()
	m.Ports["cond"] = family.Port{Width: p.o.Expert, Rows: family.Levels, Whole: true}
	m.Add(family.Block{Name: piName + "embed", Takes: []string{"view"}, Gives: []string{"x", "text", "cond"},
		Weight: 0.05, Record: p.embed})
	for i := range p.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("%slayers.%d", piLanguage, i),
			Takes: []string{"x", "text", "cond"}, Gives: []string{"x", "text"}, Recompute: true, Weight: 1,
			Record: func(r *block.Rec, env map[string]*grad.Value) { p.layer(r, i, env) }})
	}
	m.Add(family.Block{Name: "model.action_out_proj", Takes: []string{"x", "cond"}, Weight: 0.05, Record: p.head})
	return m
}

// seeing begins the model with the tower that sees.
func (p *pi) seeing() *family.Model {
	m := denoisers.NewModel(p.c, p.d)
	m.Spec.Vocab, m.Spec.KV = p.c.Vocab, p.c.KVHeads
	m.Source, m.Initial = p.source, p.initial
	m.Beginnings = [][2]string{{p.tower, p.tower + "vision_model."}}
	m.Ports["x"] = family.Port{Width: p.o.Expert}
	m.Ports["view"] = family.Port{Width: p.o.Hidden, Rows: p.d.Sight.Rows, Whole: true}
	m.Ports["text"] = family.Port{Width: p.c.Hidden, Rows: family.Captions, Whole: true}
	tower := float64(12 * p.o.Hidden * p.o.Hidden)
	whole := float64(4*p.c.Hidden*p.c.Hidden + 3*p.c.Hidden*p.c.Intermediate)
	m.Add(family.Block{Name: p.tower + "embeddings", Gives: []string{"view"}, Weight: 0.05, Record: p.patches})
	for i := range p.o.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("%sencoder.layers.%d", p.tower, i), Takes: []string{"view"},
			Gives: []string{"view"}, Recompute: true, Weight: tower / whole,
			Record: func(r *block.Rec, env map[string]*grad.Value) { p.see(r, i, env) }})
	}
	return m
}

// patches are the rows of views, with learned places.
func (p *pi) patches(r *block.Rec, env map[string]*grad.Value) {
	t, v, n := r.T, p.d.Sight, p.o.Hidden
	x := t.Cast(t.Data("dif.view", tensor.F32, v.Rows(r.Shape), v.Pixels))
	x = r.Linear(p.tower+"embeddings.patch_embedding", x, n, v.Pixels, block.LinearOpts{Bias: true, Rep: true})
	at := t.Indices("pi.places", v.Rows(r.Shape), func(i int) int { return i % v.Patches })
	env["view"] = t.Add(x, t.Take(p.places(t), at))
}

// see is layer i of SigLIP's tower (arXiv:2303.15343).
func (p *pi) see(r *block.Rec, i int, env map[string]*grad.Value) {
	t, n, head := r.T, p.o.Hidden, p.o.Hidden/p.o.Heads
	name, x := fmt.Sprintf("%sencoder.layers.%d", p.tower, i), env["view"]
	cu := even(t, "pi.views", x.Shape[0]/p.d.Sight.Patches, p.d.Sight.Patches)
	h := r.LayerNorm(name+".layer_norm1", x, n, 1e-6)
	proj := func(part string) *grad.Value {
		return t.Heads(r.Linear(name+".self_attn."+part, h, n, n, block.LinearOpts{Bias: true, Unit: head}), head)
	}
	o := t.Attention(proj("q_proj"), proj("k_proj"), proj("v_proj"), cu, cu,
		grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(head))})
	o = r.Linear(name+".self_attn.out_proj", t.Flat(o), n, n, block.LinearOpts{Bias: true, Row: true, Unit: head})
	x = t.Add(x, t.Place("", o))
	h = r.Linear(name+".mlp.fc1", r.LayerNorm(name+".layer_norm2", x, n, 1e-6), p.o.Inter, n,
		block.LinearOpts{Bias: true})
	h = r.Linear(name+".mlp.fc2", t.Act(h, kernels.GELUTanh), n, p.o.Inter, block.LinearOpts{Bias: true, Row: true})
	env["view"] = t.Add(x, t.Place("", h))
}

// embed makes rows of what is seen and told and rows of noisy actions, and of the level what the expert is told.
func (p *pi) embed(r *block.Rec, env map[string]*grad.Value) {
	t, w, whole := r.T, p.o.Expert, block.LinearOpts{Bias: true, Rep: true}
	env["text"] = p.prompt(r, env["view"])
	env["x"] = t.Place("residual", r.Linear("model.action_in_proj", p.d.Noisy(r), w, p.d.Width(), whole))
	c := t.Cast(t.Data("dif.feature", tensor.F32, family.Levels(r.Shape), w))
	c = t.Act(r.Linear("model.time_mlp_in", c, w, w, whole), kernels.SiLU)
	env["cond"] = t.Act(r.Linear("model.time_mlp_out", c, w, w, whole), kernels.SiLU)
}

// prompt makes rows of what is seen and told, and declares what the model could say, which nothing reads.
func (p *pi) prompt(r *block.Rec, view *grad.Value) *grad.Value {
	t, n, whole := r.T, p.c.Hidden, block.LinearOpts{Bias: true, Rep: true}
	const projector = piName + "paligemma.model.multi_modal_projector.linear"
	h := r.LayerNorm(p.tower+"post_layernorm", view, p.o.Hidden, 1e-6)
	h = r.Linear(projector, h, n, p.o.Hidden, whole)
	words := t.Param(p.language+"embed_tokens.weight", []int{p.c.Vocab, n}, -1, 1, true)
	e := t.Scale(t.Take(words, t.Data("dif.ids", tensor.I32, family.Captions(r.Shape))), math.Sqrt(float64(n)))
	defer t.Still()()
	t.Param(piName+"paligemma.lm_head.weight", []int{p.c.Vocab, n}, -1, 1, true)
	t.Param(piName+"gemma_expert.lm_head.weight", []int{p.c.Vocab, p.o.Expert}, -1, 1, true)
	return t.Take(t.Concat(0, h, e), t.Data("dif.text.take", tensor.I32, family.Captions(r.Shape)))
}

// piStream is what the language model and the expert read in a layer, each.
type piStream struct {
	name         string
	width, inter int
	x            *grad.Value
	gate         *grad.Value // [levels width] of the last norm; nil for a stream whose norms are not told the level
	shared       bool        // its rows may be shared out
}

// norm is one of a stream's norms: of the language model with weights of its own, of the expert by the level.
func (p *pi) norm(r *block.Rec, s *piStream, name string, cond *grad.Value) *grad.Value {
	t, n := r.T, s.width
	if cond == nil {
		return t.RMSNormPlus(s.x, t.Param(name+".weight", []int{n}, -1, 1, false), p.c.NormEps, p.plus)
	}
	m := r.Linear(name+".dense", cond, 3*n, n, block.LinearOpts{Bias: true, Rep: true})
	s.gate = t.Columns(m, 2*n, n)
	return t.Modulate(s.x, t.Columns(m, 0, n), t.Columns(m, n, n), p.d.Level(r),
		grad.Modulation{Norm: kernels.RMSRows, Eps: p.c.NormEps, Plus: 1})
}

// add is a stream's residual with what a branch gives.
func (p *pi) add(r *block.Rec, s *piStream, y *grad.Value) *grad.Value {
	if s.gate == nil && s.shared {
		return r.T.Add(s.x, r.T.Place("residual", y))
	}
	if s.gate == nil {
		return r.T.Add(s.x, r.T.Place("", y))
	}
	return r.T.Gate(s.x, r.T.Place("residual", y), s.gate, p.d.Level(r))
}

// layer is layer i of both streams: words and views see each other, and actions see them and each other.
func (p *pi) layer(r *block.Rec, i int, env map[string]*grad.Value) {
	t, last := r.T, i == p.c.Layers-1
	both := []*piStream{{name: fmt.Sprintf("%slayers.%d", p.language, i),
		width: p.c.Hidden, inter: p.c.Intermediate, x: env["text"]},
		{name: fmt.Sprintf("%slayers.%d", p.expert, i), width: p.o.Expert, inter: p.o.ExpertInter, x: env["x"]}}
	conds := []*grad.Value{nil, env["cond"]}
	var qs, ks, vs [2]*grad.Value
	for j, s := range both {
		h := p.norm(r, s, s.name+".input_layernorm", conds[j])
		qs[j], ks[j], vs[j] = p.heads(r, s, h, j == 0)
	}
	k, v := p.d.Together(r, ks[0], ks[1]), p.d.Together(r, vs[0], vs[1])
	for j, s := range both {
		if j == 0 && last {
			p.unread(r, s)
			continue
		}
		c := grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(p.c.HeadDim)), Tokens: j == 1}
		var o *grad.Value
		if j == 0 {
			o = t.Attention(qs[0], ks[0], vs[0], p.d.TextCu(r), p.d.TextCu(r), c)
		} else {
			o = t.Attention(qs[1], k, v, r.Cu(), p.d.JointCu(r), c)
		}
		s.x = p.add(r, s, r.Linear(s.name+".self_attn.o_proj", t.Flat(o), s.width, p.c.Heads*p.c.HeadDim,
			block.LinearOpts{Row: true, Unit: p.c.HeadDim}))
		p.fed(r, s, conds[j])
	}
	env["text"], env["x"] = both[0].x, both[1].x
}

// fed adds what a stream's MLP gives.
func (p *pi) fed(r *block.Rec, s *piStream, cond *grad.Value) {
	t, h := r.T, p.norm(r, s, s.name+".post_attention_layernorm", cond)
	gate := t.Act(r.Linear(s.name+".mlp.gate_proj", h, s.inter, s.width, block.LinearOpts{}), p.act)
	up := r.Linear(s.name+".mlp.up_proj", h, s.inter, s.width, block.LinearOpts{})
	s.x = p.add(r, s, r.Linear(s.name+".mlp.down_proj", t.Mul(gate, up), s.width, s.inter, block.LinearOpts{Row: true}))
}

// heads are the queries, keys and values of a stream, turned by their places.
func (p *pi) heads(r *block.Rec, s *piStream, h *grad.Value, text bool) (q, k, v *grad.Value) {
	data, rows := "dif.pos", r.Shape.Rows
	if text {
		data, rows = "dif.text.pos", family.Captions(r.Shape)
	}
	return p.headsAt(r, s, h, data, rows)
}

// headsAt is heads of so many rows whose places are called data.
func (p *pi) headsAt(r *block.Rec, s *piStream, h *grad.Value, data string, rows int) (q, k, v *grad.Value) {
	q = p.headAt(r, s, h, "q_proj", p.c.Heads, data, rows)
	return q, p.headAt(r, s, h, "k_proj", p.c.KVHeads, data, rows), p.headAt(r, s, h, "v_proj", p.c.KVHeads, "", rows)
}

// headAt is one projection of so many rows to heads, turned by the places called data, "" for none.
func (p *pi) headAt(r *block.Rec, s *piStream, h *grad.Value, part string, heads int, data string,
	rows int) *grad.Value {
	t, n := r.T, p.c.HeadDim
	x := t.Heads(r.Linear(s.name+".self_attn."+part, h, heads*n, s.width, block.LinearOpts{Unit: n}), n)
	if data == "" {
		return x
	}
	cos, sin := p.d.Turned(r, data, rows, p.c.RopeTheta, [3]int{n, 0, 0})
	return t.Rope(x, cos, sin, false)
}

// unread declares what the language model's last layer would make of its rows: nothing reads them behind
// it, so that these parameters neither learn nor decay.
func (p *pi) unread(r *block.Rec, s *piStream) {
	defer r.T.Still()()
	n := s.width
	for _, w := range []struct {
		name    string
		out, in int
	}{{".self_attn.o_proj", n, p.c.Heads * p.c.HeadDim}, {".mlp.gate_proj", s.inter, n}, {".mlp.up_proj", s.inter, n},
		{".mlp.down_proj", n, s.inter}} {
		r.T.Param(s.name+w.name+".weight", []int{w.out, w.in}, -1, 1, true)
	}
	r.T.Param(s.name+".post_attention_layernorm.weight", []int{n}, -1, 1, false)
	r.T.Param(p.language+"norm.weight", []int{n}, -1, 1, false)
}

// head is the last norm of the expert, and the numbers of each action.
func (p *pi) head(r *block.Rec, env map[string]*grad.Value) {
	s := &piStream{width: p.o.Expert, x: env["x"]}
	h := p.norm(r, s, p.expert+"norm", env["cond"])
	p.d.Predicted(r, env,
		r.Linear("model.action_out_proj", h, p.d.Width(), p.o.Expert, block.LinearOpts{Bias: true, Rep: true}))
}

// source says where parameters lie in lerobot's files.
func (p *pi) source(name string) family.Source {
	s := family.Source{Name: name}
	if strings.HasSuffix(name, "patch_embedding.weight") {
		s.Tail = []int{3, p.o.Patch, p.o.Patch}
	}
	return s
}

// initial begins norms that neither scale nor shift; those of the language model add 1 to their weights.
func (p *pi) initial(name string) family.Start {
	if strings.HasPrefix(name, p.language) && strings.HasSuffix(name, "norm.weight") {
		return denoisers.Zeroed(name, "norm.weight")
	}
	return denoisers.Zeroed(name, "norm.dense.")
}
