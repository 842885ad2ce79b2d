package noise

// Heun is HeunDiscreteScheduler: Heun's method in σ-space (arXiv:2206.00364, algorithm 1), two evaluations
// of each level but the last.
type Heun struct {
	Betas
	Prediction string `json:"prediction_type"`
	Sigmas
	Clip
	Spacing
}

var _ = Register(func() Scheduler {
	s := &Heun{Betas: defaultBetas(), Prediction: "epsilon", Clip: Clip{Range: 1}, Spacing: Spacing{Kind: "linspace"}}
	s.Start, s.End = 0.00085, 0.012
	return s
})

// Class is diffusers' name.
func (*Heun) Class() string { return "HeunDiscreteScheduler" }

// Predicts is the file's prediction_type.
func (s *Heun) Predicts() string { return s.Prediction }

func (s *Heun) check(f *faults) {
	s.Betas.check(f, s.Class())
	s.Sigmas.check(f)
	s.Clip.check(f)
	s.Spacing.check(f)
	f.OneOf("prediction_type", s.Prediction, "epsilon", "sample", "v_prediction")
}

// Levels are the table of variances.
func (s *Heun) Levels() (Levels, error) { return variancePreserving(s.cumulative(false)), nil }

// Sampler lays out a run of 2·Steps−1 evaluations.
func (s *Heun) Sampler(o Options) (*Sampler, error) {
	g, err := newSigmaGrid(s.Betas, s.Spacing, s.Sigmas, sigmaTable(s.cumulative(false)), o, nil, nil)
	if err != nil {
		return nil, err
	}
	p := &Sampler{}
	for i, v := range narrow(g.sigmas) {
		t := float32(g.times[i])
		p.Times, p.Sigmas = append(p.Times, t), append(p.Sigmas, v)
		if i > 0 {
			p.Times, p.Sigmas = append(p.Times, t), append(p.Sigmas, v)
		}
	}
	p.Sigmas = append(p.Sigmas, 0)
	p.Scale = g.scale(p.Sigmas)
	p.past = func(done int) int { return done % 2 }
	p.input = func(i int, x []float32) []float32 { return scaledInput(p.Sigmas[i], x) }
	p.step = func(st State, out, _ []float32) State { return s.evaluate(p, st, out) }
	return p, nil
}

// evaluate predicts by the slope at a level, and then again by the mean of both ends' slopes.
func (s *Heun) evaluate(p *Sampler, st State, out []float32) State {
	i := st.Done
	first := (i-st.From)%2 == 0
	sigma, next := p.Sigmas[i], p.Sigmas[i+1]
	if !first {
		sigma, next = p.Sigmas[i-1], p.Sigmas[i]
	}
	level := sigma
	if !first {
		level = next
	}
	x0 := s.Clip.apply(sigmaX0(s.Prediction, level, level, st.X, out))
	slope := over(axpy(1, st.X, -1, x0), level)
	if first {
		return State{X: axpy(1, st.X, next-sigma, slope), Past: [][]float32{slope}, Base: st.X}
	}
	mean := over(axpy(1, st.Past[0], 1, slope), 2)
	return State{X: axpy(1, st.Base, next-sigma, mean)}
}
