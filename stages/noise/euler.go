package noise

import (
	"fmt"
	"math"
	"slices"
)

// Euler is EulerDiscreteScheduler: Euler's method in σ-space, x = x0 + σ·ε, with churn (arXiv:2206.00364,
// algorithm 2 without its correction).
type Euler struct {
	Betas
	Prediction    string `json:"prediction_type"`
	Interpolation string `json:"interpolation_type"` // linear or log_linear
	Sigmas
	SigmaMin *float64 `json:"sigma_min"`
	SigmaMax *float64 `json:"sigma_max"`
	Spacing
	TimeType string `json:"timestep_type"` // continuous tells a v-prediction ¼·ln σ
	ZeroSNR  bool   `json:"rescale_betas_zero_snr"`
	Final    string `json:"final_sigmas_type"`
}

var _ = Register(func() Scheduler {
	return &Euler{Betas: defaultBetas(), Prediction: "epsilon", Interpolation: "linear",
		Spacing: Spacing{Kind: "linspace"}, TimeType: "discrete", Final: "zero"}
})

// Class is diffusers' name.
func (*Euler) Class() string { return "EulerDiscreteScheduler" }

// Predicts is the file's prediction_type.
func (s *Euler) Predicts() string {
	if s.Prediction == "original_sample" {
		return "sample"
	}
	return s.Prediction
}

func (s *Euler) check(f *faults) {
	s.Betas.check(f, s.Class())
	s.Sigmas.check(f)
	s.Spacing.check(f)
	checkEnds(f, s.SigmaMin, s.SigmaMax)
	f.OneOf("prediction_type", s.Prediction, "epsilon", "sample", "v_prediction", "original_sample")
	f.OneOf("interpolation_type", s.Interpolation, "linear", "log_linear")
	f.OneOf("timestep_type", s.TimeType, "discrete", "continuous")
	f.OneOf("final_sigmas_type", s.Final, "zero", "sigma_min")
	if key := s.Sigmas.key(); key != "" && s.Interpolation == "log_linear" {
		f.Add("interpolation_type", "leave one out", "%s chooses the levels too", key)
	}
	if (s.SigmaMin != nil || s.SigmaMax != nil) && s.Sigmas.key() == "" {
		f.Add("sigma_min", "set use_karras_sigmas to true, or null",
			"only curves of noise levels have ends of their own")
	}
}

// Levels are the table of variances.
func (s *Euler) Levels() (Levels, error) { return variancePreserving(s.solverBars(s.ZeroSNR)), nil }

// Sampler lays out a run.
func (s *Euler) Sampler(o Options) (*Sampler, error) {
	g, err := newSigmaGrid(s.Betas, s.Spacing, s.Sigmas, sigmaTable(s.solverBars(s.ZeroSNR)), o, s.SigmaMin, s.SigmaMax)
	if err != nil {
		return nil, err
	}
	if s.Interpolation == "log_linear" {
		g.logLinear()
	}
	last := 0.0
	if s.Final == "sigma_min" {
		last = g.table[0]
	}
	p := &Sampler{Times: narrow(g.times), Sigmas: narrow(append(g.sigmas, last)), Noisy: o.Churn.S > 0}
	if s.TimeType == "continuous" && s.Prediction == "v_prediction" {
		for i := range p.Times {
			p.Times[i] = float32(0.25 * log32(p.Sigmas[i]))
		}
	}
	p.Scale = g.scale(p.Sigmas)
	p.input = func(i int, x []float32) []float32 { return scaledInput(p.Sigmas[i], x) }
	p.step = func(st State, out, noise []float32) State {
		now := p.Sigmas[st.Done]
		x, hat := o.Churn.apply(p.Sigmas, st, noise)
		return State{X: towards(x, sigmaX0(s.Predicts(), now, hat, x, out), hat, p.Sigmas[st.Done+1])}
	}
	return p, nil
}

// scaledInput is what a denoiser of a variance-preserving process is given in σ-space.
func scaledInput(sigma float32, x []float32) []float32 {
	return over(x, sqrt32(float32(sigma*sigma)+1))
}

// sigmaX0 is the prediction of the sample in σ-space; of noise at the level hat, which churn has raised.
func sigmaX0(prediction string, sigma, hat float32, x, out []float32) []float32 {
	switch prediction {
	case "epsilon":
		return axpy(1, x, -hat, out)
	case "v_prediction":
		sum := float32(sigma*sigma) + 1
		clean := axpy(-sigma/sqrt32(sum), out, 0, nil)
		return axpy(1, clean, 1, over(x, sum))
	}
	return out
}

// towards is Euler's step from a level to the next.
func towards(x, x0 []float32, sigma, next float32) []float32 {
	return axpy(1, x, next-sigma, over(axpy(1, x, -1, x0), sigma))
}

// apply is the sample with churn, and its level.
func (c Churn) apply(sigmas []float32, st State, noise []float32) ([]float32, float32) {
	sigma := sigmas[st.Done]
	gamma := min(float64(c.S)/float64(len(sigmas)-1), math.Sqrt2-1)
	if c.S <= 0 || sigma < c.Min || c.Max > 0 && sigma > c.Max {
		return st.X, sigma
	}
	hat := float32(sigma * float32(gamma+1))
	by := sqrt32(float32(hat*hat) - float32(sigma*sigma))
	scale := c.Noise
	if scale == 0 {
		scale = 1
	}
	return axpy(1, st.X, by, axpy(scale, noise, 0, nil)), hat
}

// sigmaGrid is a grid of levels in σ-space.
type sigmaGrid struct {
	table, times, sigmas []float64
	leading              bool
}

// newSigmaGrid lays out the levels and times of Euler and Heun.
func newSigmaGrid(b Betas, sp Spacing, c Sigmas, table []float64, o Options, low, high *float64) (*sigmaGrid, error) {
	if o.Sigmas != nil {
		return nil, fmt.Errorf("noise levels of one's own are for schedulers of flow matching: leave them out")
	}
	if err := checkSteps(o.Steps, min(b.TrainSteps, stepsMax)); err != nil {
		return nil, err
	}
	times, err := sp.times(o.Steps, b.TrainSteps, b.TrainSteps, 0, false)
	if err != nil {
		return nil, err
	}
	g := &sigmaGrid{table: table, times: times, leading: sp.Kind == "leading"}
	for _, t := range times {
		g.sigmas = append(g.sigmas, at(table, t))
	}
	if c.key() != "" {
		from, to := ends(g.sigmas[len(times)-1], g.sigmas[0], low, high)
		g.sigmas = c.curve(from, to, len(times))
		g.times = timesOf(g.sigmas, table)
	}
	return g, nil
}

// logLinear are n+1 levels at equal distances of their logarithms, from the table's largest to its smallest.
func (g *sigmaGrid) logLinear() {
	low, high := g.table[0], g.table[len(g.table)-1]
	levels := linspace32(math.Log(high), math.Log(low), len(g.times)+1)
	g.sigmas = g.sigmas[:0]
	for _, l := range levels {
		g.sigmas = append(g.sigmas, float64(exp32(l)))
	}
}

// scale is what noise begins with: the largest level, or with leading √(σ²+1).
func (g *sigmaGrid) scale(sigmas []float32) float32 {
	high := slices.Max(sigmas)
	if g.leading {
		return sqrt32(float32(high*high) + 1)
	}
	return high
}
