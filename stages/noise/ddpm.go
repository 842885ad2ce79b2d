package noise

import "fmt"

// DDPM is DDPMScheduler: ancestral sampling (arXiv:2006.11239, equations 6 and 7; learned variances: arXiv:2102.09672).
type DDPM struct {
	Betas
	Variance string `json:"variance_type"`
	Clip
	Prediction string `json:"prediction_type"`
	Threshold
	Spacing
	ZeroSNR bool `json:"rescale_betas_zero_snr"`
	class   string
}

var _, _ = Register(func() Scheduler { return ddpm("DDPMScheduler") }), Register(func() Scheduler { return ddpm("DDPMParallelScheduler") })

func ddpm(class string) *DDPM {
	return &DDPM{class: class, Betas: defaultBetas(), Variance: "fixed_small", Clip: Clip{true, 1}, Prediction: "epsilon",
		Threshold: defaultThreshold(), Spacing: Spacing{Kind: "leading"}}
}

// Class is diffusers' name. The parallel class is the same process, for pipelines that draw steps at once.
func (s *DDPM) Class() string { return s.class }

// Predicts is the file's prediction_type.
func (s *DDPM) Predicts() string { return s.Prediction }

func (s *DDPM) check(f *faults) {
	s.Betas.check(f, s.Class())
	s.Clip.check(f)
	s.Threshold.check(f)
	s.Spacing.check(f)
	f.OneOf("variance_type", s.Variance, "fixed_small", "fixed_small_log", "fixed_large", "learned", "learned_range")
	checkVP(f, s.Prediction, s.ZeroSNR)
}

// checkVP holds the prediction to those of a variance-preserving process. At an SNR of exactly zero noise
// says nothing about the sample.
func checkVP(f *faults, prediction string, zeroSNR bool) {
	f.OneOf("prediction_type", prediction, "epsilon", "sample", "v_prediction")
	if zeroSNR && prediction == "epsilon" {
		f.Add("rescale_betas_zero_snr", "set prediction_type to v_prediction or sample",
			"prediction_type epsilon gives no sample at a signal of zero")
	}
}

// Levels are the table of variances.
func (s *DDPM) Levels() (Levels, error) { return variancePreserving(s.cumulative(s.ZeroSNR)), nil }

// Sampler lays out a run.
func (s *DDPM) Sampler(o Options) (*Sampler, error) {
	v, err := newVPRun(s.Betas, s.Spacing, s.ZeroSNR, s.Prediction, o)
	if err != nil {
		return nil, err
	}
	p := &Sampler{Times: narrow(v.times), Scale: 1, Noisy: true}
	if s.learned() {
		p.width = func(n int) int { return 2 * n }
	}
	p.step = func(st State, out, noise []float32) State {
		prev := -1
		if st.Done+1 < len(v.times) {
			prev = int(v.times[st.Done+1])
		}
		return s.ancestral(v, int(v.times[st.Done]), prev, st, out, noise)
	}
	return p, nil
}

func (s *DDPM) learned() bool { return s.Variance == "learned" || s.Variance == "learned_range" }

// ancestral draws the sample at time prev, which is −1 at the end.
func (s *DDPM) ancestral(v *vpRun, t, prev int, st State, out, noise []float32) State {
	bar, barPrev := v.bars[t], float32(1)
	if prev >= 0 {
		barPrev = v.bars[prev]
	}
	alpha := bar / barPrev
	beta, left, leftPrev := 1-alpha, 1-bar, 1-barPrev
	x0 := v.target.X0(Level{Alpha: sqrt32(bar), Sigma: sqrt32(left)}, st.X, out[:len(st.X)])
	if s.Threshold.On {
		x0 = s.Threshold.apply(x0)
	} else {
		x0 = s.Clip.apply(x0)
	}
	x := axpy(float32(sqrt32(barPrev)*beta)/left, x0, float32(sqrt32(alpha)*leftPrev)/left, st.X)
	if t == 0 {
		return State{X: x}
	}
	small := max(float32(leftPrev/left*(1-bar/barPrev)), 1e-20)
	if s.learned() {
		return State{X: s.addLearned(x, out[len(x):], small, beta, noise)}
	}
	deviation := sqrt32(small)
	switch s.Variance {
	case "fixed_small_log":
		deviation = exp32(0.5 * log32(small))
	case "fixed_large":
		deviation = sqrt32(beta)
	}
	return State{X: add(x, deviation, noise)}
}

// addLearned adds noise of the variance that the denoiser gave: the variance itself, or the place of its
// logarithm between the small and the large one, from −1 to 1. A negative variance counts as none.
func (s *DDPM) addLearned(x, given []float32, small, large float32, noise []float32) []float32 {
	low, high := log32(small), log32(large)
	for i, v := range given {
		if s.Variance == "learned" {
			x[i] += float32(sqrt32(max(v, 0)) * noise[i])
			continue
		}
		share := (v + 1) / 2
		log := float32(share*high) + float32((1-share)*low)
		x[i] += float32(exp32(0.5*log) * noise[i])
	}
	return x
}

// vpRun is what runs of DDPM and DDIM share.
type vpRun struct {
	bars   []float32
	times  []float64
	target Target
}

func newVPRun(b Betas, sp Spacing, zeroSNR bool, prediction string, o Options) (*vpRun, error) {
	if err := checkSteps(o.Steps, b.TrainSteps); err != nil {
		return nil, err
	}
	if o.Sigmas != nil {
		return nil, fmt.Errorf("noise levels of one's own are for schedulers of flow matching: leave them out")
	}
	times, err := sp.times(o.Steps, b.TrainSteps, b.TrainSteps, 0, true)
	if err != nil {
		return nil, err
	}
	return &vpRun{b.cumulative(zeroSNR), times, targets.m[prediction]}, nil
}
