package noise

import (
	"fmt"
	"slices"
)

// PNDM is PNDMScheduler, which Stable Diffusion 1's folders have: pseudo linear multi-step (arXiv:2202.09778, equation
// 12). Without skip_prk_steps a run begins by pseudo Runge-Kutta steps, which are not there.
type PNDM struct {
	Betas
	SkipPRK    bool   `json:"skip_prk_steps"`
	AlphaToOne bool   `json:"set_alpha_to_one"`
	Prediction string `json:"prediction_type"`
	Spacing
}

var _ = Register(func() Scheduler {
	return &PNDM{Betas: defaultBetas(), Prediction: "epsilon", Spacing: Spacing{Kind: "leading"}}
})

// Class is diffusers' name.
func (*PNDM) Class() string { return "PNDMScheduler" }

// Predicts is the file's prediction_type.
func (s *PNDM) Predicts() string { return s.Prediction }

func (s *PNDM) check(f *faults) {
	s.Betas.check(f, s.Class())
	s.Spacing.check(f)
	f.OneOf("prediction_type", s.Prediction, "epsilon", "v_prediction")
}

// Levels are the table of variances.
func (s *PNDM) Levels() (Levels, error) { return variancePreserving(s.cumulative(false)), nil }

// Sampler lays out a run of Steps+1 evaluations: the second time is visited twice.
func (s *PNDM) Sampler(o Options) (*Sampler, error) {
	if !s.SkipPRK {
		return nil, fmt.Errorf("PNDMScheduler with skip_prk_steps false begins by Runge-Kutta steps, which are not there: " +
			"set skip_prk_steps to true, or take DDIMScheduler")
	}
	v, err := newVPRun(s.Betas, s.Spacing, false, s.Prediction, o)
	if err != nil {
		return nil, err
	}
	times := v.times
	if len(times) > 1 {
		times = slices.Insert(slices.Clone(times), 1, times[1])
	}
	final := v.bars[0]
	if s.AlphaToOne {
		final = 1
	}
	p := &Sampler{Times: narrow(times), Scale: 1}
	p.past = func(done int) int { return min(done, max(1, min(done-1, 3))) }
	p.step = func(st State, out, _ []float32) State {
		t, by := int(times[st.Done]), s.TrainSteps/o.Steps
		from, to := t, t-by
		x, next := st.X, State{Past: pushed(out, st.Past, 3)}
		switch st.Done - st.From {
		case 0:
			next.Base = st.X
		case 1: // again from where the first step began, by the mean of both ends
			from, to, x, next.Past = t+by, t, st.Base, st.Past
		}
		next.X = s.towards(v, final, x, plms(out, st), from, to)
		return next
	}
	return p, nil
}

// plms is what the newest output comes to with those before it.
func plms(out []float32, st State) []float32 {
	switch past := st.Past; {
	case len(past) == 0:
		return out
	case st.Done-st.From == 1:
		return over(axpy(1, out, 1, past[0]), 2)
	case len(past) == 1:
		return over(axpy(3, out, -1, past[0]), 2)
	case len(past) == 2:
		return over(axpy(1, axpy(23, out, -16, past[0]), 5, past[1]), 12)
	default:
		sum := axpy(1, axpy(1, axpy(55, out, -59, past[0]), 37, past[1]), -9, past[2])
		return axpy(float32(1./24), sum, 0, nil)
	}
}

// towards is the step from a time to another (arXiv:2202.09778, equation 11); final is ᾱ before time 0.
func (s *PNDM) towards(v *vpRun, final float32, x, out []float32, from, to int) []float32 {
	bar, next := v.bars[min(from, len(v.bars)-1)], final
	if to >= 0 {
		next = v.bars[to]
	}
	left, nextLeft := 1-bar, 1-next
	if s.Prediction == "v_prediction" {
		out = axpy(sqrt32(bar), out, sqrt32(left), x)
	}
	under := float32(bar*sqrt32(nextLeft)) + sqrt32(float32(float32(bar*left)*next))
	return axpy(sqrt32(next/bar), x, -1, over(axpy(next-bar, out, 0, nil), under))
}
