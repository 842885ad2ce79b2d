package policies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// filmer encodes what a policy with a clip sees and is told: views of all cameras side by side, frame by frame,
// by the autoencoder of the run, and prompts by its encoder of captions. It is used by several goroutines at once.
type filmer struct {
	*diffusion.Pictures
	told sync.Map // states of prompts, by prompt: of toldMost at most
	n    int
	mu   sync.Mutex
	tell *teller
}

// toldMost bounds the prompts whose states are remembered.
const toldMost = 256

// newFilmer opens what encodes for a policy with a clip, nil for another one. With keep latents and states
// lie in diffusion.cache.
func newFilmer(cfg *configs.Config, d *family.Denoiser, keep bool) (*filmer, error) {
	if d.Clip == nil {
		return nil, nil
	}
	c := &cfg.Run.Diffusion
	x := &filmer{Pictures: &diffusion.Pictures{D: d, Mode: true, Seed: uint64(cfg.Run.Train.Seed)}}
	var err error
	if x.Encoder, err = diffusion.OpenAutoencoder(cfg, false); err != nil {
		return nil, err
	}
	shape, err := x.Encoder.Shape(d.Clip.Size)
	if want := d.Clip.Grid(); err == nil && (shape[0] != d.Clip.Latents.Channels ||
		d.Clip.Latents.Grid(shape) != want) {
		err = fmt.Errorf("its latents of %v pixels are %v, and the model reads %d channels of %v tokens",
			d.Clip.Size, shape, d.Clip.Latents.Channels, want)
	}
	if err != nil {
		return nil, cfg.Fault("diffusion.autoencoder", err.Error(), "take the model's own autoencoder")
	}
	if !d.Worded() {
		if x.Text, err = diffusion.NewCaptionEncoder(cfg, d); err != nil {
			return nil, err
		}
	}
	if d.Images > 0 {
		if x.Look, err = diffusion.NewLooker(cfg, d); err != nil {
			return nil, err
		}
	}
	if keep && c.Cache != "off" {
		if x.Cache = c.Cache; x.Cache == "" {
			x.Cache = filepath.Join(cfg.Run.Log.Dir, "latents")
		}
		if err := os.MkdirAll(x.Cache, 0o755); err != nil {
			return nil, cfg.Fault("diffusion.cache", err.Error(), "name a folder that can be written, or off")
		}
	}
	return x, nil
}

// print changes with the encoders: "" where there are none.
func (x *filmer) print() string {
	switch {
	case x == nil:
		return ""
	case x.Text == nil: // the model reads captions itself
		return format.HashOf("film 1", x.Encoder.Fingerprint())
	}
	if x.Look != nil {
		return format.HashOf("film 1", x.Encoder.Fingerprint(), x.Text.Fingerprint(), x.Look.Print)
	}
	return format.HashOf("film 1", x.Encoder.Fingerprint(), x.Text.Fingerprint())
}

// prompt is the states of what the policy is told of a task.
func (x *filmer) prompt(task string) ([]float32, error) {
	text := x.D.Prompt(task)
	c, ok := x.Text.(*diffusion.CaptionEncoder)
	if _, known := x.told.Load(text); ok && !known && x.tell != nil {
		n, most, err := c.Length(text)
		if err != nil {
			return nil, err
		}
		x.tell.cut(text, n, most)
	}
	return x.states(text)
}

// states are those of a text.
func (x *filmer) states(text string) ([]float32, error) {
	if v, ok := x.told.Load(text); ok {
		return v.([]float32), nil
	}
	c, err := x.Caption(text)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.n++; x.n > toldMost {
		x.told.Clear()
		x.n = 1
	}
	x.told.Store(text, c.States)
	return c.States, nil
}

// clip encodes frames [cameras] one behind the other.
func (x *filmer) clip(frames [][]*media.Image) (*family.Clip, error) {
	f := x.D.Clip
	size := [3]int{len(frames), f.Size[1], f.Size[2]}
	wide := make([]*media.Image, len(frames))
	for i, views := range frames {
		wide[i] = laid(f.Laid, views, size[1], size[2])
	}
	var seen bytes.Buffer
	for _, p := range wide {
		seen.Write(p.Pix)
	}
	cameras := 1
	if f.Apart {
		cameras = len(frames[0])
	}
	key := fmt.Sprintf("latents %s %v %d %s", x.Encoder.Fingerprint(), size, cameras, diffusion.Digest(seen.Bytes()))
	v, err := x.Once(key, func() ([][]float32, error) {
		latents, err := x.latents(diffusion.Planes(wide, size), size, cameras)
		return [][]float32{latents}, err
	})
	if err != nil {
		return nil, err
	}
	c := &family.Clip{Grid: f.GridOf(len(frames))}
	shape := [4]int{f.Latents.Channels}
	for a, p := range f.Latents.Patch {
		shape[a+1] = p * c.Grid[a]
	}
	if n := c.Tokens() * f.Latents.Width(); len(v) != 1 || len(v[0]) != n {
		return nil, fmt.Errorf("what was kept of a clip is not its %d numbers", n)
	}
	if i := slices.IndexFunc(v[0], func(v float32) bool {
		return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0)
	}); i >= 0 {
		return nil, fmt.Errorf("number %d of a clip's latents is %g", i, v[0][i])
	}
	c.X0 = f.Latents.Tokens(shape, v[0])
	return c, nil
}

// latents encodes a clip [3 T H W], or as many parts of it beside each other by themselves, whose latents
// stand beside each other in turn.
func (x *filmer) latents(pixels []float32, size [3]int, parts int) ([]float32, error) {
	if parts == 1 {
		mean, _, err := x.Encoder.Encode(pixels, size)
		return mean, err
	}
	w := size[2] / parts
	one := [3]int{size[0], size[1], w}
	shape, err := x.Encoder.Shape(one)
	if err != nil {
		return nil, err
	}
	lines, wide := shape[0]*shape[1]*shape[2], shape[3]
	out := make([]float32, lines*wide*parts)
	for k := range parts {
		part := make([]float32, 0, len(pixels)/parts)
		for line := range 3 * size[0] * size[1] {
			part = append(part, pixels[line*size[2]+k*w:][:w]...)
		}
		mean, _, err := x.Encoder.Encode(part, one)
		if err != nil {
			return nil, err
		}
		for line := range lines {
			copy(out[line*wide*parts+k*wide:], mean[line*wide:(line+1)*wide])
		}
	}
	return out, nil
}

// open has a clip that is drawn before a policy acts begin with the frame that is seen, and noise of a seed behind.
func (x *filmer) open(e *family.Encoded, seed uint64) error {
	f, seen := x.D.Clip, e.Clip.X0
	switch {
	case f.Blocks != nil:
		return x.block(e, seed)
	case f.Steps == 0 && !x.D.Worded():
		return nil
	}
	c := &family.Clip{Grid: f.Grid()}
	c.X0 = make([]float32, c.Tokens()*f.Latents.Width())
	noise.Key{Sample: seed, Draw: family.DrawFilm}.Fill(c.X0, 0)
	copy(c.X0, seen)
	if e.Clip = c; x.D.Worded() {
		c.Noise = make([]float32, len(c.X0))
	} else {
		none, err := x.prompt("")
		if err != nil {
			return err
		}
		c.Known, c.Chunk, c.Window, e.None, e.Clean = 1, c.Grid[0], f.Rolls.Window[1], none, 1
	}
	clear(e.X0[:x.D.Still(e)])
	for i, w := 0, x.D.Width(); x.D.Quiet && i < len(e.X0); i++ {
		if i%w >= e.Real { // of the robot that asks, which may have fewer than others
			e.X0[i] = 0
		}
	}
	return nil
}

// sideBySide are views of as many cameras from the left to the right of a picture, each brought to its part
// of it without regard to its own shape, as lerobot's FastWAM does.
func sideBySide(views []*media.Image, high, wide int) *media.Image {
	out, w := media.NewImage(wide, high), wide/len(views)
	for i, p := range views {
		if p.W != w || p.H != high {
			p = p.Resize(w, high, media.Bilinear)
		}
		for y := range high {
			copy(out.Pix[3*(y*wide+i*w):], p.Pix[3*y*w:3*(y+1)*w])
		}
	}
	return out
}

// chosen takes the cameras of all data sets for those of the policy where the run names none, and holds what
// it names to what a policy that reads all of them needs.
func (x *Robots) chosen(cfg *configs.Config, all []string) error {
	named := len(x.Policy.Cameras) > 0
	if !named {
		x.Policy.Cameras = all
	}
	if x.D.Clip == nil {
		return nil
	}
	if sorted := slices.Sorted(slices.Values(x.Policy.Cameras)); x.D.Clip.Sorted {
		if named && !slices.Equal(sorted, x.Policy.Cameras) {
			return cfg.Fault("policy.cameras", fmt.Sprintf("%v, and this model's views stand in the order of "+
				"their names", x.Policy.Cameras), fmt.Sprintf("name them as %v", sorted))
		}
		x.Policy.Cameras = sorted
	}
	if form := x.D.Clip.Laid; !named && form != "row" && form != "" {
		return cfg.Fault("policy.cameras", fmt.Sprintf("is not given, and view_form: %s says by their order "+
			"where each of them is seen", form), fmt.Sprintf("name them in that order: there are %v", all))
	}
	for _, set := range x.sets {
		for _, c := range x.Policy.Cameras {
			if !slices.Contains(set.cameras, c) {
				return cfg.Fault("policy.cameras", fmt.Sprintf("%s has no camera %q, and the model reads all of "+
					"its views: it has %v", set.name, c, set.cameras), "name cameras that all data sets have")
			}
		}
	}
	return nil
}

// ordered has the cameras of a policy's folder stand as its model was taught: by their names, or as its
// config.json has them.
func (x *Robots) ordered(dir string) error {
	switch {
	case x.D.Clip == nil:
		return nil
	case x.D.Clip.Sorted:
		slices.Sort(x.Policy.Cameras)
		return nil
	case x.D.CamerasKey == "":
		return nil
	}
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return err
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(b, &config); err != nil {
		return fmt.Errorf("config.json: %w", err)
	}
	var order []string
	if config[x.D.CamerasKey] == nil {
		return nil
	}
	if err := json.Unmarshal(config[x.D.CamerasKey], &order); err != nil {
		return fmt.Errorf("config.json: %s: %w", x.D.CamerasKey, err)
	}
	if !slices.Equal(slices.Sorted(slices.Values(order)), slices.Sorted(slices.Values(x.Policy.Cameras))) {
		return fmt.Errorf("config.json: %s names %v, and %s.json %v", x.D.CamerasKey, order, preprocessor,
			x.Policy.Cameras)
	}
	x.Policy.Cameras = order
	return nil
}

// films puts what a policy with a clip sees into e: views of the present step and of those behind it.
func (x *Robots) films(e *family.Encoded, task string, frames [][]*media.Image) (err error) {
	for _, views := range frames {
		if n := x.D.Sight.Cameras(); len(views) != n {
			return fmt.Errorf("%d cameras, and the model has %d", len(views), n)
		}
		if i := slices.Index(views, nil); i >= 0 {
			return fmt.Errorf("camera %s is missing, and the model reads all of its views", x.Policy.Cameras[i])
		}
	}
	if e.Clip, err = x.film.clip(frames); err != nil {
		return err
	}
	n := x.D.Clip.Size[0]
	if b := x.D.Clip.Blocks; b != nil && len(frames) == 1 { // a block is drawn behind it
		n = 1 + b.Frames*x.D.Clip.Scale[0]
	}
	if err := x.film.first(e, frames[0], n); err != nil {
		return err
	}
	if x.D.Worded() {
		if e.IDs, err = x.told(task, nil, 0); err == nil && len(e.IDs) >= x.D.PromptMost {
			err = fmt.Errorf("the task has more than the %d tokens that the model reads of it, with what is said "+
				"behind it", x.D.PromptMost-1)
		}
	} else {
		e.Text, err = x.film.prompt(task)
	}
	return err
}

// later adds to a sample that is learnt what the cameras see after it.
func (x *Robots) later(e *family.Encoded, f *recordings.RobotFrame, now []*media.Image, shown shots) error {
	frames := [][]*media.Image{now}
	for i := range f.Later {
		views, err := x.views(&f.Later[i], shown)
		if err != nil {
			return err
		}
		frames = append(frames, views)
	}
	if err := x.films(e, f.Task, frames); err != nil {
		return err
	}
	if err := x.starts(e, f); err != nil {
		return err
	}
	if c := x.D.Clip; !x.Policy.Padding { // frames of tokens that lie behind the episode as a whole
		e.Clip.Pad = f.LaterPad / (c.Scale[0] * c.Latents.Patch[0])
	}
	return nil
}
