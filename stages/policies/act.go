package policies

import (
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// Actor is a trained policy that is asked what to do. It is not safe for concurrent use.
// In the words of the field: action chunk.
type Actor struct {
	x     *Robots
	pen   *TokenPolicy  // of a policy that writes its actions, nil for one that gives numbers
	guide *HostedPolicy // of a policy that a vision-language model hosts, nil for another
	gen   *sample.Generator
	b     kernels.Backend
	Steps int // from noise to actions: of Euler, or of the policy's own scheduler
}

// Seen is what a robot is asked about: its task, its state and what its cameras see, nil for one that is missing.
type Seen struct {
	Task   string
	State  []float64
	Views  []*media.Image
	Seed   uint64 // of the noise that its actions begin with
	Before []Look // of earlier steps, the earliest first, for a policy that reads several
}

// NewActor makes a policy ready to act; Close gives it back.
func NewActor(m *trained.Trained) (*Actor, error) {
	if !Acts(m) {
		return nil, exit.Usagef("the model is no policy of a robot")
	}
	d := m.Model.Denoiser
	a := &Actor{}
	var err error
	switch {
	case d == nil:
		if a.pen, err = NewTokenPolicy(acting(m), m.Model, m.Tokenizer, m.TokenizerConfig, m.Saved, io.Discard); err == nil {
			a.x, d = a.pen.Robots, a.pen.D
		}
	case d.Hosted && acting(m) == nil:
		return nil, exit.Usagef("%s does not say for which robots its model acts: open the checkpoint of a run, or "+
			"its export, which has %s", m.Dir, scribeName)
	case d.Hosted:
		if a.guide, err = NewHostedPolicy(acting(m), m.Model, m.Tokenizer, m.TokenizerConfig, m.Saved, io.Discard); err == nil {
			a.x = a.guide.Robots
		}
	case len(m.Cfg.Run.Data.Paths) == 0:
		a.x, err = robotsOf(m.Dir, m.Cfg, d)
	default:
		a.x, err = robotsOfRun(m.Cfg, d, m.Saved)
	}
	if err == nil {
		err = filmed(m, a.x)
	}
	if err != nil {
		return nil, err
	}
	b, err := m.Backend()
	if err != nil {
		return nil, err
	}
	gen, err := sample.New(m.Model, m.Lora, tensor.F32, b, tensor.NewPool("act", 0), m.Fill)
	if err != nil {
		kernels.Close(b)
		return nil, err
	}
	a.gen, a.b, a.Steps = gen, b, eulerSteps
	a.keep()
	if d.Steps > 0 {
		a.Steps = d.Steps
	}
	return a, nil
}

// keptSmall is how many numbers a policy has at most whose weights are all kept as products read them.
const keptSmall = 1 << 28

// keep has weights laid out once for all chunks as products read them, which takes as much memory again and
// for convolutions of few places more time than the products: all of a policy of up to keptSmall numbers,
// and of a larger one those of convolutions.
func (a *Actor) keep() {
	k, ok := a.b.(kernels.Keeper)
	if !ok {
		return
	}
	all := 0
	for _, t := range a.gen.Runner().Params {
		all += t.Len()
	}
	for _, t := range a.gen.Runner().Params { // each by itself
		if len(t.Shape) > 2 || len(t.Shape) == 2 && all <= keptSmall {
			k.Keep(t)
		}
	}
}

// Acts reports whether the model is a policy of a robot: one of numbers, or a model that writes its actions.
func Acts(m *trained.Trained) bool {
	if d := m.Model.Denoiser; d != nil {
		return d.Sight != nil
	}
	c := acting(m)
	return c != nil && c.Run.Policy.Tokens != "none" && m.Model.Vision != nil
}

// Tell has notes of what the policy does not read of its prompts be written.
func (a *Actor) Tell(notes io.Writer) { a.x.Tell(notes) }

// eulerSteps are those of a policy of flow matching.
const eulerSteps = 10

// As has the actor act as the robot of a data set of data.paths, by the end of its path: what it is asked
// and what it gives are scaled by that one's statistics. It acts as the first one's without.
func (a *Actor) As(name string) error {
	var names []string
	for _, s := range a.x.sets {
		if s.name == name || filepath.Base(s.name) == name {
			a.x.as(s)
			return nil
		}
		names = append(names, filepath.Base(s.name))
	}
	return exit.Usagef("the policy learnt of no data set %q; it learnt of %v", name, names)
}

// Close gives the weights back.
func (a *Actor) Close() {
	a.gen.Close()
	kernels.Close(a.b)
}

// Column is a column's name as observations are compared by it: openpi's observation/image, LeRobot's
// observation.image and an image in a map called observation are one.
func Column(name string) string {
	return strings.TrimPrefix(strings.ReplaceAll(name, ".", "/"), "observation/")
}

// Camera is the name of a camera's column without LeRobot's folder of images.
func Camera(name string) string { return strings.TrimPrefix(Column(name), "images/") }

// Abilities are what a policy reads and gives.
type Abilities struct {
	State   string   // column of the robot's state
	Numbers int      // of a state
	Steps   int      // that are observed, with the present one
	Joins   bool     // chunks can go on from the one under way
	Cameras []string // columns of what it sees, in order
	All     bool     // it acts by none of them that is missing
	Size    [2]int   // height and width that views are brought to, in pixels
	Chunk   int      // actions that it gives at once
	Width   int      // numbers of an action
}

// Abilities says what the policy reads and gives.
func (a *Actor) Abilities() Abilities {
	x := a.x
	from, to := x.given()
	return Abilities{State: x.Policy.State, Numbers: x.raw[0], Cameras: x.Policy.Cameras,
		All: x.D.Sight.Whole(), Size: x.Size, Chunk: to - from, Width: x.raw[1], Steps: x.D.Sight.Observed(),
		Joins: !x.D.Once && !x.D.Restart && x.D.Scheduler == nil && !x.motion.shifts() && !x.draws() &&
			(x.D.Clip == nil || x.D.Clip.Blocks == nil) && !x.D.Worded()}
}

// draws reports whether a clip is drawn before actions are, of which those of its first frame are no part of a chunk.
func (x *Robots) draws() bool { return x.D.Clip != nil && x.D.Clip.Steps > 0 }

// given are the actions of a chunk that a policy gives, [from, to): those of steps before the present one
// have been carried out.
func (x *Robots) given() (from, to int) {
	if x.draws() { // those of the frame that is seen lie before it
		return x.Chunk / x.D.Parts, x.Chunk
	}
	if x.D.Clip != nil && x.D.Clip.Blocks != nil {
		return 0, x.Chunk / x.D.Parts
	}
	if x.D.Executed == 0 {
		return 0, x.Chunk
	}
	from = x.D.Sight.Observed() - 1
	return from, from + x.D.Executed
}

// Ask is a robot's question, ready for the policy.
type Ask struct {
	sight *family.Encoded
	words *asked    // of a policy that writes
	state []float64 // that actions are told relative to
	seed  uint64
	Join  *Join // the chunk under way that the actions are to go on from, nil for none
}

// Chunk is the next actions of a robot, [chunk][numbers]; scaled are the same in the policy's own numbers.
type Chunk struct {
	Actions [][]float64
	scaled  [][]float64
}

// Ask prepares what a robot sees. It is safe for concurrent use.
func (a *Actor) Ask(r Seen) (Ask, error) {
	if a.pen != nil {
		q, err := a.pen.ask(r)
		return Ask{words: q, state: slices.Clone(r.State), seed: r.Seed}, err
	}
	if a.guide != nil {
		e, err := a.guide.see(r)
		return Ask{sight: e, state: slices.Clone(r.State), seed: r.Seed}, err
	}
	e, err := a.x.See(r.Task, append(slices.Clone(r.Before), Look{r.State, r.Views})...)
	return Ask{sight: e, state: slices.Clone(r.State), seed: r.Seed}, err
}

// Act gives the next actions of each robot, [chunk][numbers], as lerobot's Pi0.5 does: steps of Euler
// from noise at time 1 to time 0. What one robot does depends on no other.
func (a *Actor) Act(robots []Seen) ([][][]float64, error) {
	asks := make([]Ask, len(robots))
	for i, r := range robots {
		var err error
		if asks[i], err = a.Ask(r); err != nil {
			return nil, err
		}
	}
	chunks, err := a.Decide(asks)
	out := make([][][]float64, len(chunks))
	for i, c := range chunks {
		out[i] = c.Actions
	}
	return out, err
}

// Decide is Act of what was asked before.
func (a *Actor) Decide(asks []Ask) ([]Chunk, error) {
	if a.pen != nil {
		return a.written(asks)
	}
	w := a.x.D.Width()
	items := make([]family.Encoded, len(asks))
	for i, q := range asks {
		e := *q.sight
		e.X0 = make([]float32, a.x.Chunk*w)
		noise.Key{Sample: q.seed}.Fill(e.X0, 0)
		e.Noise = make([]float32, len(e.X0))
		if a.x.D.Draws > 0 { // and draws by what is counted from the seed
			e.Noise, e.Key = nil, q.seed
		}
		if a.x.film != nil {
			if err := a.x.film.open(&e, q.seed); err != nil {
				return nil, err
			}
			e.Noise = e.Noise[:len(e.X0)]
		}
		items[i] = e
	}
	if err := a.integrate(items, asks); err != nil {
		return nil, err
	}
	out := make([]Chunk, len(items))
	from, to := a.x.given()
	for i := range items {
		for k := from; k < to; k++ {
			v := make([]float64, len(a.x.Scale.Action.Mid))
			for j := range v {
				v[j] = float64(items[i].X0[k*w+j])
			}
			out[i].scaled = append(out[i].scaled, v)
		}
		a.unscale(&out[i], asks[i].state)
	}
	return out, nil
}

// written is Decide of a policy that writes, one robot after the other.
func (a *Actor) written(asks []Ask) (out []Chunk, err error) {
	out = make([]Chunk, len(asks))
	for i, q := range asks {
		if out[i].scaled, err = a.pen.answer(a.gen, q.words, len(a.x.Scale.Action.Mid)); err != nil {
			return nil, err
		}
		a.unscale(&out[i], q.state)
	}
	return out, nil
}

// unscale makes a robot's own numbers of the policy's.
func (a *Actor) unscale(c *Chunk, state []float64) {
	for _, v := range c.scaled {
		c.Actions = append(c.Actions, a.x.Scale.Action.Back(v))
	}
	c.Actions = a.x.motion.act(state, c.Actions)
}

// once takes the actions of a policy that gives them without noise.
func (a *Actor) once(p *sample.Prediction, items []family.Encoded) error {
	for i := range items {
		items[i].Level = &noise.Level{Alpha: 1}
	}
	v, err := p.Of(items)
	if err != nil {
		return err
	}
	for i := range items {
		n := len(items[i].X0)
		copy(items[i].X0, v[i*n:(i+1)*n])
	}
	return nil
}

// draw takes noise to actions by the policy's own scheduler, whose noise is counted from each robot's seed.
func (a *Actor) draw(p *sample.Prediction, items []family.Encoded, asks []Ask) error {
	s, err := a.x.D.Scheduler.Sampler(noise.Options{Steps: a.Steps})
	if err != nil {
		return exit.Usagef("%v", err)
	}
	states := make([]noise.State, len(items))
	for i := range items {
		states[i] = s.Begin(items[i].X0)
	}
	added := make([]float32, len(items[0].X0))
	for step, time := range s.Times {
		for i := range items {
			items[i].X0, items[i].Level = s.Input(states[i]), &noise.Level{Alpha: 1, Time: time}
		}
		v, err := p.Of(items)
		if err != nil {
			return err
		}
		for i := range items {
			noise.Key{Sample: asks[i].seed, Draw: uint64(step) + 1}.Fill(added, 0)
			if states[i], err = s.Step(states[i], v[i*len(added):(i+1)*len(added)], added); err != nil {
				return err
			}
		}
	}
	for i := range items {
		items[i].X0 = states[i].X
	}
	return nil
}

// integrate takes noisy actions to clean ones.
func (a *Actor) integrate(items []family.Encoded, asks []Ask) error {
	if c := a.x.D.Clip; c != nil && c.Blocks != nil {
		return a.gen.Blocks(items, a.Steps)
	}
	if a.x.draws() {
		if err := a.gen.Film(items, a.x.D.Clip.Steps); err != nil {
			return err
		}
	}
	p := a.gen.NewPrediction()
	defer p.Close()
	switch {
	case a.x.D.Once:
		return a.once(p, items)
	case a.x.D.Scheduler != nil:
		return a.draw(p, items, asks)
	}
	start := make([][]float32, len(items))
	for i := range items {
		start[i] = slices.Clone(items[i].X0)
	}
	for step := range a.Steps {
		t, by := a.x.D.Step(step, a.Steps)
		for i := range items {
			items[i].Level = &noise.Level{Alpha: 1, Time: 1000 * float32(t)}
		}
		v, err := p.Of(items)
		if err != nil {
			return err
		}
		for i := range items {
			n := len(items[i].X0)
			if j := asks[i].Join; j != nil {
				j.guide(v[i*n:(i+1)*n], items[i].X0, a.x.D.Width(), t)
			}
			clear(v[i*n : i*n+a.x.D.Still(&items[i])])
			a.x.D.Advance(items[i].X0, start[i], v[i*n:(i+1)*n], items[i].Real, t, by)
		}
		if a.x.D.Worded() {
			a.x.D.AdvanceClips(items, v[len(items)*len(items[0].X0):], by)
		}
	}
	for i := range items {
		a.x.D.Finish(items[i].X0)
	}
	return nil
}
