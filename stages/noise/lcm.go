package noise

import (
	"fmt"
	"math"
)

// Distilled are the keys of schedulers of denoisers that were distilled to few steps.
type Distilled struct {
	Betas
	Original int `json:"original_inference_steps"`
	Clip
	AlphaToOne bool   `json:"set_alpha_to_one"`
	Prediction string `json:"prediction_type"`
	Threshold
	Spacing
	TimeScale float64 `json:"timestep_scaling"`
	ZeroSNR   bool    `json:"rescale_betas_zero_snr"`
}

func distilled() Distilled {
	b := defaultBetas()
	b.Start, b.End, b.Schedule = 0.00085, 0.012, "scaled_linear"
	return Distilled{Betas: b, Original: 50, Clip: Clip{Range: 1}, AlphaToOne: true, Prediction: "epsilon",
		Threshold: defaultThreshold(), Spacing: Spacing{Kind: "leading"}, TimeScale: 10}
}

// Predicts is the file's prediction_type.
func (s *Distilled) Predicts() string { return s.Prediction }

func (s *Distilled) checked(f *faults, class string) {
	s.Betas.check(f, class)
	s.Clip.check(f)
	s.Threshold.check(f)
	s.Spacing.check(f)
	f.Within("original_inference_steps", float64(s.Original), 1, float64(max(1, s.TrainSteps)))
	f.Within("timestep_scaling", s.TimeScale, 0, math.MaxFloat32)
	checkVP(f, s.Prediction, s.ZeroSNR)
}

// Levels are the table of variances.
func (s *Distilled) Levels() (Levels, error) { return variancePreserving(s.cumulative(s.ZeroSNR)), nil }

// LCM is LCMScheduler: a prediction of the sample by a consistency function, and noise up to the
// next time (arXiv:2310.04378).
type LCM struct{ Distilled }

var _ = Register(func() Scheduler { return &LCM{distilled()} })

// Class is diffusers' name.
func (*LCM) Class() string { return "LCMScheduler" }

func (s *LCM) check(f *faults) { s.checked(f, s.Class()) }

// times are those of so many steps: evenly out of original_inference_steps.
func (s *LCM) times(n int) ([]int, error) {
	if n > s.Original || n < 1 {
		return nil, fmt.Errorf("a sampler of %d steps: LCM takes from 1 to original_inference_steps = %d", n, s.Original)
	}
	out := make([]int, n)
	for i := range out {
		at := int(math.Floor(float64(i) * (float64(s.Original) / float64(n))))
		out[i] = (s.Original-at)*(s.TrainSteps/s.Original) - 1
	}
	return out, nil
}

// Sampler lays out a run.
func (s *LCM) Sampler(o Options) (*Sampler, error) {
	if o.Sigmas != nil {
		return nil, fmt.Errorf("noise levels of one's own are for schedulers of flow matching: leave them out")
	}
	times, err := s.times(o.Steps)
	if err != nil {
		return nil, err
	}
	bars, target := s.cumulative(s.ZeroSNR), targets.m[s.Prediction]
	p := &Sampler{Scale: 1, Noisy: true}
	for _, t := range times {
		p.Times = append(p.Times, float32(t))
	}
	p.step = func(st State, out, noise []float32) State {
		t := times[st.Done]
		x0 := target.X0(Level{Alpha: sqrt32(bars[t]), Sigma: sqrt32(1 - bars[t])}, st.X, out)
		if s.Threshold.On {
			x0 = s.Threshold.apply(x0)
		} else {
			x0 = s.Clip.apply(x0)
		}
		scaled := float64(t) * s.TimeScale // the boundary: the sample itself at time 0
		under := scaled*scaled + 0.25
		x := axpy(float32(scaled/math.Sqrt(under)), x0, float32(0.25/under), st.X)
		if st.Done+1 == len(times) {
			return State{X: x}
		}
		next := bars[times[st.Done+1]]
		return State{X: axpy(sqrt32(next), x, sqrt32(1-next), noise)}
	}
	return p, nil
}
