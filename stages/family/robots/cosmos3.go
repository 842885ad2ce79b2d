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
	"github.com/lfactor/lfactor/stages/noise"
)

// cosmosKeys are the keys of Cosmos3: where rows lie in time.
type cosmosKeys struct {
	Axes   []int   `key:"rope_axes" class:"fixed" doc:"Frequencies of a head that turn with time, height and width, dealt out in turns."`
	Margin int     `key:"position_margin" default:"15000" min:"0" max:"30000" class:"fixed" doc:"Places in time between a caption and what is drawn behind it."`
	Rate   float64 `key:"robot_rate" default:"15" min:"1e-3" max:"1e4" class:"fixed" unit:"Hz" doc:"Steps a second of the robot, by which places in time are counted and which captions say."`
	Base   float64 `key:"base_rate" default:"24" min:"1e-3" max:"1e4" class:"fixed" unit:"Hz" doc:"Frames a second of a clip whose latents lie one place in time from each other."`
}

var cosmosPart = configs.Declare("cosmos", configs.Rules[cosmosKeys]{Check: func(m configs.Model,
	k cosmosKeys, at configs.Report) {
	if m.ModelType != cosmosType {
		return
	}
	r := block.Rope{Dim: m.HeadDim, Sections: k.Axes}
	if err := r.Check(); err != nil || len(k.Axes) != 3 {
		at("rope_axes", fmt.Sprintf("%v, want three numbers that add up to head_dim/2 = %d", k.Axes, m.HeadDim/2), "")
	}
	o, f := policyPart.Of(m), clipStreamPart.Of(m)
	if n := denoisers.Shared.Of(m).In; o.State != n {
		at("state_size", fmt.Sprintf("%d, and a state is read as actions are, which have %d numbers", o.State,
			n), "set it to in_channels")
	}
	if o.Chunk != (f.Frames-1)*f.Every {
		at("chunk_size", fmt.Sprintf("%d actions, and from the first to the last of %d frames the robot "+
			"takes %d steps", o.Chunk, f.Frames, (f.Frames-1)*f.Every), "set chunk_size or video_frames")
	}
	if k.Rate > 0 && f.Frames > 0 {
		last := float64(k.Margin+cosmosMost) + float64(o.Chunk)*k.Base/k.Rate
		if last*cosmosUnit > math.MaxInt32 {
			at("position_margin", fmt.Sprintf("%d, and the last action would lie at place %.0f of up to %d",
				k.Margin, last, math.MaxInt32/cosmosUnit), "lower it")
		}
	}
}})

// Places in time are counted in parts of 1/65536: the reference counts them in float32, whose numbers are
// whole parts of this from 128 up and closer to one than 1e-5 below.
const cosmosUnit = 1 << 16

// cosmosMost is how many tokens of a caption are read.
const cosmosMost = 2048

// cosmosWaves are the sinusoids of a level's time.
const cosmosWaves = 256

// cosmosType is the class that its files name.
const cosmosType = "Cosmos3OmniTransformer"

// Cosmos3 as diffusers has it, as a policy: two towers of Qwen3's layers, one for the caption, which sees
// itself, and one for the clip, the robot's state and its actions, which see each other and the caption. Clip
// and actions are drawn together. What reads and gives actions has weights for each robot.
var _ = family.Register(family.Family{ModelType: cosmosType, HF: cosmosFile(),
	Build: func(c configs.Model) *family.Model { return newCosmos(c).model() }})

// cosmos3 is a model of the family.
type cosmos3 struct {
	c      configs.Model
	o      cosmosKeys
	d      *family.Denoiser
	robots *ofRobots
}

func newCosmos(c configs.Model) *cosmos3 {
	k, p, f := denoisers.Shared.Of(c), policyPart.Of(c), clipStreamPart.Of(c)
	w := &cosmos3{c: c, o: cosmosPart.Of(c)}
	levels, of := noise.Flow{Shift: f.Shift, Times: 1000}, [3]int{f.Frames}
	of[1], of[2] = f.picture(p)
	w.d = &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: k.In, Pipeline: "Cosmos3OmniPipeline",
		Policy: family.Policy{Chunk: p.Chunk, Masked: true, Quiet: true, Robots: p.Robots, Steps: f.Steps,
			Shift: f.Acting, PromptBare: true, PromptMost: cosmosMost, Prompt: w.prompt,
			Sight: &family.Sight{Views: p.Views, Patches: p.Height * p.Width, Pixels: 3,
				Size: [2]int{p.Height, p.Width}, State: p.State},
			Learns: func(p *family.Process) { // a mean over the state too
				w.learns(p, levels, f.ByAction*float64(w.d.Chunk)/float64(w.d.Chunk+1))
			}}}
	w.d.Clip = &family.ClipStream{Latents: &family.Denoiser{Patch: [3]int(f.Patch), Channels: f.Channels, Last: true},
		Weight: float32(f.ByVideo), Size: of, Laid: f.Form, Every: f.Every, Scale: [3]int(f.Scale),
		Joined: &family.Joined{Rate: w.o.Rate, Places: w.places}}
	w.d.EncodersKey, w.d.CamerasKey = "encoders", "cameras"
	w.d.Words.Robot = family.RobotStep{Step: "embodiment", Key: "embodiment"} // this program's own
	w.learns(&w.d.Clip.Latents.Process, levels, 1)
	w.robots = &ofRobots{d: w.d, weight: ".fc.weight", bias: ".bias.weight", flat: true}
	return w
}

// learns is training by flow matching, weighted alike at all levels.
func (w *cosmos3) learns(p *family.Process, levels noise.Levels, by float64) {
	p.Levels, p.Times, p.Loss = levels, noise.Times{Kind: "waver"}, kernels.SquaredLoss
	p.Target, _ = noise.Lookup("flow_prediction") // one of the package's own
	p.Weight = func(noise.Level) float32 { return float32(by) }
}

// prompt is what the model is told of a task, in the chat template of Qwen3-VL: the sentences behind it are
// those of LoongForge's trainer.
func (w *cosmos3) prompt(task string) string {
	f := w.d.Clip
	if task != "" {
		rate := w.o.Rate / float64(f.Every)
		say := func(s string) {
			if task = strings.TrimRight(task, " \t\r\n"); !strings.HasSuffix(task, ".") {
				task += "."
			}
			task += " " + s
		}
		if w.d.Sight.Views > 1 {
			say("This video contains concatenated views from multiple camera perspectives.")
		}
		if f.Laid == "above" {
			say("The top row is from the wrist-mounted camera. The bottom row contains two horizontally concatenated " +
				"third-person perspective views of the scene from opposite sides, with the robot visible.")
		}
		say(fmt.Sprintf("The video is %d.0 seconds long and is of %.0f FPS.", int(float64(f.Size[0])/rate), rate))
		say(fmt.Sprintf("This video is of %dx%d resolution.", f.Size[1], f.Size[2]))
	}
	return "<|im_start|>user\n" + task + "<|im_end|>\n<|im_start|>assistant\n<|im_end|><|vision_start|>"
}

// places are those of rows in time, height and width, in parts of a place. Time goes on from the caption and
// is that of the clip's frames in seconds, in float32 as the reference computes it.
func (w *cosmos3) places(told int, grid [3]int, chunk int) (text, clip, state, actions []int32) {
	f, from := w.d.Clip, float32(told+w.o.Margin)
	put := func(out []int32, v ...float32) []int32 {
		for _, v := range v {
			out = append(out, int32(math.Round(float64(v)*cosmosUnit)))
		}
		return out
	}
	for k := range told {
		text = put(text, float32(k), float32(k), float32(k))
	}
	at := func(k int, rate, each float64) float32 { // of what comes each frames, of so many a second
		return float32(k)/float32(rate/each)*float32(w.o.Base/float64(f.Scale[0])) + from
	}
	for t := range grid[0] {
		time := at(t, w.o.Rate/float64(f.Every), float64(f.Scale[0]))
		for y := range grid[1] {
			for x := range grid[2] {
				clip = put(clip, time, float32(y), float32(x))
			}
		}
	}
	state = put(state, at(0, w.o.Rate, 1), 0, 0)
	for k := range chunk {
		actions = put(actions, at(k+1, w.o.Rate, 1), 0, 0)
	}
	return text, clip, state, actions
}

func (w *cosmos3) model() *family.Model {
	m := denoisers.NewModel(w.c, w.d)
	m.Spec.Vocab, m.Spec.KV = w.c.Vocab, w.c.KVHeads
	m.Modalities = append(m.Modalities, w.d.Clip.Modality(w.d))
	m.Initial = w.initial
	m.Ports["text"] = family.Port{Width: w.c.Hidden, Rows: family.Captions, Whole: true}
	m.Ports["clip"] = family.Port{Width: w.c.Hidden, Rows: family.GatheredRows, Whole: true}
	all := []string{"x", "clip", "text"}
	m.Add(family.Block{Name: "embed", Weight: 0.1, Record: w.embed, Gives: all})
	for i := range w.c.Layers {
		gives := all
		if i == w.c.Layers-1 {
			gives = all[:2]
		}
		m.Add(family.Block{Name: fmt.Sprintf("layers.%d", i), Takes: all, Gives: gives, Recompute: true,
			Weight: 1, Record: func(r *block.Rec, env map[string]*grad.Value) { w.layer(r, i, env) }})
	}
	m.Add(family.Block{Name: "head", Takes: all[:2], Weight: 0.1, Record: w.head})
	return m
}

// ofDomain is x [rows in] by a matrix [in out] and a bias that each robot has of its own, for rows of actions.
func (w *cosmos3) ofDomain(r *block.Rec, name string, x *grad.Value, out, in int) *grad.Value {
	t, levels, robot := r.T, family.Levels(r.Shape), w.d.Robot(r)
	m := t.Take(t.Param(name+".fc.weight", []int{w.d.Robots, in * out}, -1, 1, true), robot)
	m = t.Permute(t.View(m, levels, in, out), 0, 2, 1)
	b := t.Take(t.Param(name+".bias.weight", []int{w.d.Robots, out}, -1, 1, true), robot)
	y := t.GroupedLinear(t.Place("", x), m, w.d.Clip.ActionCu(r))
	return t.Add(y, t.Take(b, w.d.Level(r)))
}

// embed makes rows of the caption, of the noisy clip with the state, and of noisy actions. What has no noise
// is not told a time.
func (w *cosmos3) embed(r *block.Rec, env map[string]*grad.Value) {
	t, h, f, n := r.T, w.c.Hidden, w.d.Clip, w.d.Width()
	words := t.Param("embed_tokens.weight", []int{w.c.Vocab, h}, -1, 1, true)
	env["text"] = t.Take(words, f.Words(r))
	time := denoisers.TimeMLP(r, "time_embedder", t.Cast(w.d.Features(r, cosmosWaves/2, 1e-3)), h, cosmosWaves)
	kind := t.View(t.Param("action_modality_embed", []int{h}, -1, 1, false), 1, h)
	same := func(x *grad.Value) *grad.Value { // of rows that are actions
		return t.Add(x, t.Take(kind, t.ConstI32(fmt.Sprintf("cosmos.kind.%d", x.Shape[0]), make([]int32, x.Shape[0]))))
	}
	x := same(w.ofDomain(r, "action_proj_in", w.d.Noisy(r), h, n))
	env["x"] = t.Place("residual", t.Add(x, t.Take(time, w.d.Level(r))))
	state := same(w.robots.linear(r, "action_proj_in", t.Cast(w.d.State(r)), 1, h, n))
	clip := r.Linear("proj_in", f.Noisy(r), h, f.Latents.Width(), block.LinearOpts{Bias: true, Rep: true})
	env["clip"] = t.Add(f.Gathered(r, clip, state), t.Take(time, f.GatheredLevel(r)))
	defer t.Still()() // what could say words behind the caption, which nobody asks
	t.Param("lm_head.weight", []int{w.c.Vocab, h}, -1, 1, true)
}

// cosmosNames are the ends of names of a tower's parameters.
type cosmosNames struct{ q, k, v, out, normQ, normK, mlp, before, behind string }

var cosmosTowers = [2]cosmosNames{{q: "to_q", k: "to_k", v: "to_v", out: "to_out", normQ: "norm_q", normK: "norm_k",
	mlp: "mlp", before: "input_layernorm",
	behind: "post_attention_layernorm"}, {q: "add_q_proj", k: "add_k_proj", v: "add_v_proj", out: "to_add_out",
	normQ: "norm_added_q",
	normK: "norm_added_k", mlp: "mlp_moe_gen", before: "input_layernorm_moe_gen",
	behind: "post_attention_layernorm_moe_gen"}}

// cosmosStream is what rows of a kind are in a layer.
type cosmosStream struct {
	cosmosNames
	x       *grad.Value
	place   string // of its rows: those of actions may be shared out
	pos     string
	rows    int
	q, k, v *grad.Value
}

// layer is layer i of all rows.
func (w *cosmos3) layer(r *block.Rec, i int, env map[string]*grad.Value) {
	t, f, at, n := r.T, w.d.Clip, fmt.Sprintf("layers.%d.", i), w.c.HeadDim
	text := &cosmosStream{cosmosNames: cosmosTowers[0], x: env["text"], pos: "clip.told.pos",
		rows: family.Captions(r.Shape)}
	clip := &cosmosStream{cosmosNames: cosmosTowers[1], x: env["clip"], pos: "clip.pos",
		rows: family.GatheredRows(r.Shape)}
	x := &cosmosStream{cosmosNames: cosmosTowers[1], x: env["x"], pos: "clip.act.pos", rows: r.Shape.Rows,
		place: "residual"}
	for _, s := range []*cosmosStream{text, clip, x} {
		w.heads(r, at, s, s != text || i < w.c.Layers-1)
	}
	k, v := f.All(r, text.k, clip.k, x.k), f.All(r, text.v, clip.v, x.v)
	actions, clipQ, clipK := f.AllCu(r)
	c := grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(n))}
	w.behind(r, at, clip, t.Attention(clip.q, k, v, clipQ, clipK, c))
	c.Tokens = true
	w.behind(r, at, x, t.Attention(x.q, k, v, r.Cu(), actions, c))
	env["clip"], env["x"] = clip.x, x.x
	if i == w.c.Layers-1 {
		w.unread(r, at)
		return
	}
	c = grad.AttentionConfig{Scale: c.Scale, Causal: true}
	w.behind(r, at, text, t.Attention(text.q, text.k, text.v, w.d.TextCu(r), w.d.TextCu(r), c))
	env["text"] = text.x
}

// heads are the queries, if something asks for them, keys and values of a stream, normed by head and turned
// by their places.
func (w *cosmos3) heads(r *block.Rec, at string, s *cosmosStream, asked bool) {
	t, n, h := r.T, w.c.HeadDim, r.Norm(at+s.before, s.x, w.c.Hidden, w.c.NormEps)
	rope := block.Rope{Dim: n, Theta: w.c.RopeTheta, Sections: w.o.Axes, Interleaved: true}
	inv, _ := rope.Inverse()
	for i := range inv {
		inv[i] /= cosmosUnit
	}
	cos, sin := t.RopeAxes(t.Data(s.pos, tensor.I32, s.rows, 3), t.Const("cosmos.inv_freq", inv),
		t.ConstI32("cosmos.axis", rope.Axes()), 1)
	project := func(part, norm string, heads int) *grad.Value {
		x := t.Heads(r.Linear(at+"self_attn."+part, h, heads*n, w.c.Hidden, block.LinearOpts{Unit: n}), n)
		if norm == "" {
			return x
		}
		return t.Rope(r.Norm(at+"self_attn."+norm, x, n, w.c.NormEps), cos, sin, false)
	}
	if asked {
		s.q = project(s.cosmosNames.q, s.normQ, w.c.Heads)
	}
	s.k = project(s.cosmosNames.k, s.normK, w.c.KVHeads)
	s.v = project(s.cosmosNames.v, "", w.c.KVHeads)
}

// behind is the rest of a stream's layer behind attention: an MLP.
func (w *cosmos3) behind(r *block.Rec, at string, s *cosmosStream, heads *grad.Value) {
	t, d, inter := r.T, w.c.Hidden, w.c.Intermediate
	s.x = t.Add(s.x, t.Place(s.place, r.Linear(at+"self_attn."+s.out, t.Flat(heads), d, w.c.Heads*w.c.HeadDim,
		block.LinearOpts{Row: true, Unit: w.c.HeadDim})))
	h := r.Norm(at+s.cosmosNames.behind, s.x, d, w.c.NormEps)
	gate := t.Act(r.Linear(at+s.mlp+".gate_proj", h, inter, d, block.LinearOpts{}), kernels.SiLU)
	h = t.Mul(gate, r.Linear(at+s.mlp+".up_proj", h, inter, d, block.LinearOpts{}))
	s.x = t.Add(s.x, t.Place(s.place, r.Linear(at+s.mlp+".down_proj", h, d, inter, block.LinearOpts{Row: true})))
}

// unread declares what the last layer would make of captions: nothing reads them behind it, so that these
// parameters neither learn nor decay.
func (w *cosmos3) unread(r *block.Rec, at string) {
	defer r.T.Still()()
	d, inter, s := w.c.Hidden, w.c.Intermediate, cosmosTowers[0]
	for _, p := range []struct {
		name    string
		out, in int
	}{{"self_attn." + s.out, d, w.c.Heads * w.c.HeadDim}, {s.mlp + ".gate_proj", inter, d},
		{s.mlp + ".up_proj", inter, d}, {s.mlp + ".down_proj", d, inter},
		{"self_attn." + s.q, w.c.Heads * w.c.HeadDim, d}} {
		r.T.Param(at+p.name+".weight", []int{p.out, p.in}, -1, 1, true)
	}
	r.T.Param(at+"self_attn."+s.normQ+".weight", []int{w.c.HeadDim}, -1, 1, false)
	r.T.Param(at+s.behind+".weight", []int{d}, -1, 1, false)
	r.T.Param("norm.weight", []int{d}, -1, 1, false)
}

// head is the numbers of each action and of each token of the clip; who draws both has one behind the other.
func (w *cosmos3) head(r *block.Rec, env map[string]*grad.Value) {
	t, d, f, n := r.T, w.c.Hidden, w.d.Clip, w.d.Width()
	normed := func(x *grad.Value) *grad.Value { return r.Norm("norm_moe_gen", x, d, w.c.NormEps) }
	clip := r.Linear("proj_out", f.Parted(r, normed(env["clip"])), f.Latents.Width(), d,
		block.LinearOpts{Bias: true, Rep: true})
	y := w.ofDomain(r, "action_proj_out", normed(env["x"]), n, d)
	if !r.Logits {
		f.Predicted(r, clip)
		y = t.OwnTokens(y)
	}
	w.d.Predicted(r, env, y)
	if r.Logits {
		line := func(x *grad.Value) *grad.Value { return t.View(t.Place("", x), x.Shape[0]*x.Shape[1], 1) }
		env["logits"] = t.Concat(0, line(env["logits"]), line(clip))
	}
}

// initial begins a model that gives nothing.
func (w *cosmos3) initial(name string) family.Start { return denoisers.Zeroed(name, "proj_out.") }
