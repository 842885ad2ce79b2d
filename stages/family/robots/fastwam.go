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

// clipStreamKeys are the keys of policies that denoise a clip beside their actions.
type clipStreamKeys struct {
	Channels int     `key:"video_channels" default:"48" min:"1" max:"65536" class:"fixed" doc:"Channels of the latents of the clip that a policy denoises beside its actions."`
	Patch    []int   `key:"video_patch" class:"fixed" doc:"Frames, rows and columns of its latents that become one token."`
	Scale    []int   `key:"video_scale" class:"fixed" doc:"Frames, rows and columns of pixels that its autoencoder makes one of latents of; the first frame is one alone."`
	Frames   int     `key:"video_frames" default:"9" min:"2" max:"1024" class:"fixed" doc:"Frames of the clip: the present one and what comes."`
	Every    int     `key:"video_every" default:"4" min:"1" max:"1024" class:"fixed" unit:"steps" doc:"Steps of the robot from one frame of the clip to the next."`
	Shift    float64 `key:"video_shift" default:"5" min:"1e-6" max:"1e6" class:"fixed" doc:"Shift towards noise of the levels that clips are trained at."`
	Actions  float64 `key:"action_shift" default:"5" min:"1e-6" max:"1e6" class:"fixed" doc:"Shift towards noise of the levels that actions are trained at."`
	Acting   float64 `key:"acting_shift" default:"5" min:"1e-6" max:"1e6" class:"fixed" doc:"Shift towards noise of the levels by which actions are drawn."`
	Steps    int     `key:"acting_steps" default:"10" min:"1" max:"1000000" class:"fixed" unit:"steps" doc:"Steps out of noise to actions when a policy acts."`
	ByVideo  float64 `key:"video_loss" default:"1" min:"0" max:"1e6" class:"fixed" doc:"Weight of the loss of clips."`
	Form     string  `key:"view_form" default:"row" oneof:"row|grid|droid|above" class:"fixed" doc:"How views make one picture: row has them beside each other; grid has four quarters, the first view above the second at the left, the third above black at the right; droid has the third, twice as wide, above the first and the second; above has the third as it is above these two at half its height and width."`
	ByAction float64 `key:"action_loss" default:"1" min:"0" max:"1e6" class:"fixed" doc:"Weight of the loss of actions."`
}

var clipStreamPart = configs.Declare("footage", configs.Rules[clipStreamKeys]{Check: func(m configs.Model,
	k clipStreamKeys, at configs.Report) {
	if !m.Has("video_patch") {
		return
	}
	for _, of := range []struct {
		key string
		v   []int
	}{{"video_patch", k.Patch}, {"video_scale", k.Scale}} {
		if len(of.v) != 3 || min(of.v[0], of.v[1], of.v[2]) < 1 {
			at(of.key, fmt.Sprintf("%v, want three numbers from 1 up: frames, rows and columns", of.v), "")
			return
		}
	}
	o := policyPart.Of(m)
	for _, n := range denoisers.Shared.Of(m).Patch {
		if n != 1 {
			at("latent_patch", fmt.Sprintf("%v, and tokens of a policy with a clip are actions",
				denoisers.Shared.Of(m).Patch), "set [1, 1, 1]; tokens of the clip are of video_patch")
			break
		}
	}
	switch {
	case k.Patch[0] != 1: // the frame that is seen would share a token with one that comes
		at("video_patch", fmt.Sprintf("%v, and a policy that acts has the first frame of latents alone",
			k.Patch), "begin it with 1")
	case (k.Frames-1)%k.Scale[0] != 0 || ((k.Frames-1)/k.Scale[0]+1)%k.Patch[0] != 0:
		at("video_frames", fmt.Sprintf("%d, and behind the first the autoencoder takes %d at a time",
			k.Frames, k.Scale[0]), fmt.Sprintf("try %d", (k.Frames-1)/k.Scale[0]*k.Scale[0]+1))
	case k.Form != "row" && (o.Views > 3 || k.Form != "grid" && o.Views < 3):
		at("view_form", fmt.Sprintf("%s, and there are %d views", k.Form, o.Views),
			"droid and above take three, grid three at most; row takes any number")
	case k.Form == "above" && (o.Height%2 != 0 || o.Width%2 != 0):
		at("view_form", fmt.Sprintf("above, and %d by %d pixels have no halves", o.Height, o.Width),
			"set view_height and view_width to even numbers")
	default:
		k.wholeTokens(o, m.Has("clip_steps"), at)
	}
}})

// picture is the height and the width of the picture that views make.
func (k clipStreamKeys) picture(o policyKeys) (h, w int) {
	switch k.Form {
	case "row", "":
		return o.Height, o.Width * o.Views
	case "above":
		return o.Height + o.Height/2, o.Width
	}
	return 2 * o.Height, 2 * o.Width
}

// wholeTokens reports views that are no whole tokens, or, apart, that are no whole latents each.
func (k clipStreamKeys) wholeTokens(o policyKeys, apart bool, at configs.Report) {
	h, w := k.picture(o)
	switch {
	case h%(k.Scale[1]*k.Patch[1]) != 0:
		at("view_height", fmt.Sprintf("%d pixels, which make a picture of %d by view_form: %s, are no whole "+
			"tokens of %d", o.Height, h, k.Form, k.Scale[1]*k.Patch[1]), "")
	case apart && o.Width%k.Scale[2] != 0:
		at("view_width", fmt.Sprintf("%d pixels are no whole latents of %d, and each view has its own",
			o.Width, k.Scale[2]), "")
	case w%(k.Scale[2]*k.Patch[2]) != 0:
		at("view_width", fmt.Sprintf("%d pixels, of which %d views make a picture of %d by view_form: %s, "+
			"are no whole tokens of %d", o.Width, o.Views, w, k.Form, k.Scale[2]*k.Patch[2]), "")
	}
}

// clipStream is what such a policy is beside its layers.
func clipStream(c configs.Model) *family.Denoiser {
	k, o, f := denoisers.Shared.Of(c), policyPart.Of(c), clipStreamPart.Of(c)
	levels := func(shift float64) noise.Flow { return noise.Flow{Shift: shift, Times: 1000} }
	d := &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: k.In, Texts: k.Text,
		TextRows: denoisers.WanPart.Of(c).Captions, Pipeline: "WanPipeline", FeatureWidth: k.Freq,
		Feature: func(t float64) []float32 { return sinusoids(t, k.Freq) }, Policy: family.Policy{Chunk: o.Chunk,
			Masked: true, Steps: f.Steps, Shift: f.Acting, Sight: &family.Sight{Views: o.Views,
				Patches: o.Height * o.Width, Pixels: 3, Size: [2]int{o.Height, o.Width}, State: o.State, Token: true},
			Learns: func(p *family.Process) { learnsFlow(p, levels(f.Actions), f.ByAction) }}}
	high, wide := f.picture(o)
	d.Clip = &family.ClipStream{Latents: &family.Denoiser{Patch: [3]int(f.Patch), Channels: f.Channels},
		Weight: float32(f.ByVideo), Size: [3]int{f.Frames, high, wide}, Laid: f.Form, Every: f.Every,
		Scale: [3]int(f.Scale), Sees: family.FirstSeen}
	learnsFlow(&d.Clip.Latents.Process, levels(f.Shift), 1)
	return d
}

// learnsFlow is training by flow matching at levels of a continuous schedule, drawn evenly before its shift
// and weighted by Wan's bell, times a factor.
func learnsFlow(p *family.Process, levels noise.Levels, by float64) {
	target, _ := noise.Lookup("flow_prediction") // one of the package's own
	bell, err := noise.Weighting{Kind: "bell"}.For("flow_prediction", levels)
	if err != nil {
		panic("denoisers: the bell of flow matching: " + err.Error())
	}
	p.Levels, p.Times, p.Target, p.Loss = levels, noise.Times{Kind: "uniform"}, target, kernels.SquaredLoss
	p.Weight = func(l noise.Level) float32 { return float32(by) * bell(l) }
}

// sinusoids are cosines and then sines of a time, in float64, as Wan's own code has them.
func sinusoids(t float64, width int) []float32 {
	out, half := make([]float32, width), width/2
	for i := range half {
		at := t * math.Pow(10000, -float64(i)/float64(half))
		out[i], out[half+i] = float32(math.Cos(at)), float32(math.Sin(at))
	}
	return out
}

// FastWAM, as lerobot has it: Wan 2.2's blocks for a clip and narrower ones for actions share attention,
// layer by layer. The first frame sees itself, later ones the clip, and actions the first frame and each
// other, so that a policy that acts reads the first frame once and denoises actions alone.
var _ = family.Register(family.Family{ModelType: "fastwam", HF: fastwamFile(),
	Build: func(c configs.Model) *family.Model { return newFastWAM(c).model() }})

// The beginnings of names of parameters in lerobot's files.
const (
	wamVideo  = "model.mot.mixtures.video."
	wamAction = "model.mot.mixtures.action."
	wamLayers = "model.mot.layers."
)

// fastwam is a model of the family.
type fastwam struct {
	c configs.Model
	k denoisers.Keys
	e piKeys
	d *family.Denoiser
}

func newFastWAM(c configs.Model) fastwam {
	w := fastwam{c, denoisers.Shared.Of(c), piPart.Of(c), clipStream(c)}
	w.d.EncodersKey, w.d.Pipeline, w.d.Clip.Sorted = "text_encoder_model_id", "FastWAM", true
	w.d.Prompt = func(task string) string { return wamPrompt + task }
	w.d.Clip.Foreign = w.foreign()
	return w
}

// foreign is what lerobot's FastWAM refuses and this one does not.
func (w fastwam) foreign() (out []string) {
	f := w.d.Clip
	if n := f.Size[0] - 1; n > 0 && w.d.Chunk%n != 0 {
		out = append(out, fmt.Sprintf("chunk_size %d is no multiple of the %d frames behind the first", w.d.Chunk, n))
	}
	if w.c.Heads > 0 && w.c.HeadDim != w.c.Hidden/w.c.Heads {
		out = append(out, fmt.Sprintf("head_dim %d is not hidden_size %d over %d heads", w.c.HeadDim, w.c.Hidden,
			w.c.Heads))
	}
	if f.Scale != [3]int{4, 16, 16} {
		out = append(out, fmt.Sprintf("video_scale %v is that of another autoencoder than its own", f.Scale))
	}
	return out
}

// wamPrompt is what stands before a task.
const wamPrompt = "A video recorded from a robot's point of view executing the following instruction: "

func (w fastwam) model() *family.Model {
	m := denoisers.NewModel(w.c, w.d)
	m.Modalities = append(m.Modalities, w.d.Clip.Modality(w.d))
	m.Source, m.Initial = w.source, w.initial
	m.Other = func(name string) family.Source { // of files before lerobot gave layers blocks of both streams
		s := w.source(name)
		if rest, ok := strings.CutPrefix(s.Name, wamLayers); ok {
			layer, rest, _ := strings.Cut(rest, ".blocks.")
			stream, rest, _ := strings.Cut(rest, ".")
			s.Name = "model.mot.mixtures." + stream + ".blocks." + layer + "." + rest
		}
		return s
	}
	wide, narrow := w.c.Hidden, w.e.Expert
	m.Ports = map[string]family.Port{"x": {Width: narrow},
		"mod":       {Width: 6 * narrow, Rows: family.Levels, Whole: true},
		"text":      {Width: narrow, Rows: family.ToldRows, Whole: true},
		"clip":      {Width: wide, Rows: family.ClipRows, Whole: true},
		"clip_temb": {Width: wide, Rows: family.ClipLevels, Whole: true},
		"clip_mod":  {Width: 6 * wide, Rows: family.ClipLevels, Whole: true},
		"clip_text": {Width: wide, Rows: family.ToldRows, Whole: true}}
	m.Add(family.Block{Name: "model.mot.mixtures", Weight: 0.1, Record: w.embed,
		Gives: []string{"x", "mod", "text", "clip", "clip_temb", "clip_mod", "clip_text"}})
	for i := range w.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("%s%d", wamLayers, i), Takes: []string{"x", "mod", "text",
			"clip", "clip_mod", "clip_text"}, Gives: []string{"x", "clip"}, Recompute: true, Weight: 1,
			Record: func(r *block.Rec, env map[string]*grad.Value) { w.layer(r, i, env) }})
	}
	m.Add(family.Block{Name: "model.mot.mixtures.head", Takes: []string{"x", "clip", "clip_temb"},
		Weight: 0.1, Record: w.head})
	return m
}

// embed makes rows of the noisy clip and of noisy actions, and of their levels, and of the caption and the
// robot's state behind it, what every layer reads.
func (w fastwam) embed(r *block.Rec, env map[string]*grad.Value) {
	t, whole, texts := r.T, block.LinearOpts{Bias: true, Rep: true}, w.k.Text
	state := r.Linear("model.proprio_encoder", t.Cast(w.d.State(r)), texts, w.d.Sight.State, whole)
	told, _ := w.d.Told(r, w.d.Captions(r, env), state)
	stream := func(name string, width int, features *grad.Value) (temb, mod, text *grad.Value) {
		h := r.Linear(name+"text_embedding.0", told, width, texts, whole)
		text = r.Linear(name+"text_embedding.2", t.Act(h, kernels.GELUTanh), width, width, whole)
		h = r.Linear(name+"time_embedding.0", features, width, w.k.Freq, whole)
		temb = r.Linear(name+"time_embedding.2", t.Act(h, kernels.SiLU), width, width, whole)
		mod = r.Linear(name+"time_projection.1", t.Act(temb, kernels.SiLU), 6*width, width, whole)
		return temb, mod, text
	}
	wide, narrow, f := w.c.Hidden, w.e.Expert, w.d.Clip
	env["clip_temb"], env["clip_mod"], env["clip_text"] = stream(wamVideo, wide, f.Features(r, w.k.Freq))
	env["clip"] = r.Linear(wamVideo+"patch_embedding", f.Noisy(r), wide, f.Latents.Width(), whole)
	_, env["mod"], env["text"] = stream(wamAction, narrow, t.Cast(t.Data("dif.feature", tensor.F32,
		family.Levels(r.Shape), w.k.Freq)))
	env["x"] = t.Place("residual", r.Linear(wamAction+"action_encoder", w.d.Noisy(r), narrow, w.d.Width(), whole))
}

// wamStream is what the clip and the actions are in a layer, each.
type wamStream struct {
	name         string
	width, inter int
	x, text      *grad.Value
	mod          *grad.Value // [levels 6·width] with the layer's own
	at           *grad.Value // the level of each row
	place        string      // of its rows: those of actions may be shared out
	cu, told     *grad.Value // borders of samples among its rows, and of what these are told
}

// layer is layer i of both streams.
func (w fastwam) layer(r *block.Rec, i int, env map[string]*grad.Value) {
	t, f, n := r.T, w.d.Clip, w.c.HeadDim
	name := fmt.Sprintf("%s%d.blocks.", wamLayers, i)
	clip := &wamStream{name: name + "video.", width: w.c.Hidden, inter: w.c.Intermediate, x: env["clip"],
		text: env["clip_text"], at: f.Level(r), cu: f.Cu(r), told: w.d.ToldEach(r)}
	x := &wamStream{name: name + "action.", width: w.e.Expert, inter: w.e.ExpertInter, x: env["x"],
		text: env["text"], at: w.d.Level(r), place: "residual", cu: r.Cu(), told: w.d.ToldCu(r)}
	clip.mod = denoisers.Shift(r, clip.name+"modulation", env["clip_mod"], 6, clip.width)
	x.mod = denoisers.Shift(r, x.name+"modulation", env["mod"], 6, x.width)
	qc, kc, vc := w.heads(r, clip)
	qx, kx, vx := w.heads(r, x)
	hw := 2 * (n / 6)
	cos, sin := f.Turned(r, w.c.RopeTheta, [3]int{n - 2*hw, hw, hw})
	qc, kc = t.Rope(qc, cos, sin, true), t.Rope(kc, cos, sin, true)
	cos, sin = w.d.Turned(r, "dif.pos", r.Shape.Rows, w.c.RopeTheta, [3]int{n, 0, 0})
	qx, kx = t.Rope(qx, cos, sin, true), t.Rope(kx, cos, sin, true)

	k, cuQ, cuK := f.Own(r, kc)
	v, _, _ := f.Own(r, vc)
	w.behind(r, clip, t.Attention(qc, k, v, cuQ, cuK, w.scores(false)))
	k, cuK = f.Together(r, kc, kx)
	v, _ = f.Together(r, vc, vx)
	w.behind(r, x, t.Attention(qx, k, v, r.Cu(), cuK, w.scores(true)))
	env["clip"], env["x"] = clip.x, x.x
}

func (w fastwam) scores(actions bool) grad.AttentionConfig {
	return grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(w.c.HeadDim)), Tokens: actions}
}

// part is one of the six vectors that shift, scale and gate a stream.
func (s *wamStream) part(r *block.Rec, k int) *grad.Value {
	return r.T.Columns(s.mod, k*s.width, s.width)
}

// project is a projection of rows to heads, normed over all heads together where norm is not "".
func (w fastwam) project(r *block.Rec, s *wamStream, of *grad.Value, part, norm string) *grad.Value {
	all, n := w.c.Heads*w.c.HeadDim, w.c.HeadDim
	h := r.Linear(s.name+part, of, all, s.width, block.LinearOpts{Bias: true, Unit: n})
	if norm != "" {
		h = r.T.Like(r.Norm(s.name+norm, h, all, w.c.NormEps), h)
	}
	return r.T.Heads(h, n)
}

// heads are the queries, keys and values of a stream for the attention that both share.
func (w fastwam) heads(r *block.Rec, s *wamStream) (q, k, v *grad.Value) {
	h := r.T.Modulate(s.x, s.part(r, 1), s.part(r, 0), s.at, denoisers.PlainNorm(w.c.NormEps))
	return w.project(r, s, h, "self_attn.q", "self_attn.norm_q"),
		w.project(r, s, h, "self_attn.k", "self_attn.norm_k"), w.project(r, s, h, "self_attn.v", "")
}

// out is what a stream's rows get of heads of attention.
func (w fastwam) out(r *block.Rec, s *wamStream, name string, heads *grad.Value) *grad.Value {
	return r.T.Place(s.place, r.Linear(s.name+name, r.T.Flat(heads), s.width, w.c.Heads*w.c.HeadDim,
		block.LinearOpts{Bias: true, Row: true, Unit: w.c.HeadDim}))
}

// behind is the rest of a stream's layer behind attention: what it is told, and an MLP.
func (w fastwam) behind(r *block.Rec, s *wamStream, heads *grad.Value) {
	t := r.T
	s.x = t.Gate(s.x, w.out(r, s, "self_attn.o", heads), s.part(r, 2), s.at)
	h := r.LayerNorm(s.name+"norm3", s.x, s.width, w.c.NormEps)
	q := w.project(r, s, h, "cross_attn.q", "cross_attn.norm_q")
	k := w.project(r, s, s.text, "cross_attn.k", "cross_attn.norm_k")
	v := w.project(r, s, s.text, "cross_attn.v", "")
	o := t.Attention(q, k, v, s.cu, s.told, w.scores(s.place != ""))
	s.x = t.Place(s.place, t.Add(s.x, w.out(r, s, "cross_attn.o", o)))
	h = t.Modulate(s.x, s.part(r, 4), s.part(r, 3), s.at, denoisers.PlainNorm(w.c.NormEps))
	h = r.Linear(s.name+"ffn.0", h, s.inter, s.width, block.LinearOpts{Bias: true})
	h = r.Linear(s.name+"ffn.2", t.Act(h, kernels.GELUTanh), s.width, s.inter, block.LinearOpts{Bias: true, Row: true})
	s.x = t.Gate(s.x, t.Place(s.place, h), s.part(r, 5), s.at)
}

// head is the numbers of each action and, where the model learns, those of each token of the clip.
func (w fastwam) head(r *block.Rec, env map[string]*grad.Value) {
	t, d, f, whole := r.T, w.c.Hidden, w.d.Clip, block.LinearOpts{Bias: true, Rep: true}
	if !r.Logits {
		mod := denoisers.Shift(r, wamVideo+"head.modulation", t.Concat(1, env["clip_temb"], env["clip_temb"]), 2, d)
		h := t.Modulate(env["clip"], t.Columns(mod, d, d), t.Columns(mod, 0, d), f.Level(r),
			denoisers.PlainNorm(w.c.NormEps))
		f.Predicted(r, r.Linear(wamVideo+"head.head", h, f.Latents.Width(), d, whole))
	}
	w.d.Predicted(r, env, r.Linear(wamAction+"head", env["x"], w.d.Width(), w.e.Expert, whole))
}

// source says where parameters lie in lerobot's files. A token's numbers are read with the channel varying
// slowest and given with the channel varying fastest; here both are as they are read.
func (w fastwam) source(name string) family.Source {
	s, latents := family.Source{Name: name}, w.d.Clip.Latents
	switch {
	case name == wamVideo+"patch_embedding.weight":
		s.Tail = []int{latents.Channels, latents.Patch[0], latents.Patch[1], latents.Patch[2]}
	case strings.HasSuffix(name, "modulation"):
		s.Lead = 1
	case strings.HasPrefix(name, wamVideo+"head.head."):
		s.Rows = denoisers.Fastest(latents)
	}
	return s
}

// initial begins a model that gives nothing, whose layers pass their rows on: as in DiT (arXiv:2212.09748, §3.2).
func (w fastwam) initial(name string) family.Start {
	if strings.HasSuffix(name, "modulation") {
		width := w.c.Hidden
		if strings.Contains(name, ".action.") {
			width = w.e.Expert
		}
		return family.Start{Std: 1 / math.Sqrt(float64(width))}
	}
	return denoisers.Zeroed(name, wamVideo+"head.head.", wamAction+"head.", "time_projection.")
}
