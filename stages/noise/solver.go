package noise

import (
	"fmt"
	"math"
	"slices"
)

// Solver are the keys that DPM-Solver++ and UniPC share.
type Solver struct {
	Betas
	Order      int    `json:"solver_order"`
	Prediction string `json:"prediction_type"`
	Threshold
	Kind       string `json:"solver_type"`
	LowerFinal bool   `json:"lower_order_final"`
	Sigmas
	FlowSigmas bool    `json:"use_flow_sigmas"`
	FlowShift  float64 `json:"flow_shift"`
	Final      string  `json:"final_sigmas_type"` // behind the last level: zero or sigma_min
	Spacing
	ZeroSNR   bool   `json:"rescale_betas_zero_snr"`
	Dynamic   bool   `json:"use_dynamic_shifting"`
	ShiftType string `json:"time_shift_type"`
}

func defaultSolver(kind string) Solver {
	return Solver{Betas: defaultBetas(), Order: 2, Prediction: "epsilon", Threshold: defaultThreshold(), Kind: kind,
		LowerFinal: true, FlowShift: 1, Final: "zero", Spacing: Spacing{Kind: "linspace"}, ShiftType: "exponential"}
}

// Predicts is the file's prediction_type.
func (s *Solver) Predicts() string { return s.Prediction }

// Levels are the table of variances, or that of flow matching.
func (s *Solver) Levels() (Levels, error) {
	switch {
	case s.FlowSigmas && s.Dynamic:
		return flowTable(s.TrainSteps, 1), nil
	case s.FlowSigmas:
		return flowTable(s.TrainSteps, s.FlowShift), nil
	}
	return variancePreserving(s.cumulative(s.ZeroSNR)), nil
}

func (s *Solver) check(f *faults, class string) {
	s.Betas.check(f, class)
	s.Threshold.check(f)
	s.Sigmas.check(f)
	s.Spacing.check(f)
	f.Within("solver_order", float64(s.Order), 1, 3)
	f.Within("flow_shift", s.FlowShift, 1e-6, 1e6)
	f.OneOf("final_sigmas_type", s.Final, "zero", "sigma_min")
	f.OneOf("prediction_type", s.Prediction, "epsilon", "sample", "v_prediction", "flow_prediction")
	s.checkFlow(f)
}

// checkFlow refuses a prediction of one process on the levels of the other.
func (s *Solver) checkFlow(f *faults) {
	if s.Prediction == "flow_prediction" && !s.FlowSigmas {
		f.Add("prediction_type", "set use_flow_sigmas to true, or prediction_type to what the denoiser gives",
			"flow_prediction is a velocity between levels of flow matching, and use_flow_sigmas is false")
	}
	if s.Prediction == "v_prediction" && s.FlowSigmas {
		f.Add("prediction_type", "set prediction_type to flow_prediction, or use_flow_sigmas to false",
			"v_prediction belongs to a variance-preserving process, and use_flow_sigmas is true")
	}
	if s.ZeroSNR && s.FlowSigmas {
		f.Add("rescale_betas_zero_snr", "leave one out", "use_flow_sigmas does not read the table of variances")
	}
	if s.Dynamic && !s.FlowSigmas {
		f.Add("use_dynamic_shifting", "set use_flow_sigmas to true", "only levels of flow matching are shifted")
	}
}

// checkOptions refuses a number of steps or levels that the settings do not take.
func (s *Solver) checkOptions(o Options) error {
	if o.Sigmas != nil && !s.FlowSigmas {
		return fmt.Errorf("noise levels of one's own are for flow matching, and use_flow_sigmas is false")
	}
	if err := checkLevels(o); err != nil {
		return err
	}
	return checkSteps(max(o.Steps, len(o.Sigmas)), min(s.TrainSteps, stepsMax))
}

// run is the state of laying out a solver: its levels with one behind the last.
type run struct {
	solver *Solver
	sigmas []float32
	levels []Level
	times  []float32
	target Target
}

// newRun ends a grid of levels. last is the level behind it where it is not zero.
func (s *Solver) newRun(sigmas []float64, times []float32, last float64) (*run, error) {
	if s.Final == "zero" {
		last = 0
	}
	r := &run{solver: s, sigmas: narrow(append(slices.Clone(sigmas), last)), times: times,
		target: targets.m[s.Prediction]}
	for i, v := range r.sigmas {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) || i > 0 && v > r.sigmas[i-1] {
			return nil, fmt.Errorf("noise level %d of %d steps is %g: levels fall; take fewer steps", i, len(times), v)
		}
		r.levels = append(r.levels, half(v, s.FlowSigmas))
	}
	return r, nil
}

// sampler is the run with its steps.
func (r *run) sampler(step func(State, []float32, []float32) State) *Sampler {
	return &Sampler{Times: r.times, Sigmas: r.sigmas, Scale: 1, step: step}
}

// x0 is the prediction of the sample at evaluation i.
func (r *run) x0(i int, x, out []float32) []float32 {
	return r.solver.Threshold.apply(r.target.X0(r.levels[i], x, out))
}

// h is the step in λ from level i to level j.
func (r *run) h(i, j int) float32 { return r.levels[j].lambda() - r.levels[i].lambda() }
