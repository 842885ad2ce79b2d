package trained

import (
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/stages/sample"
)

// Actor is a trained policy that is asked what to do. It is not safe for concurrent use.
type Actor struct {
	x     *Robots
	gen   *sample.Generator
	b     kernels.Backend
	Steps int // of Euler, from noise to actions
}

// Seen is what a robot is asked about: its task, its state and what its cameras see, nil for one that is
// missing.
type Seen struct {
	Task  string
	State []float64
	Views []*media.Image
	Seed  uint64 // of the noise that its actions begin with
}

// NewActor makes a policy ready to act; Close gives it back.
func (m *Trained) NewActor() (*Actor, error) {
	d := m.Model.Denoiser
	if d == nil || d.Sight == nil {
		return nil, exit.Usagef("the model is no policy of a robot")
	}
	x, err := NewRobots(m.Cfg, d)
	if err != nil {
		return nil, err
	}
	b, err := m.backend()
	if err != nil {
		return nil, err
	}
	gen, err := sample.New(m.Model, m.Lora, tensor.F32, b, tensor.NewPool("act", 0), m.fill)
	if err != nil {
		kernels.Close(b)
		return nil, err
	}
	return &Actor{x: x, gen: gen, b: b, Steps: 10}, nil
}

// Close gives the weights back.
func (a *Actor) Close() {
	a.gen.Close()
	kernels.Close(a.b)
}

// Act gives the next actions of each robot, [chunk][numbers], as lerobot's Pi0.5 does: steps of Euler
// from noise at time 1 to time 0. What one robot does depends on no other.
func (a *Actor) Act(robots []Seen) ([][][]float64, error) {
	d, w := a.x.D, a.x.D.Width()
	items := make([]family.Encoded, len(robots))
	for i, r := range robots {
		e, err := a.x.See(r.Task, r.State, r.Views)
		if err != nil {
			return nil, err
		}
		e.X0 = make([]float32, a.x.Chunk*w)
		noise.Key{Sample: r.Seed}.Fill(e.X0, 0)
		e.Noise = make([]float32, len(e.X0))
		items[i] = *e
	}
	if err := a.integrate(items); err != nil {
		return nil, err
	}
	out := make([][][]float64, len(robots))
	for i := range items {
		for k := range a.x.Chunk {
			v := make([]float64, d.Real)
			for j := range v {
				v[j] = float64(items[i].X0[k*w+j])
			}
			out[i] = append(out[i], a.x.Scale.Action.Back(v))
		}
	}
	return out, nil
}

// integrate takes noisy actions to clean ones.
func (a *Actor) integrate(items []family.Encoded) error {
	by := float32(1) / float32(a.Steps)
	for step := range a.Steps {
		t := 1 - float32(step)*by
		for i := range items {
			items[i].Level = &noise.Level{Alpha: 1, Time: 1000 * t}
		}
		v, err := a.gen.Predict(items, nil)
		if err != nil {
			return err
		}
		for i := range items {
			n := len(items[i].X0)
			for k := range n {
				items[i].X0[k] -= by * v[i*n+k]
			}
		}
	}
	return nil
}
