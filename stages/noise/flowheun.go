package noise

// FlowMatchHeun is FlowMatchHeunDiscreteScheduler: flow matching by Heun's method, two evaluations of each level
// but the last.
type FlowMatchHeun struct {
	TrainSteps int     `json:"num_train_timesteps"`
	Shift      float64 `json:"shift"`
}

var _ = Register(func() Scheduler { return &FlowMatchHeun{1000, 1} })

// Class is diffusers' name.
func (*FlowMatchHeun) Class() string { return "FlowMatchHeunDiscreteScheduler" }

// Predicts is the velocity.
func (*FlowMatchHeun) Predicts() string { return "flow_prediction" }

func (s *FlowMatchHeun) check(f *faults) {
	checkTrainSteps(f, s.TrainSteps)
	f.Within("shift", s.Shift, 1e-6, 1e6)
}

// Levels are the shifted table.
func (s *FlowMatchHeun) Levels() (Levels, error) { return flowTable(s.TrainSteps, s.Shift), nil }

// Sampler lays out a run of 2·Steps−1 evaluations.
func (s *FlowMatchHeun) Sampler(o Options) (*Sampler, error) {
	euler := Shifted(s.Shift).(*FlowMatchEuler)
	euler.TrainSteps = s.TrainSteps
	grid, err := euler.Sampler(o)
	if err != nil {
		return nil, err
	}
	p := &Sampler{Scale: 1}
	for i, t := range grid.Times {
		for range min(i, 1) + 1 {
			p.Times, p.Sigmas = append(p.Times, t), append(p.Sigmas, grid.Sigmas[i])
		}
	}
	p.Sigmas = append(p.Sigmas, 0)
	p.past = func(done int) int { return done % 2 }
	p.step = func(st State, out, _ []float32) State { return flowHeun(p, st, out) }
	return p, nil
}

// flowHeun predicts by the velocity at a level, and then again by the mean of both ends' velocities.
func flowHeun(p *Sampler, st State, out []float32) State {
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
	slope := over(axpy(1, st.X, -1, axpy(1, st.X, -level, out)), level)
	if first {
		return State{X: axpy(1, st.X, next-sigma, slope), Past: [][]float32{slope}, Base: st.X}
	}
	mean := axpy(0.5, axpy(1, st.Past[0], 1, slope), 0, nil)
	return State{X: axpy(1, st.Base, next-sigma, mean)}
}
