package noise

import (
	"fmt"
	"math"
)

// EDMEuler is EDMEulerScheduler: preconditioned denoisers by Euler's method with churn (arXiv:2206.00364).
type EDMEuler struct {
	SigmaMin   float64 `json:"sigma_min"`
	SigmaMax   float64 `json:"sigma_max"`
	SigmaData  float64 `json:"sigma_data"`
	Curve      string  `json:"sigma_schedule"` // karras or exponential
	TrainSteps int     `json:"num_train_timesteps"`
	Prediction string  `json:"prediction_type"` // epsilon is F as in the paper, v_prediction is −F
	Rho        float64 `json:"rho"`
	Final      string  `json:"final_sigmas_type"`
}

var _ = Register(func() Scheduler {
	return &EDMEuler{SigmaMin: 0.002, SigmaMax: 80, SigmaData: 0.5, Curve: "karras", TrainSteps: 1000,
		Prediction: "epsilon", Rho: 7, Final: "zero"}
})

// Class is diffusers' name.
func (*EDMEuler) Class() string { return "EDMEulerScheduler" }

// Predicts is "edm", or "edm_v" of the other sign.
func (s *EDMEuler) Predicts() string {
	if s.Prediction == "v_prediction" {
		return "edm_v"
	}
	return "edm"
}

func (s *EDMEuler) check(f *faults) {
	checkTrainSteps(f, s.TrainSteps)
	checkEnds(f, &s.SigmaMin, &s.SigmaMax)
	f.Within("sigma_data", s.SigmaData, 1e-6, 1e6)
	f.Within("rho", s.Rho, 0.1, 100)
	f.OneOf("sigma_schedule", s.Curve, "karras", "exponential")
	f.OneOf("prediction_type", s.Prediction, "epsilon", "v_prediction")
	f.OneOf("final_sigmas_type", s.Final, "zero", "sigma_min")
}

// Levels are the paper's, ln σ normal with mean −1.2 and deviation 1.2.
func (s *EDMEuler) Levels() (Levels, error) { return EDM{Mean: -1.2, Std: 1.2, Data: s.SigmaData}, nil }

// Sampler lays out a run.
func (s *EDMEuler) Sampler(o Options) (*Sampler, error) {
	if o.Sigmas != nil {
		return nil, fmt.Errorf("noise levels of one's own are for schedulers of flow matching: leave them out")
	}
	if err := checkSteps(o.Steps, stepsMax); err != nil {
		return nil, err
	}
	p := &Sampler{Sigmas: s.grid(o.Steps), Noisy: o.Churn.S > 0}
	for _, v := range p.Sigmas {
		p.Times = append(p.Times, float32(0.25*log32(v)))
	}
	last := float32(0)
	if s.Final == "sigma_min" {
		last = p.Sigmas[o.Steps-1]
	}
	p.Sigmas = append(p.Sigmas, last)
	p.Scale = float32(math.Sqrt(s.SigmaMax*s.SigmaMax + 1))
	data := float32(s.SigmaData)
	p.input = func(i int, x []float32) []float32 {
		v := p.Sigmas[i]
		return axpy(1/sqrt32(float32(v*v)+float32(data*data)), x, 0, nil)
	}
	target := targets.m[s.Predicts()]
	p.step = func(st State, out, noise []float32) State {
		x, hat := o.Churn.apply(p.Sigmas, st, noise)
		x0 := target.X0(Level{Alpha: 1, Sigma: hat, Data: data}, x, out)
		return State{X: towards(x, x0, hat, p.Sigmas[st.Done+1])}
	}
	return p, nil
}

// grid are the levels from the largest down.
func (s *EDMEuler) grid(n int) []float32 {
	if s.Curve == "exponential" {
		logs := linspace32(math.Log(s.SigmaMin), math.Log(s.SigmaMax), n)
		out := make([]float32, n)
		for i, l := range logs {
			out[n-1-i] = exp32(l)
		}
		return out
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(karras(s.SigmaMin, s.SigmaMax, s.Rho, linspace(0, 1, n, i)))
	}
	return out
}
