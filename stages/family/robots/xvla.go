package robots

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/denoisers"
	"github.com/lfactor/lfactor/stages/noise"
)

// florenceKeys are those of Florence-2: its tower, a list entry a stage, and its encoder of text.
type florenceKeys struct {
	Widths    []int `key:"tower_widths" class:"fixed" doc:"Widths of the stages of DaViT."`
	Depths    []int `key:"tower_depths" class:"fixed" doc:"Pairs of blocks of each stage."`
	Heads     []int `key:"tower_heads" class:"fixed" doc:"Heads of each stage's attention in windows."`
	Groups    []int `key:"tower_groups" class:"fixed" doc:"Groups of each stage's attention between channels."`
	Kernels   []int `key:"tower_kernels" class:"fixed" unit:"pixels" doc:"Height and width of the convolution that begins each stage."`
	Strides   []int `key:"tower_strides" class:"fixed" unit:"pixels" doc:"Its stride."`
	Paddings  []int `key:"tower_paddings" class:"fixed" unit:"pixels" doc:"What it sees beyond each edge."`
	Window    int   `key:"tower_window" default:"12" min:"1" max:"1024" class:"fixed" doc:"Height and width of a window of DaViT."`
	Side      int   `key:"tower_view" default:"224" min:"8" max:"4096" class:"fixed" unit:"pixels" doc:"Height and width that views are brought to."`
	Places    int   `key:"tower_places" default:"50" min:"1" max:"4096" class:"fixed" doc:"Rows and columns of a map that have learned places."`
	Times     int   `key:"tower_times" default:"100" min:"1" max:"65536" class:"fixed" doc:"Frames that the file has places for; one is read."`
	Hidden    int   `key:"text_hidden_size" default:"1024" min:"2" max:"65536" class:"fixed" doc:"Width of the encoder of words and views."`
	Layers    int   `key:"text_layers" default:"12" min:"1" max:"1024" class:"fixed" doc:"Its layers."`
	TextHeads int   `key:"text_heads" default:"16" min:"1" max:"1024" class:"fixed" doc:"Its heads."`
	Inter     int   `key:"text_intermediate_size" default:"4096" min:"1" max:"1048576" class:"fixed" doc:"Width of its MLP."`
	Positions int   `key:"text_positions" default:"1024" min:"1" max:"1048576" class:"fixed" doc:"Rows of a sequence that have learned places."`
}

// check reports a tower that cannot be.
func (k florenceKeys) check(at configs.Report) {
	n := len(k.Widths)
	for key, v := range map[string][]int{"tower_depths": k.Depths, "tower_heads": k.Heads, "tower_groups": k.Groups,
		"tower_kernels": k.Kernels, "tower_strides": k.Strides, "tower_paddings": k.Paddings} {
		least := 1
		if key == "tower_paddings" {
			least = 0
		}
		if len(v) != n || n == 0 || slices.Min(v) < least {
			at(key, fmt.Sprintf("%v, want %d numbers from %d up, one a stage of tower_widths", v, n, least), "")
			return
		}
	}
	for i, w := range k.Widths {
		if w < 1 || w%k.Heads[i] != 0 || w%k.Groups[i] != 0 {
			at("tower_widths", fmt.Sprintf("%d is no multiple of %d heads and of %d groups", w, k.Heads[i],
				k.Groups[i]), "")
		}
	}
	if k.Hidden%k.TextHeads != 0 || k.Hidden%2 != 0 {
		at("text_hidden_size", fmt.Sprintf("%d is no multiple of 2 and of %d heads", k.Hidden, k.TextHeads), "")
	}
}

// xvlaKeys are the keys that X-VLA alone has.
type xvlaKeys struct {
	Prompts int    `key:"soft_prompts" default:"32" min:"1" max:"65536" class:"fixed" doc:"Learned rows that each robot has in X-VLA's transformer."`
	Time    int    `key:"time_width" default:"32" min:"2" max:"65536" class:"fixed" doc:"Cosines and sines of the time of the noise, which are read with each action."`
	Rows    int    `key:"policy_positions" default:"512" min:"1" max:"1048576" class:"fixed" doc:"Rows of X-VLA's transformer that have learned places: actions, what is seen and what is told."`
	Words   int    `key:"prompt_size" default:"64" min:"1" max:"65536" class:"fixed" unit:"tokens" doc:"Tokens of a task that are read, with padding."`
	Form    string `key:"action_form" default:"auto" oneof:"auto|ee6d|agibot_ee6d|joint" class:"fixed" doc:"What the numbers of an action are, and with them their loss: any; or those of two arms, each a place, a rotation as the first two columns of its matrix and a gripper (ee6d, with AgiBot's loss too); or two arms of six joints and a gripper each."`
}

// actionForm is what the numbers of an action are: how many, of which grippers, and what each weighs in the
// loss, a sample's mean over its actions.
type actionForm struct {
	width    int
	grippers []int
	logistic bool // grippers are opened by a logistic function, learnt by its loss and not read
	weight   func(number int) float64
}

// actionForms are those of lerobot. Arms of ee6d weigh places 500 and rotations 10.
var actionForms = map[string]actionForm{"ee6d": {20, []int{9, 19}, true, func(n int) float64 { return ee6d(n, 0.5) }},
	"agibot_ee6d": {20, []int{9, 19}, false, func(n int) float64 { return ee6d(n, 5) }},
	"joint": {14, []int{6, 13}, true, func(n int) float64 {
		if n%7 == 6 {
			return 0.05
		}
		return 1.0 / 12
	}}}

func ee6d(n int, gripper float64) float64 {
	switch n %= 10; {
	case n < 3:
		return 500.0 / 3
	case n < 9:
		return 10.0 / 6
	}
	return gripper
}

var florencePart = configs.Declare("florence", configs.Rules[florenceKeys]{})

var xvlaPart = configs.Declare("xvla", configs.Rules[xvlaKeys]{Check: func(m configs.Model, k xvlaKeys,
	at configs.Report) {
	if m.ModelType != "xvla" {
		return
	}
	f := florencePart.Of(m)
	f.check(at)
	chunkFits(m, at)
	if form, ok := actionForms[k.Form]; ok && (denoisers.Shared.Of(m).In != form.width ||
		policyPart.Of(m).State < form.width) {
		at("action_form", fmt.Sprintf("%s has actions of %d numbers and states of as many, and the model gives %d and reads %d",
			k.Form, form.width, denoisers.Shared.Of(m).In, policyPart.Of(m).State), "set in_channels and state_size")
	}
	if k.Time%2 != 0 {
		at("time_width", fmt.Sprintf("%d is odd: cosines and sines come in pairs", k.Time), "")
	}
	if len(f.Widths) == 0 || len(f.Strides) != len(f.Widths) || len(f.Kernels) != len(f.Widths) ||
		len(f.Paddings) != len(f.Widths) || slices.Min(f.Strides) < 1 {
		return
	}
	x := xvlaOf(m, k)
	switch side := x.v.side(len(f.Widths) - 1); {
	case side < 1 || side > f.Places:
		at("tower_view", fmt.Sprintf("%d makes a map of %d by %d, of which %d have places", f.Side, side,
			side, f.Places), "")
	case x.told() > f.Positions:
		at("text_positions", fmt.Sprintf("%d, and words and a view are %d rows", f.Positions, x.told()), "")
	case x.rows() > k.Rows:
		at("policy_positions", fmt.Sprintf("%d, and actions, words and views are %d rows", k.Rows, x.rows()), "")
	}
}})

// X-VLA (arXiv:2510.10274), as lerobot has it: Florence-2's encoder reads the first view and the task; a
// transformer reads that, the other views, the noisy actions with the state and the time, and rows that each
// robot has of its own. What reads and gives actions has weights for each robot too.
var _ = family.Register(family.Family{ModelType: "xvla", Paper: "2510.10274", HF: xvlaFile(),
	Build: func(c configs.Model) *family.Model { return newXVLA(c).model() }})

// xvla is a model of the family.
type xvla struct {
	c configs.Model
	f florenceKeys
	k xvlaKeys
	p policyKeys
	d *family.Denoiser
	v *davit

	robots *ofRobots
}

// The beginnings of names of parameters in lerobot's files.
const (
	xvlaVLM  = "model.vlm."
	xvlaText = xvlaVLM + "language_model.model.encoder."
	xvlaName = "model.transformer."
)

// bartPad is the token of padding of BART's tokenizer, which Florence-2 has.
const bartPad = 1

func newXVLA(c configs.Model) *xvla { return xvlaOf(c, xvlaPart.Of(c)) }

// xvlaOf is the model with keys that are being checked.
func xvlaOf(c configs.Model, k xvlaKeys) *xvla {
	x := &xvla{c: c, f: florencePart.Of(c), k: k, p: policyPart.Of(c)}
	x.d = &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: denoisers.Shared.Of(c).In, Canvas: true,
		FeatureWidth: x.k.Time, Times: 1000, Feature: func(t float64) []float32 { return slowWaves(t, x.k.Time) },
		Policy: family.Policy{Chunk: x.p.Chunk, Robots: x.p.Robots, Restart: true,
			Sight: &family.Sight{Views: x.p.Views, Patches: x.f.Side * x.f.Side, Pixels: 3, State: x.p.State,
				Corner: true, Colours: true}, Prompt: func(task string) string { return task }, PromptMost: x.k.Words,
			Words: family.Words{Tokenizer: "facebook/bart-large", Padding: "max_length", Rows: x.k.Words,
				Pad: bartPad, Behind: []string{"xvla_image_to_float", "xvla_imagenet_normalize", "xvla_add_domain_id"},
				Robot: family.RobotStep{Step: "xvla_add_domain_id", Key: "domain_id"}}}}
	if form := actionForms[x.k.Form]; form.logistic {
		x.d.Squash = form.grippers
	}
	x.d.Learns = func(p *family.Process) {
		p.Loss, p.Times, p.Levels = kernels.SquaredLoss, noise.Times{Kind: "uniform"}, noise.Flow{Shift: 1, Times: 1000}
		p.Target, _ = noise.Lookup("sample") // it is one of the package's own
	}
	x.robots = &ofRobots{d: x.d, weight: ".fc.weight", bias: ".bias.weight", flat: true}
	x.v = &davit{name: xvlaVLM + "vision_tower.", k: x.f, d: x.d}
	return x
}

// slowWaves are cosines and sines of a time at frequencies from 1 down to almost 1/100.
func slowWaves(t float64, width int) []float32 {
	out, half := make([]float32, width), width/2
	for i := range half {
		f := math.Exp(-math.Log(100) * float64(i) / float64(half))
		out[i], out[half+i] = float32(math.Cos(t*f)), float32(math.Sin(t*f))
	}
	return out
}

// seen is the rows of a view: its mean and its places. told is those of the encoder, and rows those of the
// transformer that have places.
func (x *xvla) seen() int { n := x.v.side(len(x.f.Widths) - 1); return 1 + n*n }

func (x *xvla) told() int { return x.seen() + x.k.Words }

func (x *xvla) rows() int { return x.p.Chunk + x.told() + (x.p.Views-1)*x.seen() }

// all is the rows of the transformer.
func (x *xvla) all() int { return x.rows() + x.k.Prompts }

func (x *xvla) model() *family.Model {
	m := denoisers.NewModel(x.c, x.d)
	m.Spec.Vocab = x.c.Vocab
	m.Source, m.Initial = x.source, x.initial
	delete(m.Ports, "x")
	many := func(n int) func(block.Shape) int { return func(s block.Shape) int { return family.Levels(s) * n } }
	m.Ports["seen"] = family.Port{Width: x.f.Hidden, Rows: many(x.p.Views * x.seen()), Whole: true}
	m.Ports["told"] = family.Port{Width: x.f.Hidden, Rows: many(x.told()), Whole: true}
	m.Ports["x"] = family.Port{Width: x.c.Hidden, Rows: many(x.all()), Whole: true}
	x.v.add(m)
	last := fmt.Sprintf("view.%d", len(x.f.Widths)-1)
	m.Add(family.Block{Name: xvlaVLM + "image_proj", Takes: []string{last}, Gives: []string{"seen"}, Weight: 0.1,
		Record: func(r *block.Rec, env map[string]*grad.Value) { env["seen"] = x.view(r, env[last]) }})
	m.Add(family.Block{Name: xvlaText + "embed", Takes: []string{"seen"}, Gives: []string{"told"}, Weight: 0.1,
		Record: func(r *block.Rec, env map[string]*grad.Value) { env["told"] = x.words(r, env["seen"]) }})
	for i := range x.f.Layers {
		name := fmt.Sprintf("%slayers.%d", xvlaText, i)
		m.Add(family.Block{Name: name, Takes: []string{"told"}, Gives: []string{"told"}, Recompute: true, Weight: 1,
			Record: func(r *block.Rec, env map[string]*grad.Value) {
				env["told"] = x.reads(r, name, env["told"])
			}})
	}
	reads := []string{"told", "seen"}
	if x.p.Views == 1 {
		reads = reads[:1]
	}
	m.Add(family.Block{Name: xvlaName + "embed", Takes: reads, Gives: []string{"x"}, Weight: 0.1, Record: x.embed})
	for i := range x.c.Layers {
		name := fmt.Sprintf("%sblocks.%d", xvlaName, i)
		m.Add(family.Block{Name: name, Takes: []string{"x"}, Gives: []string{"x"}, Recompute: true, Weight: 1,
			Record: func(r *block.Rec, env map[string]*grad.Value) {
				env["x"] = x.layer(r, name, env["x"])
			}})
	}
	m.Add(family.Block{Name: xvlaName + "norm", Takes: []string{"x"}, Weight: 0.1, Record: x.head})
	return m
}

// source says where parameters lie in lerobot's files.
func (x *xvla) source(name string) family.Source {
	s, n := family.Source{Name: name}, x.c.Hidden
	for i, part := range []string{".q_proj.", ".k_proj.", ".v_proj."} {
		if strings.HasPrefix(name, xvlaName) && strings.Contains(name, part) {
			s.Name = strings.Replace(name, part, ".qkv.", 1)
			s.Rows = [][2]int{{i * n, (i + 1) * n}}
		}
	}
	switch name {
	case xvlaVLM + "image_projection":
		s.Turned = true
	case xvlaName + "pos_emb", xvlaVLM + "language_model.final_logits_bias":
		s.Lead = 1
	}
	return s
}

// initial begins tables that do not learn with what they have.
func (x *xvla) initial(name string) family.Start {
	switch name {
	case xvlaVLM + "visual_temporal_embed.pos_idx_to_embed":
		n := x.f.Widths[len(x.f.Widths)-1]
		return family.Start{At: func(i int) float32 {
			row, j := i/n, i%n
			a := float64(row) * math.Exp(-math.Log(10000)*float64(j/2*2)/float64(n))
			if j%2 == 0 {
				return float32(math.Sin(a))
			}
			return float32(math.Cos(a))
		}}
	case xvlaVLM + "language_model.final_logits_bias":
		zero := float32(0)
		return family.Start{Value: &zero}
	}
	return denoisers.Zeroed(name, "action_encoder.bias", "action_decoder.bias")
}

// each lists runs of rows of tables that lie behind each other, for each sample.
func each(levels int, parts ...part32) []int32 {
	var out []int32
	for s := range levels {
		base := 0
		for _, p := range parts {
			at := base
			if !p.shared {
				at += s * p.n
			}
			for range max(1, p.times) {
				for k := range p.n {
					out = append(out, int32(at+k))
				}
			}
			if base += p.n; !p.shared {
				base += (levels - 1) * p.n
			}
		}
	}
	return out
}

// borders are those of sequences of n rows, one a sample; even those of so many sequences.
func borders(r *block.Rec, name string, n int) *grad.Value {
	return even(r.T, name, family.Levels(r.Shape), n)
}
func even(t *grad.Tape, name string, sequences, n int) *grad.Value {
	return t.Indices(name, sequences+1, func(i int) int { return i * n })
}

// ofSamples are n constants of each sample, of which f says number k of sample s.
func ofSamples(r *block.Rec, name string, n int, f func(s, k int) int) *grad.Value {
	return r.T.Indices(name, family.Levels(r.Shape)*n, func(i int) int { return f(i/n, i%n) })
}

// ofRobots are linear layers of which each robot has its own.
type ofRobots struct {
	d            *family.Denoiser
	weight, bias string // ends of names
	flat         bool   // a robot's matrix is a row of its table
}

// linear is x [levels·n in] by a matrix [in out] and a bias that each robot has of its own.
func (o *ofRobots) linear(r *block.Rec, name string, x *grad.Value, n, out, in int) *grad.Value {
	t, levels, robot := r.T, family.Levels(r.Shape), o.d.Robot(r)
	shape := []int{o.d.Robots, in, out}
	if o.flat {
		shape = []int{o.d.Robots, in * out}
	}
	w := t.Take(t.Param(name+o.weight, shape, -1, 1, true), robot)
	w = t.Permute(t.View(w, levels, in, out), 0, 2, 1)
	b := t.Take(t.Param(name+o.bias, []int{o.d.Robots, out}, -1, 1, true), robot)
	y := t.GroupedLinear(x, w, borders(r, fmt.Sprintf("robots.each.%d", n), n))
	return t.Add(y, t.Take(b, levelsOf(t, fmt.Sprintf("robots.level.%d", n), levels, n)))
}

// levelsOf is the level of each of n rows a level.
func levelsOf(t *grad.Tape, name string, levels, n int) *grad.Value {
	return t.Indices(name, levels*n, func(i int) int { return i / n })
}

// mask is 1 for the numbers of a vector of n that are read, and 0 for grippers.
func (x *xvla) mask(r *block.Rec, name string, n int) *grad.Value {
	out := make([]float32, n)
	for i := range out {
		if out[i] = 1; slices.Contains(x.d.Squash, i) {
			out[i] = 0
		}
	}
	return r.T.Cast(r.T.Const(name, out))
}

// embed makes what the transformer reads: actions, what is told and seen, with their places, and the robot's rows.
func (x *xvla) embed(r *block.Rec, env map[string]*grad.Value) {
	t, n, levels, whole := r.T, x.c.Hidden, family.Levels(r.Shape), block.LinearOpts{Bias: true, Rep: true}
	w := x.d.Width()
	actions, state := x.d.Noisy(r), t.Cast(x.d.State(r))
	if len(x.d.Squash) > 0 {
		actions = t.MulCols(actions, x.mask(r, "xvla.actions", w))
		state = t.MulCols(state, x.mask(r, "xvla.state", x.p.State))
	}
	level := levelsOf(t, fmt.Sprintf("xvla.level.%d", x.p.Chunk), levels, x.p.Chunk)
	time := t.Cast(t.Data("dif.feature", tensor.F32, levels, x.k.Time))
	a := t.Concat(1, actions, t.Take(state, level), t.Take(time, level))
	parts := []*grad.Value{x.robots.linear(r, xvlaName+"action_encoder", a, x.p.Chunk, n, w+x.p.State+x.k.Time)}
	parts = append(parts, r.Linear(xvlaName+"vlm_proj", env["told"], n, x.f.Hidden, whole))
	rows := []part32{{n: x.p.Chunk}, {n: x.told()}}
	if x.p.Views > 1 {
		var others []int32
		for s := range levels {
			for k := x.seen(); k < x.p.Views*x.seen(); k++ {
				others = append(others, int32(s*x.p.Views*x.seen()+k))
			}
		}
		seen := t.Take(env["seen"], t.ConstI32("xvla.others", others))
		parts = append(parts, r.Linear(xvlaName+"aux_visual_proj", seen, n, x.f.Hidden, whole))
		rows = append(rows, part32{n: (x.p.Views - 1) * x.seen()})
	} else {
		end := t.Still() // nothing reads it
		t.Param(xvlaName+"aux_visual_proj.weight", []int{n, x.f.Hidden}, -1, 1, true)
		t.Param(xvlaName+"aux_visual_proj.bias", []int{n}, -1, 1, false)
		end()
	}
	v := t.Take(t.Concat(0, parts...), t.ConstI32("xvla.read", each(levels, rows...)))
	places := t.Param(xvlaName+"pos_emb", []int{x.k.Rows, n}, -1, 1, true)
	v = t.Add(v, t.Take(places, t.ConstI32("xvla.places", each(levels, part32{n: x.rows(), shared: true}))))
	soft := t.Take(t.Param(xvlaName+"soft_prompt_hub.weight", []int{x.p.Robots, x.k.Prompts * n}, -1, 1,
		true), x.d.Robot(r))
	soft = t.View(soft, levels*x.k.Prompts, n)
	env["x"] = t.Take(t.Concat(0, v, soft), t.ConstI32("xvla.all", each(levels, part32{n: x.rows()},
		part32{n: x.k.Prompts})))
}

// attend is attention of rows h to each other, in a sequence a sample.
func (x *xvla) attend(r *block.Rec, name, out string, h, cu *grad.Value, n, heads int) *grad.Value {
	t, head := r.T, n/heads
	proj := func(part string) *grad.Value {
		return t.Heads(r.Linear(name+part, h, n, n, block.LinearOpts{Bias: true, Unit: head}), head)
	}
	o := t.Attention(proj(".q_proj"), proj(".k_proj"), proj(".v_proj"), cu, cu,
		grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(head))})
	return t.Place("", r.Linear(name+out, t.Flat(o), n, n, block.LinearOpts{Bias: true, Row: true, Unit: head}))
}

// fed is what an MLP of two layers gives of h.
func (x *xvla) fed(r *block.Rec, name string, h *grad.Value, n, inter, act int) *grad.Value {
	h = r.T.Act(r.Linear(name+"fc1", h, inter, n, block.LinearOpts{Bias: true}), act)
	return r.T.Place("", r.Linear(name+"fc2", h, n, inter, block.LinearOpts{Bias: true, Row: true}))
}

// layer is a layer of the transformer.
func (x *xvla) layer(r *block.Rec, name string, v *grad.Value) *grad.Value {
	t, n := r.T, x.c.Hidden
	cu := borders(r, "xvla.all.cu", x.all())
	v = t.Add(v, x.attend(r, name+".attn", ".proj", r.LayerNorm(name+".norm1", v, n, actEps), cu, n, x.c.Heads))
	return t.Add(v, x.fed(r, name+".mlp.", r.LayerNorm(name+".norm2", v, n, actEps), n, x.c.Intermediate,
		kernels.GELUTanh))
}

// head gives the actions, and their loss.
func (x *xvla) head(r *block.Rec, env map[string]*grad.Value) {
	t, n, levels := r.T, x.c.Hidden, family.Levels(r.Shape)
	var at []int32
	for s := range levels {
		for k := range x.p.Chunk {
			at = append(at, int32(s*x.all()+k))
		}
	}
	h := r.LayerNorm(xvlaName+"norm", t.Take(env["x"], t.ConstI32("xvla.actions.at", at)), n, actEps)
	y := x.robots.linear(r, xvlaName+"action_decoder", h, x.p.Chunk, x.d.Width(), n)
	form, ok := actionForms[x.k.Form]
	if r.Logits || !ok {
		x.d.Predicted(r, env, y)
		return
	}
	rows, w := x.d.Rows(r.Shape), x.d.Width()
	weight := t.Mul(x.d.RowWeights(r), t.Data("dif.weight", tensor.F32, rows))
	squared, logistic := make([]float32, rows*w), make([]float32, rows*w)
	for i := range squared { // row weights have a share of each number
		by := float32(float64(w) * form.weight(i%w))
		if form.logistic && slices.Contains(form.grippers, i%w) {
			logistic[i] = by
		} else {
			squared[i] = by
		}
	}
	t.Loss(t.PointLoss(y, x.d.Clean(r), weight, t.Cast(t.ConstOf("xvla.squared", squared, rows, w)),
		kernels.SquaredLoss, 0))
	if form.logistic {
		t.Loss(t.PointLoss(y, x.d.Clean(r), weight, t.Cast(t.ConstOf("xvla.logistic", logistic, rows, w)),
			kernels.LogisticLoss, 0))
	}
}
