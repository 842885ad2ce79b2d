package noise

// EulerAncestral is EulerAncestralDiscreteScheduler: Euler's method in σ-space to below the next level,
// and noise up to it.
type EulerAncestral struct {
	Betas
	Prediction string `json:"prediction_type"`
	Spacing
	ZeroSNR bool `json:"rescale_betas_zero_snr"`
}

var _ = Register(func() Scheduler {
	return &EulerAncestral{Betas: defaultBetas(), Prediction: "epsilon", Spacing: Spacing{Kind: "linspace"}}
})

// Class is diffusers' name.
func (*EulerAncestral) Class() string { return "EulerAncestralDiscreteScheduler" }

// Predicts is the file's prediction_type.
func (s *EulerAncestral) Predicts() string { return s.Prediction }

func (s *EulerAncestral) check(f *faults) {
	s.Betas.check(f, s.Class())
	s.Spacing.check(f)
	f.OneOf("prediction_type", s.Prediction, "epsilon", "v_prediction")
}

// Levels are the table of variances.
func (s *EulerAncestral) Levels() (Levels, error) {
	return variancePreserving(s.solverBars(s.ZeroSNR)), nil
}

// Sampler lays out a run.
func (s *EulerAncestral) Sampler(o Options) (*Sampler, error) {
	g, err := newSigmaGrid(s.Betas, s.Spacing, Sigmas{}, sigmaTable(s.solverBars(s.ZeroSNR)), o, nil, nil)
	if err != nil {
		return nil, err
	}
	p := &Sampler{Times: narrow(g.times), Sigmas: narrow(append(g.sigmas, 0)), Noisy: true}
	p.Scale = g.scale(p.Sigmas)
	p.input = func(i int, x []float32) []float32 { return scaledInput(p.Sigmas[i], x) }
	p.step = func(st State, out, noise []float32) State {
		from, to := p.Sigmas[st.Done], p.Sigmas[st.Done+1]
		from2, to2 := float32(from*from), float32(to*to)
		up := sqrt32(float32(to2*(from2-to2)) / from2)
		down := sqrt32(to2 - float32(up*up))
		x0 := sigmaX0(s.Prediction, from, from, st.X, out)
		return State{X: add(towards(st.X, x0, from, down), up, noise)}
	}
	return p, nil
}
