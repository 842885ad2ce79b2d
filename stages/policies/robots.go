package policies

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/family"
)

// Robots turns frames of recordings into what a policy takes: views, a prompt with the state, and the
// actions that follow.
type Robots struct {
	D      *family.Denoiser
	Tok    *token.Tokenizer
	Begin  int32 // token that prompts begin with, -1 for none
	Chunk  int
	Size   [2]int // height and width of views in pixels
	Seed   uint64
	Policy configs.Policy
	Scale  RobotScale
	motion motion
	robot  int32                    // which of the model's robots it is that is asked about
	raw    [2]int                   // numbers of a state and of an action, as robots have them
	stats  [2]recordings.RobotStats // of states and of actions
	sets   []*robotSet              // of data.paths; nil for a policy's own folder
	colour [][2][3]float64          // mean and deviation of each camera's colours; nil for ImageNet's
	states int                      // numbers that a state has in words at least, as zeros; 0 for its own
	tell   *teller                  // of prompts that are cut; nil for nobody
	film   *filmer                  // of a policy that reads a clip, nil for another
	learnt string                   // print of the encoders that it learnt by, "" where that is not known
}

// NewRobots reads what a run says of a policy and of its recordings. The numbers of each data set are scaled
// by its own statistics, so that robots of several kinds may be learnt together: their actions may have
// unequally many numbers, and cameras that one of them lacks are left out of what the policy reads.
func NewRobots(cfg *configs.Config, d *family.Denoiser) (*Robots, error) {
	c := &cfg.Run
	x, err := newRobots(cfg, d)
	if err != nil {
		return nil, err
	}
	if len(c.Data.Paths) == 0 {
		return nil, cfg.Fault("data.paths", "no data set: the numbers of a policy are scaled by its statistics",
			"name the recordings")
	}
	if err := x.robots(cfg); err != nil {
		return nil, err
	}
	if x.film, err = newFilmer(cfg, d, true); err != nil {
		return nil, err
	}
	var cameras []string
	for i, p := range c.Data.Paths {
		set, err := x.open(cfg, p.Path)
		if err != nil {
			return nil, err
		}
		switch {
		case len(c.Policy.Robots) > 0:
			set.robot = int32(c.Policy.Robots[i])
		case d.Robots > 0:
			set.robot = int32(i)
		}
		x.sets = append(x.sets, set)
		for _, name := range set.cameras {
			if !slices.Contains(cameras, name) {
				cameras = append(cameras, name)
			}
		}
	}
	if err := x.chosen(cfg, cameras); err != nil {
		return nil, err
	}
	return x, x.ready(cfg)
}

// newRobots reads what a run says of a policy.
func newRobots(cfg *configs.Config, d *family.Denoiser) (*Robots, error) {
	c := &cfg.Run
	x := &Robots{D: d, Seed: uint64(c.Train.Seed), Policy: c.Policy, Chunk: d.Chunk, Begin: -1,
		Size: d.Sight.Seen(), motion: newMotion(&c.Policy)}
	if d.Unmasked && !c.Policy.Padding {
		return nil, cfg.Fault("policy.learn_padding",
			"false, and this model learns windows of actions whole, those behind an episode's end too", "leave it out")
	}
	if x.motion.how == "delta" && d.Executed > 0 {
		return nil, cfg.Fault("policy.actions",
			"delta, and a chunk of this model begins before the step whose state is observed", "take relative")
	}
	return x, nil
}

// robotKeys are what the section policy says of columns of recordings.
func robotKeys(p *configs.Policy) dataset.RobotKeys {
	return dataset.RobotKeys{Action: p.Action, State: p.State, FPS: p.FPS, Cameras: p.Cameras}
}

// Reads says what of recordings is read.
func (x *Robots) Reads(o *dataset.Options) {
	o.Horizon, o.Robot = x.Chunk, robotKeys(&x.Policy)
	if o.Past = x.D.Sight.Observed() - 1; x.D.Clip != nil {
		o.Later, o.Every = x.D.Clip.Size[0]-1, x.D.Clip.Every
	}
}

// Samples is the encoder of frames: a sample has a token for each action.
func (x *Robots) Samples() dataset.SampleEncoder { return robotEncoder{x.Chunk, x.film.print()} }

// robotEncoder makes samples of frames; film is the print of the encoders of a policy with a clip.
type robotEncoder struct {
	chunk int
	film  string
}

// EncodeSample implements dataset.SampleEncoder.
func (r robotEncoder) EncodeSample(d *dataset.Document) ([]dataset.Sample, error) {
	b, ok := d.Part("json")
	if !ok {
		return nil, fmt.Errorf("sample %q has no frame", d.Key)
	}
	return []dataset.Sample{{Tokens: make([]int32, r.chunk), Media: []dataset.Media{{Kind: dataset.Caption,
		Key: d.Key, Bytes: b, Spans: []dataset.Span{{From: 0, To: int32(r.chunk)}}}}}}, nil
}

// Fingerprint implements dataset.SampleEncoder.
func (r robotEncoder) Fingerprint() string {
	if r.film != "" {
		return format.HashOf("frames 1", r.chunk, r.film)
	}
	return format.HashOf("frames 1", r.chunk)
}

// Prepare is the dataset.Prepare of the model: a *learnt without its place.
func (x *Robots) Prepare(m *dataset.Media, _ int) (any, int64, error) {
	var f recordings.RobotFrame
	if err := json.Unmarshal(m.Bytes, &f); err != nil {
		return nil, 0, err
	}
	shown, err := x.shots(&f)
	if err != nil {
		return nil, 0, err
	}
	looks, err := x.looks(&f, shown)
	if err != nil {
		return nil, 0, err
	}
	scale, robot := x.of(f.Set)
	e, err := x.see(scale, f.Task, looks, x.changes())
	if err == nil && x.D.Clip != nil {
		err = x.later(e, &f, looks[0].Views, shown)
	}
	if err != nil {
		return nil, 0, err
	}
	if len(f.Actions) != x.Chunk {
		return nil, 0, fmt.Errorf("%d actions, and the model gives %d at once", len(f.Actions), x.Chunk)
	}
	actions, err := x.aims(&f, scale)
	if err != nil {
		return nil, 0, err
	}
	w := x.D.Width()
	e.X0 = make([]float32, x.Chunk*w)
	for k, a := range actions {
		if len(a) > w {
			return nil, 0, fmt.Errorf("actions of %d numbers, and the model has room for %d", len(a), w)
		}
		for i, v := range a {
			e.X0[k*w+i] = float32(v)
		}
	}
	e.Real, e.Robot = len(scale.Action.Mid), robot
	if !x.Policy.Padding || x.D.Masked {
		e.Pad, e.Lead = f.Pad, f.Lead
		if from, _ := x.given(); x.draws() {
			e.Pad = max(0, f.Pad-from)
		}
	}
	size := int64(4 * (len(e.X0) + len(e.IDs) + len(e.Views)*x.D.Sight.Patches*x.D.Sight.Pixels))
	if e.Clip != nil {
		size = int64(4 * (len(e.X0) + len(e.Clip.X0) + len(e.Text)))
	}
	if !x.changes() || x.Tok == nil {
		return &learnt{Encoded: *e}, size, nil
	}
	bare, err := x.told(f.Task, nil, present(e.Views))
	return &learnt{*e, bare}, size, err
}

// looks are what is observed in a frame, the last of them, and in the steps before it.
func (x *Robots) looks(f *recordings.RobotFrame, shown shots) (out []Look, err error) {
	for _, l := range append(f.Before, f.RobotLook) {
		views, err := x.views(&l, shown)
		if err != nil {
			return nil, err
		}
		out = append(out, Look{l.State, views})
	}
	return out, nil
}

// stillMost bounds scaled zeros that stand for actions (LoongForge's latent_lerobot_dataset.py).
const stillMost = 1.5

// aims are a frame's actions as the policy learns them, [chunk][numbers].
func (x *Robots) aims(f *recordings.RobotFrame, scale RobotScale) (out [][]float64, err error) {
	actions, err := x.motion.learn(f.State, f.Actions)
	from := 0
	if x.draws() && err == nil { // no actions lead to the frame that is seen
		from, _ = x.given()
		still := make([][]float64, from)
		for k := range still {
			still[k] = make([]float64, len(actions[0]))
		}
		actions = append(still, actions[:len(actions)-from]...)
	}
	for k := 0; k < len(actions) && err == nil; k++ {
		var a []float64
		a, err = scale.Action.Of(actions[k])
		x.bound(a)
		for i, v := range a {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("number %d of action %d is %g", i, k, v)
			}
			if k < from { // a scale that knows no zeros may throw them far, so LoongForge bounds them
				a[i] = max(-stillMost, min(v, stillMost))
			}
		}
		out = append(out, a)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.Policy.Action, err)
	}
	return out, nil
}

// learnt is a sample as it is prepared, with the tokens that it has without its state.
type learnt struct {
	family.Encoded
	bare []int32
}

// Look is what a robot observes in a step: its state and what its cameras see, nil for one that is missing.
type Look struct {
	State []float64
	Views []*media.Image
}

// See is what a policy reads of a robot: its task, and what it observes in the present step and, before
// that, in earlier ones. Where the model reads more of them the earliest stands for those that are missing,
// as in lerobot at the beginning of an episode. Actions are left open.
func (x *Robots) See(task string, looks ...Look) (*family.Encoded, error) {
	e, err := x.see(x.Scale, task, looks, false)
	if err == nil {
		e.Robot, e.Real = x.robot, len(x.Scale.Action.Mid)
	}
	if err == nil && x.D.Clip != nil {
		err = x.films(e, task, [][]*media.Image{looks[0].Views})
	}
	return e, err
}

// see is See of a robot whose numbers have a scale. Raw leaves views as planes [3 height width] from -1 to
// 1, for Robots.change.
func (x *Robots) see(scale RobotScale, task string, looks []Look, raw bool) (*family.Encoded, error) {
	v := x.D.Sight
	n := v.Observed()
	if len(looks) < 1 || len(looks) > n {
		return nil, fmt.Errorf("%d steps are observed, and the model reads %d", len(looks), n)
	}
	for len(looks) < n {
		looks = append([]Look{looks[0]}, looks...)
	}
	e := &family.Encoded{Grid: x.D.ChunkGrid()}
	if x.D.Clip == nil { // films reads them otherwise
		e.Views = make([][]float32, v.Views)
	}
	var scaled []float64
	for k, l := range looks {
		if len(l.Views) > v.Cameras() {
			return nil, fmt.Errorf("%d cameras, and the model has %d", len(l.Views), v.Cameras())
		}
		for i, p := range l.Views {
			if p == nil || e.Views == nil {
				continue
			}
			planes := x.pixels(p)
			if !raw {
				planes = x.shown(planes, i, -1, -1)
			}
			e.Views[k*v.Cameras()+i] = planes
		}
		if v.Whole() && v.State == 0 {
			continue // the model is told no state
		}
		state, err := x.motion.read(l.State)
		if err == nil {
			state, err = scale.State.Of(state)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.Policy.State, err)
		}
		scaled = append(scaled, state...)
	}
	if v.Whole() {
		for i, p := range e.Views {
			if p == nil {
				return nil, fmt.Errorf("camera %d is missing, and the model reads all of its views", i%v.Cameras()+1)
			}
		}
		e.State = x.roomy(scaled)
		return e, nil
	}
	if n := x.D.Sight.State; n > 0 { // zeros stand for numbers that the state has not
		if len(scaled) > n {
			return nil, fmt.Errorf("%s: %d numbers, and the model has room for %d", x.Policy.State, len(scaled), n)
		}
		e.State = make([]float32, n)
		for i, v := range scaled {
			e.State[i] = float32(v)
		}
	}
	var err error
	e.IDs, err = x.told(task, scaled, present(e.Views))
	return e, err
}

// pixels are those of a view, [3 side side] from -1 to 1: scaled to fit, with black around it.
func (x *Robots) pixels(p *media.Image) []float32 {
	high, wide := x.Size[0], x.Size[1]
	if p.W != wide || p.H != high {
		by := min(float64(wide)/float64(p.W), float64(high)/float64(p.H))
		w, h := max(1, int(float64(p.W)*by)), max(1, int(float64(p.H)*by))
		small, whole := p.Resize(w, h, media.Bilinear), media.NewImage(wide, high)
		clear(whole.Pix)
		if x.D.Sight.Colours { // lerobot puts what is 0 to the model around it
			for i := range whole.Pix {
				whole.Pix[i] = byte(math.Round(255 * imageMean[i%3]))
			}
		}
		left, top := (wide-w)/2, (high-h)/2
		if x.D.Sight.Corner {
			left, top = wide-w, high-h
		}
		for y := range h {
			copy(whole.Pix[3*((top+y)*wide+left):], small.Pix[3*y*w:3*(y+1)*w])
		}
		p = whole
	}
	return diffusion.Planes([]*media.Image{p}, [3]int{1, high, wide})
}

// shown is a view's pixels as the model reads them, which are written over: the part of them that lies so
// much of what is left from the top and from the left, or the middle where that is not at least 0.
func (x *Robots) shown(planes []float32, camera int, top, left float64) []float32 {
	planes = x.part(planes, top, left)
	if x.D.Sight.Whole() || x.D.Sight.Colours {
		x.coloured(planes, camera)
	}
	return x.D.Sight.Cut(planes)
}

// ImageNet's mean and deviation of each colour, of pixels from 0 to 1, which lerobot takes for those of a data set.
var imageMean, imageDeviation = [3]float64{0.485, 0.456, 0.406}, [3]float64{0.229, 0.224, 0.225}

// coloured brings pixels from -1 to 1, [3 height width], to those that a ResNet reads.
func (x *Robots) coloured(v []float32, camera int) {
	n, mean, deviation := len(v)/3, imageMean, imageDeviation
	switch {
	case x.colour != nil:
		mean, deviation = x.colour[camera][0], x.colour[camera][1]
	case x.D.Sight.Plain:
		mean, deviation = [3]float64{}, [3]float64{1, 1, 1}
	}
	for i := range v {
		v[i] = float32(((float64(v[i])+1)/2 - mean[i/n]) / (deviation[i/n] + least))
	}
}

// Fill puts a batch's frames, which the loader has prepared, into its microbatch.
func (x *Robots) Fill(mb *family.Microbatch, b *dataset.Batch) error {
	var items []family.Encoded
	for i := range b.Media {
		m := &b.Media[i]
		v, err := m.Take()
		if err != nil {
			return err
		}
		prepared := v.(*learnt)
		e := prepared.Encoded
		e.From = m.Spans[0].From
		segment := 0
		for segment+1 < len(b.CuSeqlens) && b.CuSeqlens[segment+1] <= e.From {
			segment++
		}
		e.Key = dataset.Draw(x.Seed, 0, b.SampleIDs[segment], 0, 0)
		if x.changes() {
			x.change(&e, prepared.bare)
		}
		items = append(items, e)
	}
	if err := x.D.Check(items, len(mb.IDs)); err != nil {
		return err
	}
	mb.More = family.EncodedKey.With(mb.More, items)
	return nil
}
