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

// LingBot-VA, as lerobot has it: Wan 2.2's blocks, the same ones for a clip and for actions, over chunks of
// frames that see those before as they were. It is told no state.
var _ = family.Register(family.Family{ModelType: "lingbot_va", HF: lingbotFile(),
	Build: func(c configs.Model) *family.Model { return newLingBot(c).model() }})

// rollKeys are the keys of policies that draw a clip chunk by chunk before they act.
type rollKeys struct {
	Steps int     `key:"clip_steps" default:"20" min:"1" max:"1000000" class:"fixed" unit:"steps" doc:"Steps out of noise to the clip that actions follow."`
	Guide float64 `key:"clip_guidance" default:"5" min:"0" max:"1000" class:"fixed" doc:"How far a clip is led away from what is drawn without a caption; 1 is not."`
}

var rollPart = configs.Declare("rollout", configs.Rules[rollKeys]{Check: func(m configs.Model, _ rollKeys,
	at configs.Report) {
	f := clipStreamPart.Of(m)
	if !m.Has("clip_steps") || len(f.Scale) != 3 || len(f.Patch) != 3 || min(f.Scale[0], f.Patch[0]) < 1 {
		return
	}
	frames := ((f.Frames-1)/f.Scale[0] + 1) / f.Patch[0]
	if n := policyPart.Of(m).Chunk; frames < 2 || n%frames != 0 {
		at("chunk_size", fmt.Sprintf("%d actions are no whole number for each of %d frames of latents, of "+
			"which there are two at least", n, frames), "set chunk_size or video_frames")
	}
}})

// lingName begins the names of parameters in lerobot's files.
const lingName = "transformer."

// lingBot is a model of the family.
type lingBot struct {
	c configs.Model
	k denoisers.Keys
	d *family.Denoiser
}

func newLingBot(c configs.Model) lingBot {
	o, f := policyPart.Of(c), clipStreamPart.Of(c)
	w := lingBot{c, denoisers.Shared.Of(c), clipStream(c)}
	d := w.d
	frames := d.Clip.Grid()[0]
	d.Feature, d.FeatureWidth, d.Sight.State, d.Sight.Token = nil, 0, 0, false
	d.Parts, d.Quiet, d.Masked = frames, true, false
	d.Prompt = func(task string) string { return task }
	d.EncodersKey, d.CamerasKey = "wan_pretrained_path", "obs_cam_keys"
	d.EncodersHub = "robbyant/lingbot-va-base"
	d.NumbersKey = "used_action_channel_ids"
	each := max(1, o.Chunk/max(1, frames))
	d.At = func(grid [3]int) (out []int32) { // between the frames that they lead from and to
		for t := range grid[0] {
			for k := range grid[1] {
				out = append(out, int32(t*(each+1)+k+1), -1, -1)
			}
		}
		return out
	}
	d.Learns = func(p *family.Process) { learnsTable(p, f.Actions, f.ByAction) }
	learnsTable(&d.Clip.Latents.Process, f.Shift, 1)
	d.Clip.Latents.At = func(grid [3]int) (out []int32) {
		for t := range grid[0] {
			for y := range grid[1] {
				for x := range grid[2] {
					out = append(out, int32(t*(each+1)), int32(y), int32(x))
				}
			}
		}
		return out
	}
	r := rollPart.Of(c)
	d.Clip.Sees, d.Clip.Apart = nil, true
	d.Clip.Steps, d.Clip.Acting, d.Clip.Guide = r.Steps, f.Shift, r.Guide
	d.Clip.Rolls = &family.Rollout{Chunk: [2]int{1, 4}, Window: [2]int{4, 64}, Noisy: 0.5}
	d.Clip.Foreign = lingForeign(f, max(1, each/4))
	return w
}

// lingForeign is what lerobot's files of LingBot-VA have no keys for, where it is not what lerobot takes.
func lingForeign(f clipStreamKeys, every int) (out []string) {
	for _, x := range []struct {
		key         string
		have, usual any
	}{{"video_loss", f.ByVideo, 1.0}, {"action_loss", f.ByAction, 1.0}, {"acting_shift", f.Acting, f.Actions},
		{"video_every", f.Every, every}, {"video_scale", fmt.Sprint(f.Scale), "[4 16 16]"}} {
		if x.have != x.usual {
			out = append(out, fmt.Sprintf("%s is %v, for which it has no key, and it takes %v", x.key, x.have, x.usual))
		}
	}
	return out
}

// learnsTable is learnsFlow at the thousand levels of Wan's trainers.
func learnsTable(p *family.Process, shift, by float64) {
	levels, err := noise.Shifted(shift).Levels()
	if err != nil {
		panic("denoisers: the levels of flow matching: " + err.Error())
	}
	learnsFlow(p, levels, by)
}

func (w lingBot) model() *family.Model {
	m := denoisers.NewModel(w.c, w.d)
	m.Modalities = append(m.Modalities, w.d.Clip.Modality(w.d))
	m.Source, m.Initial = w.source, w.initial
	h := w.c.Hidden
	m.Ports = map[string]family.Port{"x": {Width: h},
		"temb":      {Width: h, Rows: w.d.LevelRows, Whole: true},
		"mod":       {Width: 6 * h, Rows: w.d.LevelRows, Whole: true},
		"text":      {Width: h, Rows: family.Captions, Whole: true},
		"past":      {Width: h, Rows: family.PastRows, Whole: true, Of: family.PastDim},
		"clip":      {Width: h, Rows: family.ClipRows, Whole: true},
		"clip_temb": {Width: h, Rows: w.d.Clip.RollLevels, Whole: true},
		"clip_mod":  {Width: 6 * h, Rows: w.d.Clip.RollLevels, Whole: true}}
	all := []string{"x", "past", "clip", "mod", "clip_mod", "text"}
	m.Add(family.Block{Name: lingName + "embed", Weight: 0.1, Record: w.embed,
		Gives: append([]string{"temb", "clip_temb"}, all...)})
	for i := range w.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("%sblocks.%d", lingName, i), Takes: all, Gives: all[:3], Recompute: true,
			Weight: 1, Record: func(r *block.Rec, env map[string]*grad.Value) { w.layer(r, i, env) }})
	}
	m.Add(family.Block{Name: lingName + "head", Takes: []string{"x", "clip", "temb", "clip_temb"},
		Weight: 0.1, Record: w.head})
	return m
}

// embed makes rows of noisy and of clean latents and actions, and of levels and the caption what every layer reads.
func (w lingBot) embed(r *block.Rec, env map[string]*grad.Value) {
	t, h, f, whole := r.T, w.c.Hidden, w.d.Clip, block.LinearOpts{Bias: true, Rep: true}
	times := func(of, name string, n int) (temb, mod *grad.Value) {
		x := t.Sinusoids(t.Data(of, tensor.F32, n), t.Const("dif.freq", grad.Frequencies(w.k.Freq/2,
			10000, 0)), 1, true)
		temb = denoisers.TimeMLP(r, lingName+name+".time_embedder", t.Cast(x), h, w.k.Freq)
		return temb, r.Linear(lingName+name+".time_proj", t.Act(temb, kernels.SiLU), 6*h, h, whole)
	}
	const video, action = "condition_embedder", "condition_embedder_action"
	env["clip_temb"], env["clip_mod"] = times("clip.time", video, f.RollLevels(r.Shape))
	env["temb"], env["mod"] = times("dif.time", action, w.d.LevelRows(r.Shape))
	x := r.Linear(lingName+video+".text_embedder.linear_1", w.d.Captions(r, env), h, w.k.Text, whole)
	env["text"] = r.Linear(lingName+video+".text_embedder.linear_2", t.Act(x, kernels.GELUTanh), h, h, whole)
	env["clip"] = r.Linear(lingName+"patch_embedding_mlp", f.Noisy(r), h, f.Latents.Width(), whole)
	act := func(x *grad.Value) *grad.Value {
		return r.Linear(lingName+"action_embedder", x, h, w.d.Width(), whole)
	}
	env["x"] = t.Place("residual", act(w.d.Noisy(r)))
	if n := family.PastRows(r.Shape); n > 0 {
		env["past"] = act(t.Cast(t.Data("past.x0", tensor.F32, n, w.d.Width())))
	}
	defer t.Still()() // what lerobot's copy of the embedder has and nobody reads
	for _, part := range []struct {
		name string
		in   int
	}{{".text_embedder.linear_1", w.k.Text}, {".text_embedder.linear_2", h}} {
		t.Param(lingName+action+part.name+".weight", []int{h, part.in}, -1, 1, true)
		t.Param(lingName+action+part.name+".bias", []int{h}, -1, 1, false)
	}
}

// lingStream is what rows of a kind are in a layer: the clip's, past actions, and actions.
type lingStream struct {
	name     string
	x        *grad.Value
	mod      *grad.Value // [levels 6·width] with the layer's own
	at       *grad.Value
	place    string // of its rows: those of actions may be shared out
	pos      string
	rows     int
	cu, told *grad.Value // borders of samples among its rows, and of their captions
	q, k, v  *grad.Value
}

// layer is layer i of all rows.
func (w lingBot) layer(r *block.Rec, i int, env map[string]*grad.Value) {
	t, f, at, n := r.T, w.d.Clip, fmt.Sprintf("%sblocks.%d", lingName, i), family.PastRows(r.Shape)
	told := t.Data("clip.text.cu", tensor.I32, family.Levels(r.Shape)+1)
	mod := denoisers.Shift(r, at+".scale_shift_table", env["mod"], 6, w.c.Hidden)
	all := []*lingStream{{name: "clip", at: f.Level(r), pos: "clip.pos",
		mod:  denoisers.Shift(r, at+".scale_shift_table", env["clip_mod"], 6, w.c.Hidden),
		rows: family.ClipRows(r.Shape), cu: f.Cu(r), told: told}}
	if n > 0 { // all of past actions are at time 0, which lies behind the levels of the others
		none := t.Indices("past.at", n, func(int) int { return w.d.LevelRows(r.Shape) - 1 })
		all = append(all, &lingStream{name: "past", mod: mod, at: none, pos: "past.pos", rows: n,
			told: told, cu: t.Data("past.cu", tensor.I32, family.Levels(r.Shape)+1)})
	}
	all = append(all, &lingStream{name: "x", mod: mod, at: w.d.Level(r), place: "residual", pos: "dif.pos",
		rows: r.Shape.Rows, cu: r.Cu(), told: w.d.TextCu(r)})
	var keys, values []*grad.Value
	for _, s := range all {
		s.x = env[s.name]
		w.heads(r, at, s)
		keys, values = append(keys, s.k), append(values, s.v)
	}
	for _, s := range all {
		seen := len(all)
		if s.name != "x" {
			seen--
		}
		k, cuQ, cuK := f.Seen(r, s.name, keys[:seen]...)
		v, _, _ := f.Seen(r, s.name, values[:seen]...)
		w.behind(r, at, s, t.Attention(s.q, k, v, cuQ, cuK, w.scores(s)), env["text"])
		env[s.name] = s.x
	}
}

func (w lingBot) scores(s *lingStream) grad.AttentionConfig {
	return grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(w.c.HeadDim)), Tokens: s.place != ""}
}

// part is one of the six vectors that shift, scale and gate a stream.
func (w lingBot) part(r *block.Rec, s *lingStream, k int) *grad.Value {
	return r.T.Columns(s.mod, k*w.c.Hidden, w.c.Hidden)
}

// heads are the queries, keys and values of a stream. Places of actions lie between those of frames, so that
// all places in time are counted in steps between them.
func (w lingBot) heads(r *block.Rec, at string, s *lingStream) {
	t, name, n := r.T, at+".attn1", w.c.HeadDim
	h := t.Modulate(s.x, w.part(r, s, 1), w.part(r, s, 0), s.at, denoisers.PlainNorm(w.c.NormEps))
	s.q, s.k = projected(r, w.c, name, h, ".to_q", ".norm_q"), projected(r, w.c, name, h, ".to_k", ".norm_k")
	s.v = projected(r, w.c, name, h, ".to_v", "")
	var inv []float32
	var axis []int32
	steps := float64(w.d.Chunk/w.d.Parts + 1)
	for a, width := range [3]int{n - 2*(n/3), n / 3, n / 3} {
		for i := range width / 2 {
			v := 1 / math.Pow(w.c.RopeTheta, float64(2*i)/float64(width))
			if a == 0 {
				v /= steps
			}
			inv, axis = append(inv, float32(v)), append(axis, int32(a))
		}
	}
	cos, sin := t.RopeAxes(t.Data(s.pos, tensor.I32, s.rows, 3), t.Const("ling.inv_freq", inv),
		t.ConstI32("ling.axis", axis), 1)
	s.q, s.k = t.Rope(s.q, cos, sin, true), t.Rope(s.k, cos, sin, true)
}

// behind is the rest of a stream's layer behind attention: its caption, and an MLP.
func (w lingBot) behind(r *block.Rec, at string, s *lingStream, heads, text *grad.Value) {
	t, d := r.T, w.c.Hidden
	row := block.LinearOpts{Bias: true, Row: true, Unit: w.c.HeadDim}
	h := t.Place(s.place, r.Linear(at+".attn1.to_out.0", t.Flat(heads), d, d, row))
	s.x = t.Gate(s.x, h, w.part(r, s, 2), s.at)
	if h = s.x; denoisers.WanPart.Of(w.c).CrossNorm {
		h = r.LayerNorm(at+".norm2", s.x, d, w.c.NormEps)
	}
	q := projected(r, w.c, at+".attn2", h, ".to_q", ".norm_q")
	k := projected(r, w.c, at+".attn2", text, ".to_k", ".norm_k")
	v := projected(r, w.c, at+".attn2", text, ".to_v", "")
	o := t.Attention(q, k, v, s.cu, s.told, w.scores(s))
	s.x = t.Place(s.place, t.Add(s.x, t.Place(s.place, r.Linear(at+".attn2.to_out.0", t.Flat(o), d, d, row))))
	h = t.Modulate(s.x, w.part(r, s, 4), w.part(r, s, 3), s.at, denoisers.PlainNorm(w.c.NormEps))
	h = r.Linear(at+".ffn.net.0.proj", h, w.c.Intermediate, d, block.LinearOpts{Bias: true})
	h = r.Linear(at+".ffn.net.2", t.Act(h, kernels.GELUTanh), d, w.c.Intermediate,
		block.LinearOpts{Bias: true, Row: true})
	s.x = t.Gate(s.x, t.Place(s.place, h), w.part(r, s, 5), s.at)
}

// head is the numbers of each action and of each token of the clip, by norms of one set of parameters.
func (w lingBot) head(r *block.Rec, env map[string]*grad.Value) {
	t, d, f, whole := r.T, w.c.Hidden, w.d.Clip, block.LinearOpts{Bias: true, Rep: true}
	normed := func(x, temb, at *grad.Value) *grad.Value {
		mod := denoisers.Shift(r, lingName+"scale_shift_table", t.Concat(1, temb, temb), 2, d)
		return t.Modulate(x, t.Columns(mod, d, d), t.Columns(mod, 0, d), at, denoisers.PlainNorm(w.c.NormEps))
	}
	clip := r.Linear(lingName+"proj_out", normed(env["clip"], env["clip_temb"], f.Level(r)),
		f.Latents.Width(), d, whole)
	switch {
	case r.Clips:
		env["logits"] = t.Place("", clip)
		return
	case !r.Logits:
		f.Predicted(r, clip)
	}
	w.d.Predicted(r, env, r.Linear(lingName+"action_proj_out", normed(env["x"], env["temb"], w.d.Level(r)),
		w.d.Width(), d, whole))
}

// source says where parameters lie in lerobot's files.
func (w lingBot) source(name string) family.Source {
	s := family.Source{Name: name}
	switch {
	case strings.HasSuffix(name, "scale_shift_table"):
		s.Lead = 1
	case strings.HasPrefix(name, lingName+"proj_out."):
		s.Rows = denoisers.Fastest(w.d.Clip.Latents)
	}
	return s
}

// initial begins a model that gives nothing, whose layers pass their rows on, as Wan does.
func (w lingBot) initial(name string) family.Start {
	if strings.HasSuffix(name, "scale_shift_table") {
		return family.Start{Std: 1 / math.Sqrt(float64(w.c.Hidden))}
	}
	return denoisers.Zeroed(name, lingName+"proj_out.", lingName+"action_proj_out.", ".time_proj.")
}
