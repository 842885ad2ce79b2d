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

// DreamZero, as NVIDIA's and LoongForge's code have it: Wan's blocks of image to video, causal over blocks of frames,
// with rows of actions and of states among those of the clip. Both are denoised together.
var _ = family.Register(family.Family{ModelType: "dreamzero", HF: dreamFile(),
	Build: func(c configs.Model) *family.Model { return newDream(c).model() }})

// dreamKeys are the keys that DreamZero alone has.
type dreamKeys struct {
	Frames int     `key:"block_frames" default:"2" min:"1" max:"1024" class:"fixed" unit:"frames" doc:"Frames of latents of a block, which have a level of noise together; the first frame of a clip is one by itself."`
	Window int     `key:"block_window" default:"9" min:"0" max:"65536" class:"fixed" unit:"frames" doc:"Frames at most, with its own, that a block as it was sees, beside the first; 0 for all before it."`
	Inner  int     `key:"adapter_width" default:"1024" min:"1" max:"65536" class:"fixed" doc:"Width of the hidden layers that read states and give actions."`
	Given  int     `key:"video_given" default:"0" min:"0" max:"65536" class:"fixed" doc:"Channels that are read beside the noisy latents of each frame: marks of the frame that is given, and its latents; 0 for none."`
	Told   string  `key:"told_as" default:"task" oneof:"task|libero|droid|agibot|yam" class:"fixed" doc:"How a policy of blocks is told a task: task as it is, or in small letters within what LoongForge's readers of these robots say of their views."`
	Guide  float64 `key:"block_guidance" default:"5" min:"0" max:"1000" class:"fixed" doc:"How far frames that are drawn are led away from what a caption of faults would draw; 1 is not."`
}

var dreamPart = configs.Declare("dreamzero", configs.Rules[dreamKeys]{Check: func(m configs.Model,
	k dreamKeys, at configs.Report) {
	f := clipStreamPart.Of(m)
	if !m.Has("block_frames") || len(f.Scale) != 3 || min(f.Scale[0], k.Frames) < 1 {
		return
	}
	frames, n := (f.Frames-1)/f.Scale[0], policyPart.Of(m).Chunk
	switch {
	case frames < k.Frames || frames%k.Frames != 0:
		at("video_frames", fmt.Sprintf("%d are %d frames of latents behind the first, no whole blocks of %d",
			f.Frames, frames, k.Frames), fmt.Sprintf("try %d", f.Scale[0]*k.Frames*max(1, frames/k.Frames)+1))
	case n%(frames/k.Frames) != 0:
		at("chunk_size", fmt.Sprintf("%d actions are no whole number for each of %d blocks", n, frames/k.Frames), "")
	case k.Given > 0 && k.Given <= f.Channels:
		at("video_given", fmt.Sprintf("%d, and beside the %d latents of a frame there is a mark at least",
			k.Given, f.Channels), "")
	case k.Window > 0 && k.Window < k.Frames:
		at("block_window", fmt.Sprintf("%d frames, and a block has %d", k.Window, k.Frames), "")
	case denoisers.WanPart.Of(m).Image == 0:
		at("image_dim", "is not given, and the model reads features of the frame that is seen", "set 1280")
	case m.HeadDim%2 != 0:
		at("head_dim", fmt.Sprintf("%d is odd, and its numbers turn in pairs", m.HeadDim), "")
	}
}})

// dreamTold is what LoongForge's reader says of the views of a robot.
var dreamTold = map[string]string{
	"libero": "two horizontal views: the left view shows the exterior camera and the right view shows the " +
		"wrist camera.",
	"droid": "three views: The top view shows the camera view from the robot's wrist, the bottom-left view " +
		"shows the camera view from the left exterior camera, and the bottom-right view shows the camera view " +
		"from the right exterior camera. During training, one of the two bottom exterior views may be a black " +
		"screen (dropped view).",
	"agibot": "four views: The top-left view shows the camera view from the robot's head, the top-right view " +
		"shows the camera view from the right hand, the bottom-left view shows the camera view from the left " +
		"hand, and the bottom-right view is a black screen (inactive view).",
	"yam": "four views: The top-left view shows the top camera, the top-right view shows the right camera, " +
		"the bottom-left view shows the left camera, and the bottom-right view is a black screen."}

// prompt is what the model is told of a task.
func (k dreamKeys) prompt(task string) string {
	if k.Told == "task" {
		return task
	}
	task = strings.ToLower(task)
	return "A multi-view video shows that a robot " + task + " The video is split into " + dreamTold[k.Told] +
		" The robot " + task
}

// dreamAway is what frames that are drawn are led away from.
const dreamAway = "Vibrant colors, overexposed, static, blurry details, text, subtitles, style, artwork, " +
	"painting, image, still, grayscale, dull, worst quality, low quality, JPEG artifacts, ugly, mutilated, " +
	"extra fingers, bad hands, bad face, deformed, disfigured, mutated limbs, fused fingers, stagnant " +
	"image, cluttered background, three legs, many people in the background, walking backwards."

// dreamImage is the key that names the folder of CLIP's encoder.
const dreamImage = "image_encoder_pretrained_path"

// dreamName begins the names of parameters in checkpoints.
const dreamName = "action_head.model."

// dream is a model of the family.
type dream struct {
	c configs.Model
	k denoisers.Keys
	o dreamKeys
	d *family.Denoiser
}

func newDream(c configs.Model) dream {
	f, image := clipStreamPart.Of(c), denoisers.WanPart.Of(c)
	w := dream{c, denoisers.Shared.Of(c), dreamPart.Of(c), clipStream(c)}
	d, l := w.d, w.d.Clip.Latents
	d.Feature, d.FeatureWidth, d.Sight.Token, d.Broad = nil, 0, false, true
	d.Parts = max(1, (d.Clip.Grid()[0]-1)/max(1, w.o.Frames))
	d.Images, d.ImageRows = image.Image, image.Pictures
	d.Prompt = w.o.prompt
	d.EncodersKey, d.CamerasKey = "wan_pretrained_path", "cameras"
	d.ImageKey, d.Clip.Foreign = dreamImage, []string{"it has none of this kind"}
	d.At = func(grid [3]int) (out []int32) {
		for k := range grid[0] * grid[1] {
			out = append(out, int32(k), 0, 0)
		}
		return out
	}
	d.Learns = func(p *family.Process) { learnsTable(p, f.Shift, f.ByAction) }
	learnsTable(&l.Process, f.Shift, 1)
	if w.o.Given > 0 {
		l.Given, l.Masks = w.o.Given, w.o.Given-f.Channels
	}
	d.Clip.Sees, d.Clip.Acting, d.Clip.Guide = nil, f.Acting, w.o.Guide
	d.Clip.Away = dreamAway
	d.Clip.Blocks = &family.Blocks{Frames: w.o.Frames, Window: w.o.Window}
	return w
}

func (w dream) model() *family.Model {
	m := denoisers.NewModel(w.c, w.d)
	m.Modalities = append(m.Modalities, w.d.Clip.Modality(w.d))
	m.Source, m.Initial = w.source, w.initial
	m.Beside = func(name string) bool { // frozen encoders, which LoongForge's checkpoints may have
		part, _, _ := strings.Cut(strings.TrimPrefix(name, "action_head."), ".")
		return part == "vae" || part == "text_encoder" || part == "image_encoder"
	}
	h := w.c.Hidden
	m.Ports = map[string]family.Port{"x": {Width: h},
		"mod":       {Width: 6 * h, Rows: w.d.LevelRows, Whole: true},
		"text":      {Width: h, Rows: family.Captions, Whole: true},
		"image":     {Width: h, Rows: w.d.PictureRows, Whole: true},
		"state":     {Width: h, Rows: w.d.StateRows, Whole: true},
		"clip":      {Width: h, Rows: family.ClipRows, Whole: true},
		"clip_temb": {Width: h, Rows: w.d.Clip.RollLevels, Whole: true},
		"clip_mod":  {Width: 6 * h, Rows: w.d.Clip.RollLevels, Whole: true}}
	all := []string{"x", "state", "clip", "mod", "clip_mod", "text", "image"}
	m.Add(family.Block{Name: dreamName + "embed", Weight: 0.1, Record: w.embed,
		Gives: append([]string{"clip_temb"}, all...)})
	for i := range w.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("%sblocks.%d", dreamName, i), Takes: all, Gives: all[:3], Recompute: true,
			Weight: 1, Record: func(r *block.Rec, env map[string]*grad.Value) { w.layer(r, i, env) }})
	}
	m.Add(family.Block{Name: dreamName + "head", Takes: []string{"x", "clip", "clip_temb"}, Weight: 0.1,
		Record: w.head})
	return m
}

// embed makes rows of noisy and of clean latents, of actions and of states, and of levels, the caption
// and the frame that is seen what every layer reads.
func (w dream) embed(r *block.Rec, env map[string]*grad.Value) {
	t, h, f, whole := r.T, w.c.Hidden, w.d.Clip, block.LinearOpts{Bias: true, Rep: true}
	line := func(name string, x *grad.Value, out, in int) *grad.Value {
		return r.Linear(dreamName+name, x, out, in, whole)
	}
	times := func(of string, n int) (temb, mod *grad.Value) {
		x := t.Cast(t.Sinusoids(t.Data(of, tensor.F32, n), t.Const("dif.freq", grad.Frequencies(w.k.Freq/2,
			10000, 0)), 1, true))
		temb = line("time_embedding.2", t.Act(line("time_embedding.0", x, h, w.k.Freq), kernels.SiLU), h, h)
		return temb, line("time_projection.1", t.Act(temb, kernels.SiLU), 6*h, h)
	}
	env["clip_temb"], env["clip_mod"] = times("clip.time", f.RollLevels(r.Shape))
	_, env["mod"] = times("dif.time", w.d.LevelRows(r.Shape))
	x := t.Act(line("text_embedding.0", w.d.Captions(r, env), h, w.k.Text), kernels.GELUTanh)
	env["text"] = line("text_embedding.2", x, h, h)
	x, _ = w.d.Pictures(r)
	n := w.d.Images
	x = line("img_emb.proj.1", r.LayerNorm(dreamName+"img_emb.proj.0", x, n, 1e-5), n, n)
	x = line("img_emb.proj.3", t.Act(x, kernels.GELU), h, n)
	env["image"] = r.LayerNorm(dreamName+"img_emb.proj.4", x, h, 1e-5)
	env["clip"] = line("patch_embedding", f.Noisy(r), h, f.Latents.Width()+f.Latents.GivenWidth())

	states, _ := w.d.States(r)
	x = t.Act(line("state_encoder.layer1", t.Cast(states), w.o.Inner, w.d.Sight.State), kernels.ReLU)
	env["state"] = line("state_encoder.layer2", x, h, w.o.Inner)
	wave := t.Sinusoids(t.Data("dif.time", tensor.F32, w.d.LevelRows(r.Shape)), t.Const("dream.freq",
		grad.Frequencies(h/2, 10000, 0)), 1, false)
	wave = t.OwnTokens(t.Take(t.Cast(wave), w.d.Level(r)))
	x = t.Concat(1, line("action_encoder.W1", w.d.Noisy(r), h, w.d.Width()), wave)
	x = line("action_encoder.W3", t.Act(line("action_encoder.W2", x, h, 2*h), kernels.SiLU), h, h)
	env["x"] = t.Place("residual", x)
}

// dreamStream is what rows of a kind are in a layer: the clip's, states, and actions.
type dreamStream struct {
	name       string
	x, mod, at *grad.Value
	place      string      // of its rows: those of actions may be shared out
	cu         *grad.Value // borders of samples among its rows
	told, seen *grad.Value // and of their captions and of features of what they see
	pos        string
	rows       int
	axes       [3]int // numbers of a head that turn by each axis
	q, k, v    *grad.Value
}

// streams are those of layer i, in the order of keys.
func (w dream) streams(r *block.Rec, at string, env map[string]*grad.Value) []*dreamStream {
	t, f, n, levels := r.T, w.d.Clip, w.c.HeadDim, family.Levels(r.Shape)
	told, hw := t.Data("clip.text.cu", tensor.I32, levels+1), 2*(n/6)
	seen := borders(r, "dream.image.cu", w.d.ImageRows)
	mod := denoisers.Shift(r, at+".modulation", env["mod"], 6, w.c.Hidden)
	_, states := w.d.States(r)
	_, pictures := w.d.Pictures(r)
	return []*dreamStream{{name: "clip", at: f.Level(r), cu: f.Cu(r), told: told, seen: seen, pos: "clip.pos",
		mod:  denoisers.Shift(r, at+".modulation", env["clip_mod"], 6, w.c.Hidden),
		rows: family.ClipRows(r.Shape), axes: [3]int{n - 2*hw, hw, hw}},
		{name: "state", mod: mod, at: states, told: told, seen: seen, pos: "clip.state.pos",
			cu: t.Data("clip.state.cu", tensor.I32, levels+1), rows: w.d.StateRows(r.Shape), axes: [3]int{n, 0, 0}},
		{name: "x", mod: mod, at: w.d.Level(r), place: "residual", cu: r.Cu(), told: w.d.TextCu(r),
			seen: pictures, pos: "dif.pos", rows: r.Shape.Rows, axes: [3]int{n, 0, 0}}}
}

// layer is layer i of all rows.
func (w dream) layer(r *block.Rec, i int, env map[string]*grad.Value) {
	t, at := r.T, fmt.Sprintf("%sblocks.%d", dreamName, i)
	all := w.streams(r, at, env)
	var keys, values []*grad.Value
	for _, s := range all {
		s.x = env[s.name]
		h := t.Modulate(s.x, w.part(r, s, 1), w.part(r, s, 0), s.at, denoisers.PlainNorm(w.c.NormEps))
		s.q, s.k = projected(r, w.c, at+".self_attn", h, ".q", ".norm_q"), projected(r, w.c, at+".self_attn", h, ".k", ".norm_k")
		s.v = projected(r, w.c, at+".self_attn", h, ".v", "")
		cos, sin := w.d.Turned(r, s.pos, s.rows, w.c.RopeTheta, s.axes)
		s.q, s.k = t.Rope(s.q, cos, sin, true), t.Rope(s.k, cos, sin, true)
		keys, values = append(keys, s.k), append(values, s.v)
	}
	for _, s := range all {
		k, cuQ, cuK := w.d.SeenBlocks(r, s.name, keys...)
		v, _, _ := w.d.SeenBlocks(r, s.name, values...)
		w.behind(r, at, s, t.Attention(s.q, k, v, cuQ, cuK, w.scores(s)), env)
		env[s.name] = s.x
	}
}

func (w dream) scores(s *dreamStream) grad.AttentionConfig {
	return grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(w.c.HeadDim)), Tokens: s.place != ""}
}

// part is one of the six vectors that shift, scale and gate a stream.
func (w dream) part(r *block.Rec, s *dreamStream, k int) *grad.Value {
	return r.T.Columns(s.mod, k*w.c.Hidden, w.c.Hidden)
}

// behind is the rest of a stream's layer behind attention: its caption and what is seen, and an MLP.
func (w dream) behind(r *block.Rec, at string, s *dreamStream, heads *grad.Value, env map[string]*grad.Value) {
	t, d, cross := r.T, w.c.Hidden, at+".cross_attn"
	row := block.LinearOpts{Bias: true, Row: true, Unit: w.c.HeadDim}
	h := t.Place(s.place, r.Linear(at+".self_attn.o", t.Flat(heads), d, d, row))
	s.x = t.Gate(s.x, h, w.part(r, s, 2), s.at)
	if h = s.x; denoisers.WanPart.Of(w.c).CrossNorm {
		h = r.LayerNorm(at+".norm3", s.x, d, w.c.NormEps)
	}
	q := projected(r, w.c, cross, h, ".q", ".norm_q")
	k, v := projected(r, w.c, cross, env["text"], ".k", ".norm_k"), projected(r, w.c, cross, env["text"], ".v", "")
	o := t.Attention(q, k, v, s.cu, s.told, w.scores(s))
	k = projected(r, w.c, cross, env["image"], ".k_img", ".norm_k_img")
	v = projected(r, w.c, cross, env["image"], ".v_img", "")
	o = t.Add(o, t.Attention(q, k, v, s.cu, s.seen, w.scores(s)))
	s.x = t.Place(s.place, t.Add(s.x, t.Place(s.place, r.Linear(cross+".o", t.Flat(o), d, d, row))))
	h = t.Modulate(s.x, w.part(r, s, 4), w.part(r, s, 3), s.at, denoisers.PlainNorm(w.c.NormEps))
	h = r.Linear(at+".ffn.0", h, w.c.Intermediate, d, block.LinearOpts{Bias: true})
	h = r.Linear(at+".ffn.2", t.Act(h, kernels.GELUTanh), d, w.c.Intermediate, block.LinearOpts{Bias: true, Row: true})
	s.x = t.Gate(s.x, t.Place(s.place, h), w.part(r, s, 5), s.at)
}

// head is the numbers of each action and of each token of the clip.
func (w dream) head(r *block.Rec, env map[string]*grad.Value) {
	t, d, f, whole := r.T, w.c.Hidden, w.d.Clip, block.LinearOpts{Bias: true, Rep: true}
	mod := denoisers.Shift(r, dreamName+"head.modulation", t.Concat(1, env["clip_temb"], env["clip_temb"]), 2, d)
	h := t.Modulate(env["clip"], t.Columns(mod, d, d), t.Columns(mod, 0, d), f.Level(r), denoisers.PlainNorm(w.c.NormEps))
	clip := r.Linear(dreamName+"head.head", h, f.Latents.Width(), d, whole)
	if !r.Logits {
		f.Predicted(r, clip)
	}
	x := t.Act(r.Linear(dreamName+"action_decoder.layer1", env["x"], w.o.Inner, d, whole), kernels.ReLU)
	x = r.Linear(dreamName+"action_decoder.layer2", x, w.d.Width(), w.o.Inner, whole)
	w.d.Predicted(r, env, x)
	if r.Clips { // both are drawn together
		x = env["logits"]
		env["logits"] = t.Concat(0, t.View(x, x.Shape[0]*x.Shape[1]), t.View(t.Place("", clip),
			clip.Shape[0]*clip.Shape[1]))
	}
}

// source says where parameters lie in checkpoints. What reads and gives actions and states has matrices of
// each of robots there, [1 in out] for the one that all share.
func (w dream) source(name string) family.Source {
	s := family.Source{Name: name}
	for _, of := range []string{"state_encoder.", "action_encoder.", "action_decoder."} {
		rest, ok := strings.CutPrefix(name, dreamName+of)
		if !ok {
			continue
		}
		s.Lead = 1
		if part, ok := strings.CutSuffix(rest, ".weight"); ok {
			s.Name, s.Turned = dreamName+of+part+".W", true
		} else {
			s.Name = dreamName + of + strings.TrimSuffix(rest, ".bias") + ".b"
		}
	}
	switch {
	case strings.HasSuffix(name, ".modulation"):
		s.Lead = 1
	case name == dreamName+"patch_embedding.weight":
		f := w.d.Clip.Latents
		s.Tail = append([]int{f.Channels + f.Given}, f.Patch[:]...)
	case strings.HasPrefix(name, dreamName+"head.head."):
		s.Rows = denoisers.Fastest(w.d.Clip.Latents)
	}
	return s
}

// initial begins a model that gives nothing, whose layers pass their rows on, as Wan does.
func (w dream) initial(name string) family.Start {
	if strings.HasSuffix(name, ".modulation") {
		return family.Start{Std: 1 / math.Sqrt(float64(w.c.Hidden))}
	}
	return denoisers.Zeroed(name, dreamName+"head.head.", ".action_decoder.layer2.", ".time_projection.")
}
