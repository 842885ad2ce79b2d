package noise

import (
	"fmt"
	"math"
)

// Schedulers whose samplers are not there: their noise is a table of variances like others', so that denoisers train
// under it, and their files are read and written.

// unsampled is why a class draws no samples.
func unsampled(class string) error {
	return fmt.Errorf("%s trains, and its sampler is not there: give sampling the scheduler_config.json of another class "+
		"with the same betas, as DPMSolverMultistepScheduler or EulerDiscreteScheduler", class)
}

// Solved are the keys of solvers that only train; diffusers passes over those that a class does not have.
type Solved struct {
	DPMSolver
	Predictor int     `json:"predictor_order"`
	Corrector int     `json:"corrector_order"`
	Tau       *string `json:"tau_func"`
	class     string
}

func solved(class string, start, end float64, algorithm, kind string) bool {
	return Register(func() Scheduler {
		s := &Solved{DPMSolver: DPMSolver{Solver: defaultSolver(kind), Algorithm: algorithm, LambdaMin: math.Inf(-1)},
			Predictor: 2, Corrector: 2, class: class}
		s.Start, s.End = start, end
		return s
	})
}

var (
	_ = solved("DEISMultistepScheduler", 1e-4, 0.02, "deis", "logrho")
	_ = solved("DPMSolverSinglestepScheduler", 1e-4, 0.02, "dpmsolver++", "midpoint")
	_ = solved("SASolverScheduler", 1e-4, 0.02, "data_prediction", "midpoint")
	_ = solved("LMSDiscreteScheduler", 1e-4, 0.02, "", "")
	_ = solved("KDPM2DiscreteScheduler", 0.00085, 0.012, "", "")
	_ = solved("KDPM2AncestralDiscreteScheduler", 0.00085, 0.012, "", "")
)

// Class is diffusers' name.
func (s *Solved) Class() string { return s.class }

func (s *Solved) check(f *faults) { s.Solver.check(f, s.class) }

// Sampler is an error.
func (s *Solved) Sampler(Options) (*Sampler, error) { return nil, unsampled(s.class) }

// TCD is TCDScheduler (arXiv:2402.19159), which only trains.
type TCD struct{ Distilled }

var _ = Register(func() Scheduler { return &TCD{distilled()} })

// Class is diffusers' name.
func (*TCD) Class() string { return "TCDScheduler" }

func (s *TCD) check(f *faults) { s.checked(f, s.Class()) }

// Sampler is an error.
func (s *TCD) Sampler(Options) (*Sampler, error) { return nil, unsampled(s.Class()) }
