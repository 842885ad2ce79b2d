package noise

import "fmt"

// DDIM is DDIMScheduler (arXiv:2010.02502, equation 12).
type DDIM struct {
	Betas
	Clip
	AlphaToOne bool `json:"set_alpha_to_one"` // behind the last step ᾱ is 1, else that of time 0
	Spacing
	Prediction string `json:"prediction_type"`
	Threshold
	ZeroSNR bool `json:"rescale_betas_zero_snr"`
	class   string
}

var _, _ = Register(func() Scheduler { return ddim("DDIMScheduler") }), Register(func() Scheduler { return ddim("DDIMParallelScheduler") })

func ddim(class string) *DDIM {
	return &DDIM{class: class, Betas: defaultBetas(), Clip: Clip{true, 1}, AlphaToOne: true, Prediction: "epsilon",
		Spacing: Spacing{Kind: "leading"}, Threshold: defaultThreshold()}
}

// Class is diffusers' name. The parallel class is the same process, for pipelines that draw steps at once.
func (s *DDIM) Class() string { return s.class }

// Predicts is the file's prediction_type.
func (s *DDIM) Predicts() string { return s.Prediction }

func (s *DDIM) check(f *faults) {
	s.Betas.check(f, s.Class())
	s.Clip.check(f)
	s.Threshold.check(f)
	s.Spacing.check(f)
	checkVP(f, s.Prediction, s.ZeroSNR)
}

// Levels are the table of variances.
func (s *DDIM) Levels() (Levels, error) { return variancePreserving(s.cumulative(s.ZeroSNR)), nil }

// Sampler lays out a run.
func (s *DDIM) Sampler(o Options) (*Sampler, error) {
	if !(o.Eta >= 0 && o.Eta <= 1) {
		return nil, fmt.Errorf("DDIM's eta is %g: take from 0, no noise, to 1, DDPM's", o.Eta)
	}
	v, err := newVPRun(s.Betas, s.Spacing, s.ZeroSNR, s.Prediction, o)
	if err != nil {
		return nil, err
	}
	final := v.bars[0]
	if s.AlphaToOne {
		final = 1
	}
	p := &Sampler{Times: narrow(v.times), Scale: 1, Noisy: o.Eta > 0}
	p.step = func(st State, out, noise []float32) State {
		t := int(v.times[st.Done])
		bar, barPrev := v.bars[t], final
		if prev := t - s.TrainSteps/o.Steps; prev >= 0 {
			barPrev = v.bars[prev]
		}
		return s.implicit(v, bar, barPrev, o, st, out, noise)
	}
	return p, nil
}

// implicit is a step from ᾱ to that of the time before.
func (s *DDIM) implicit(v *vpRun, bar, barPrev float32, o Options, st State, out, noise []float32) State {
	left := 1 - bar
	l := Level{Alpha: sqrt32(bar), Sigma: sqrt32(left)}
	x0, eps := v.target.X0(l, st.X, out), v.target.Noise(l, st.X, out)
	if s.Threshold.On {
		x0 = s.Threshold.apply(x0)
	} else {
		x0 = s.Clip.apply(x0)
	}
	if o.FromClipped {
		eps = targets.m["sample"].Noise(l, st.X, x0)
	}
	variance := float32((1 - barPrev) / left * (1 - bar/barPrev))
	deviation := float32(float32(o.Eta) * sqrt32(variance))
	towards := sqrt32(max(1-barPrev-float32(deviation*deviation), 0)) // rounding may fall below 0
	x := axpy(sqrt32(barPrev), x0, towards, eps)
	if o.Eta > 0 {
		add(x, deviation, noise)
	}
	return State{X: x}
}
