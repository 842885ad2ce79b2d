package noise

import (
	"fmt"
	"math"
	"strings"
)

// Schedulers whose samplers are not there: their noise is a table of variances, or that of flow matching or EDM, like
// others', so that denoisers train under it, and their files are read and written.

// unsampled is why a class draws no samples.
func unsampled(class string) error {
	return fmt.Errorf("%s trains, and its sampler is not there: give sampling the scheduler_config.json of another class "+
		"with the same noise, as DPMSolverMultistepScheduler, DDIMScheduler or FlowMatchEulerDiscreteScheduler", class)
}

// refusals are the classes of diffusers that are not read, by the reason.
var refusals = map[string]string{
	"draws words or codes out of a list and adds no noise": "AmusedScheduler BlockRefinementScheduler " +
		"DiscreteDDIMScheduler EntropyBoundScheduler VQDiffusionScheduler",
	"is of consistency models, which learn from another model's steps": "CMStochasticIterativeScheduler " +
		"ConsistencyDecoderScheduler SCMScheduler",
	"has no table of training's times, and its denoiser is told of noise in its own way": "DDPMWuerstchenScheduler " +
		"CosineDPMSolverMultistepScheduler ScoreSdeVeScheduler ScoreSdeVpScheduler KarrasVeScheduler",
	"is another sampler of flow matching: FlowMatchEulerDiscreteScheduler, in its place, has the same noise": "" +
		"FlowMatchLCMScheduler LTXEulerAncestralRFScheduler",
	"has a denoiser that is told two times and learns the step between them": "FlowMapEulerDiscreteScheduler",
	"has a denoiser that gives several velocities at once":                   "PiflowScheduler",
	"has other noise at each stage of resolution":                            "HeliosScheduler HeliosDMDScheduler",
	"has one shift for video and another for sound, which its file lacks":    "MiniMaxH3Scheduler",
	"is of proteins' structures, and its file has no noise of training":      "RFD4ProteinaScheduler",
	"has the variances of a run's steps, and none of training":               "IPNDMScheduler",
}

// Solved are the keys of solvers that only train; diffusers passes over those that a class does not have.
type Solved struct {
	DPMSolver
	Predictor int     `json:"predictor_order"`
	Corrector int     `json:"corrector_order"`
	Tau       *string `json:"tau_func"`
	Seed      *int64  `json:"noise_sampler_seed"`
	class     string
}

func solved(class string, start, end float64, algorithm, kind string) bool {
	return Register(func() Scheduler {
		s := &Solved{DPMSolver: DPMSolver{Solver: defaultSolver(kind), Algorithm: algorithm, LambdaMin: math.Inf(-1)},
			Predictor: 2, Corrector: 2, class: class}
		s.Start, s.End = start, end
		s.LowerFinal = class != "DPMSolverSinglestepScheduler"
		return s
	})
}

var (
	_ = solved("DEISMultistepScheduler", 1e-4, 0.02, "deis", "logrho")
	_ = solved("DPMSolverSinglestepScheduler", 1e-4, 0.02, "dpmsolver++", "midpoint")
	_ = solved("DPMSolverMultistepInverseScheduler", 1e-4, 0.02, "dpmsolver++", "midpoint")
	_ = solved("SASolverScheduler", 1e-4, 0.02, "data_prediction", "midpoint")
	_ = solved("LMSDiscreteScheduler", 1e-4, 0.02, "", "")
	_ = solved("KDPM2DiscreteScheduler", 0.00085, 0.012, "", "")
	_ = solved("KDPM2AncestralDiscreteScheduler", 0.00085, 0.012, "", "")
	_ = solved("DPMSolverSDEScheduler", 0.00085, 0.012, "", "")
)

// Class is diffusers' name.
func (s *Solved) Class() string { return s.class }

func (s *Solved) check(f *faults) { s.Solver.check(f, s.class) }

// Sampler is an error.
func (s *Solved) Sampler(Options) (*Sampler, error) { return nil, unsampled(s.class) }

// Shaped are classes of DDIM's kind: DDIMInverseScheduler and RePaintScheduler, which add noise to a picture that is
// there, and CogVideoX's two, whose ratio of signal and noise is divided by a shift (arXiv:2408.06072). Of these
// CogVideoXDDIMScheduler samples too; diffusers passes over keys that a class does not have.
type Shaped struct {
	DDIM
	Eta      float64 `json:"eta"`             // of RePaint
	SNRShift float64 `json:"snr_shift_scale"` // of CogVideoX
}

func shaped(class string) bool {
	return Register(func() Scheduler {
		s := &Shaped{DDIM: *ddim(class), SNRShift: 3}
		if strings.HasPrefix(class, "CogVideoX") {
			s.Start, s.End, s.Schedule, s.snr = 0.00085, 0.012, "scaled_linear", &s.SNRShift
		}
		return s
	})
}

var _, _ = shaped("DDIMInverseScheduler"), shaped("RePaintScheduler")
var _, _ = shaped("CogVideoXDDIMScheduler"), shaped("CogVideoXDPMScheduler")

func (s *Shaped) check(f *faults) {
	s.DDIM.check(f)
	f.Within("snr_shift_scale", s.SNRShift, 1e-6, 1e6)
}

// Sampler lays out a run of DDIM's steps, which neither clips nor adds noise in CogVideoX.
func (s *Shaped) Sampler(o Options) (*Sampler, error) {
	if s.class != "CogVideoXDDIMScheduler" {
		return nil, unsampled(s.class)
	}
	if o.Eta != 0 {
		return nil, fmt.Errorf("%s adds no noise, and eta is %g: set 0", s.class, o.Eta)
	}
	d := s.DDIM
	d.Clip.On, d.Threshold.On = false, false
	return d.Sampler(o)
}

// UnCLIPScheduler is DDPM on the cosine table, with times from the first to the last.
var _ = Register(func() Scheduler {
	s := ddpm("UnCLIPScheduler")
	s.Schedule, s.Variance, s.Spacing.Kind = "squaredcos_cap_v2", "fixed_small_log", "linspace"
	return s
})

// EDMSolver is EDMDPMSolverMultistepScheduler, which only trains.
type EDMSolver struct {
	EDMEuler
	Order int `json:"solver_order"`
	Threshold
	Algorithm    string `json:"algorithm_type"`
	Kind         string `json:"solver_type"`
	LowerFinal   bool   `json:"lower_order_final"`
	EulerAtFinal bool   `json:"euler_at_final"`
}

var _ = Register(func() Scheduler {
	return &EDMSolver{EDMEuler: *New("EDMEulerScheduler").(*EDMEuler), Order: 2, Threshold: defaultThreshold(),
		Algorithm: "dpmsolver++", Kind: "midpoint", LowerFinal: true}
})

// Class is diffusers' name.
func (*EDMSolver) Class() string { return "EDMDPMSolverMultistepScheduler" }

func (s *EDMSolver) check(f *faults) { s.EDMEuler.check(f); s.Threshold.check(f) }

// Sampler is an error.
func (s *EDMSolver) Sampler(Options) (*Sampler, error) { return nil, unsampled(s.Class()) }

// TCD is TCDScheduler (arXiv:2402.19159), which only trains.
type TCD struct{ Distilled }

var _ = Register(func() Scheduler { return &TCD{distilled()} })

// Class is diffusers' name.
func (*TCD) Class() string { return "TCDScheduler" }

func (s *TCD) check(f *faults) { s.checked(f, s.Class()) }

// Sampler is an error.
func (s *TCD) Sampler(Options) (*Sampler, error) { return nil, unsampled(s.Class()) }
