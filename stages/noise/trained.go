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

// Graded are the keys of schedulers in σ-space that only train.
type Graded struct {
	Betas
	Sigmas
	Prediction string `json:"prediction_type"`
	Spacing
	class string
}

func graded(class string, start, end float64) bool {
	return Register(func() Scheduler {
		s := &Graded{Betas: defaultBetas(), Prediction: "epsilon", Spacing: Spacing{Kind: "linspace"}, class: class}
		s.Start, s.End = start, end
		return s
	})
}

var (
	_ = graded("LMSDiscreteScheduler", 1e-4, 0.02)
	_ = graded("KDPM2DiscreteScheduler", 0.00085, 0.012)
	_ = graded("KDPM2AncestralDiscreteScheduler", 0.00085, 0.012)
)

// Class is diffusers' name.
func (s *Graded) Class() string { return s.class }

// Predicts is the file's prediction_type.
func (s *Graded) Predicts() string { return s.Prediction }

func (s *Graded) check(f *faults) {
	s.Betas.check(f, s.class)
	s.Sigmas.check(f)
	s.Spacing.check(f)
	f.OneOf("prediction_type", s.Prediction, "epsilon", "sample", "v_prediction")
}

// Levels are the table of variances.
func (s *Graded) Levels() (Levels, error) { return variancePreserving(s.cumulative(false)), nil }

// Sampler is an error.
func (s *Graded) Sampler(Options) (*Sampler, error) { return nil, unsampled(s.class) }

// TCD is TCDScheduler (arXiv:2402.19159), which only trains.
type TCD struct{ Distilled }

var _ = Register(func() Scheduler { return &TCD{distilled()} })

// Class is diffusers' name.
func (*TCD) Class() string { return "TCDScheduler" }

func (s *TCD) check(f *faults) { s.checked(f, s.Class()) }

// Sampler is an error.
func (s *TCD) Sampler(Options) (*Sampler, error) { return nil, unsampled(s.Class()) }

// Solved are the keys of multistep solvers that only train; diffusers passes over those that a class does not have.
type Solved struct {
	DPMSolver
	Predictor int     `json:"predictor_order"`
	Corrector int     `json:"corrector_order"`
	Tau       *string `json:"tau_func"`
	class     string
}

func solved(class, algorithm, kind string) bool {
	return Register(func() Scheduler {
		return &Solved{DPMSolver: DPMSolver{Solver: defaultSolver(kind), Algorithm: algorithm, LambdaMin: math.Inf(-1)},
			Predictor: 2, Corrector: 2, class: class}
	})
}

var (
	_ = solved("DEISMultistepScheduler", "deis", "logrho")
	_ = solved("DPMSolverSinglestepScheduler", "dpmsolver++", "midpoint")
	_ = solved("SASolverScheduler", "data_prediction", "midpoint")
)

// Class is diffusers' name.
func (s *Solved) Class() string { return s.class }

func (s *Solved) check(f *faults) { s.Solver.check(f, s.class) }

// Sampler is an error.
func (s *Solved) Sampler(Options) (*Sampler, error) { return nil, unsampled(s.class) }

// DDPMParallel and DDIMParallel are the same processes; diffusers' pipelines that draw steps at once ask for them.
type (
	DDPMParallel struct{ DDPM }
	DDIMParallel struct{ DDIM }
)

var (
	_ = Register(func() Scheduler { return &DDPMParallel{*New("DDPMScheduler").(*DDPM)} })
	_ = Register(func() Scheduler { return &DDIMParallel{*New("DDIMScheduler").(*DDIM)} })
)

// Class is diffusers' name.
func (*DDPMParallel) Class() string { return "DDPMParallelScheduler" }

// Class is diffusers' name.
func (*DDIMParallel) Class() string { return "DDIMParallelScheduler" }
