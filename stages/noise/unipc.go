package noise

import (
	"fmt"
	"math"
	"slices"
)

// UniPC is UniPCMultistepScheduler: a predictor and, with the next evaluation, a corrector (arXiv:2302.04867,
// algorithms 5 to 8). It samples Wan, by bh2 of order 2 on levels of flow matching.
type UniPC struct {
	Solver
	PredictX0 bool     `json:"predict_x0"`
	Off       []int    `json:"disable_corrector"` // steps whose result is not corrected
	Predictor *string  `json:"solver_p"`          // another scheduler; only null is known here
	SigmaMin  *float64 `json:"sigma_min"`         // ends of the curves
	SigmaMax  *float64 `json:"sigma_max"`
	Terminal  *float64 `json:"shift_terminal"`
}

var _ = Register(func() Scheduler {
	return &UniPC{Solver: defaultSolver("bh2"), PredictX0: true, Off: []int{}}
})

// Class is diffusers' name.
func (*UniPC) Class() string { return "UniPCMultistepScheduler" }

func (s *UniPC) check(f *faults) {
	s.Solver.check(f, s.Class())
	f.OneOf("solver_type", s.Kind, "bh1", "bh2")
	f.OneOf("time_shift_type", s.ShiftType, "exponential", "linear")
	checkTerminal(f, s.Terminal)
	checkEnds(f, s.SigmaMin, s.SigmaMax)
	if s.Predictor != nil {
		f.Add("solver_p", "set null", "another scheduler as predictor is not supported")
	}
	if s.Terminal != nil && !s.FlowSigmas {
		f.Add("shift_terminal", "set use_flow_sigmas to true", "only levels of flow matching are stretched")
	}
	if key := s.Sigmas.key(); s.FlowSigmas && key != "" && key != "use_karras_sigmas" {
		f.Add(key, "leave one out", "the curve has levels above 1, which flow matching (use_flow_sigmas) does not")
	}
	if s.Final == "zero" && (!s.PredictX0 || !s.LowerFinal && s.Order > 1) {
		f.Add("final_sigmas_type", "set sigma_min, or predict_x0 and lower_order_final to true",
			"the last step to a level of zero is infinite unless it predicts the sample by order 1")
	}
	if s.Final == "sigma_min" && (s.FlowSigmas || s.Sigmas.key() != "") {
		f.Add("final_sigmas_type", "set zero", "sigma_min repeats the last level of the chosen curve")
	}
	if !s.PredictX0 && s.Prediction == "flow_prediction" {
		f.Add("predict_x0", "set true", "flow_prediction is not read as noise")
	}
}

// checkEnds refuses ends of a curve that are no levels.
func checkEnds(f *faults, low, high *float64) {
	if low != nil {
		f.Within("sigma_min", *low, 1e-10, 1e6)
	}
	if high != nil {
		f.Within("sigma_max", *high, 1e-10, 1e6)
	}
	if low != nil && high != nil && *high < *low {
		f.Add("sigma_max", "set at least sigma_min", "%g is below sigma_min = %g", *high, *low)
	}
}

// ends are those of a curve: those given, else those of the grid.
func ends(low, high float64, givenLow, givenHigh *float64) (float64, float64) {
	if givenLow != nil {
		low = *givenLow
	}
	if givenHigh != nil {
		high = *givenHigh
	}
	return low, high
}

// Sampler lays out a run.
func (s *UniPC) Sampler(o Options) (*Sampler, error) {
	if err := s.checkOptions(o); err != nil {
		return nil, err
	}
	table := sigmaTable(s.solverBars(s.ZeroSNR))
	sigmas, times, err := s.grid(o, table)
	if err != nil {
		return nil, err
	}
	last := sigmas[len(sigmas)-1]
	if s.Sigmas.key() == "" && !s.FlowSigmas {
		last = table[0]
	}
	if s.Final == "sigma_min" && last == sigmas[len(sigmas)-1] {
		return nil, fmt.Errorf("final_sigmas_type sigma_min repeats the last of %d levels: take fewer steps",
			len(times))
	}
	r, err := s.newRun(sigmas, times, last)
	if err != nil {
		return nil, err
	}
	p := r.sampler(func(st State, out, _ []float32) State { return s.correctAndPredict(r, st, out) })
	p.past = func(done int) int { return min(done, s.Order) }
	return p, nil
}

// grid are the levels and their times.
func (s *UniPC) grid(o Options, table []float64) ([]float64, []float32, error) {
	n := o.Steps
	low, high := ends(table[0], table[len(table)-1], s.SigmaMin, s.SigmaMax)
	switch {
	case s.Karras && s.FlowSigmas:
		sigmas := s.Sigmas.curve(low, high, n)
		for i, v := range sigmas {
			sigmas[i] = v / (v + 1)
		}
		return sigmas, truncatedTimes(sigmas, s.TrainSteps), nil
	case s.Sigmas.key() != "":
		sigmas := s.Sigmas.curve(low, high, n)
		times := timesOf(sigmas, table)
		if s.Karras {
			times = rounded(times)
		}
		return sigmas, truncated(times), nil
	case s.FlowSigmas:
		sigmas := s.flowGrid(o)
		return sigmas, truncatedTimes(sigmas, s.TrainSteps), nil
	}
	times, err := s.Spacing.times(n, s.TrainSteps, s.TrainSteps, 1, true)
	if err != nil {
		return nil, nil, err
	}
	sigmas := make([]float64, len(times))
	for i, t := range times {
		sigmas[i] = at(table, t)
	}
	return sigmas, truncated(times), nil
}

// flowGrid are the shifted levels. A first level of 1 has no signal and an infinite λ, so it moves by 1e-6.
func (s *UniPC) flowGrid(o Options) []float64 {
	const eps = 1e-6
	grid := slices.Clone(o.Sigmas)
	for i := len(grid); i < o.Steps; i++ {
		grid = append(grid, linspace(1, 1/float64(s.TrainSteps), o.Steps+1, i))
	}
	grid = shifted(grid, s.FlowShift, s.Dynamic, s.ShiftType, o.Mu)
	grid = stretched(grid, s.Terminal)
	if math.Abs(grid[0]-1) < eps {
		grid[0] -= eps
	}
	return grid
}

// order is that of the predictor of step i.
func (s *UniPC) order(i, from, n int) int {
	order := min(s.Order, i-from+1)
	if s.LowerFinal {
		order = min(order, n-i)
	}
	return order
}

// correctAndPredict corrects the sample with the evaluation at it, and predicts the next.
func (s *UniPC) correctAndPredict(r *run, st State, out []float32) State {
	i, n := st.Done, len(r.times)
	m := s.converted(r, i, st.X, out)
	x := st.X
	if st.Base != nil && !slices.Contains(s.Off, i-1) {
		b := s.newStep(r, i-1, s.order(i-1, st.From, n), st.Past)
		x = b.correct(st.Base, m)
	}
	past := pushed(m, st.Past, s.Order)
	next := s.newStep(r, i, s.order(i, st.From, n), past).predict(x)
	return State{X: next, Base: slices.Clone(x), Past: past}
}

// converted is what the solver keeps of an evaluation: the sample, or the noise where predict_x0 is false.
func (s *UniPC) converted(r *run, i int, x, out []float32) []float32 {
	if s.PredictX0 {
		return r.x0(i, x, out)
	}
	return r.target.Noise(r.levels[i], x, out)
}
