package noise

import (
	"fmt"
	"math"
)

// FlowMatchEuler is FlowMatchEulerDiscreteScheduler: flow matching by Euler's method (arXiv:2403.03206).
// Without levels of its own in [Options.Sigmas] it shifts twice, as diffusers does: the ends of its grid are
// those of the shifted table, and the grid is shifted again.
type FlowMatchEuler struct {
	TrainSteps int      `json:"num_train_timesteps"`
	Shift      float64  `json:"shift"`
	Dynamic    bool     `json:"use_dynamic_shifting"` // the shift follows the number of tokens (Mu)
	BaseShift  *float64 `json:"base_shift"`
	MaxShift   *float64 `json:"max_shift"`
	BaseTokens int      `json:"base_image_seq_len"`
	MaxTokens  int      `json:"max_image_seq_len"`
	Invert     bool     `json:"invert_sigmas"`
	Terminal   *float64 `json:"shift_terminal"` // the last level, by stretching; null or 0 leaves it
	Sigmas
	ShiftType  string `json:"time_shift_type"` // of a dynamic shift: exponential or linear
	Stochastic bool   `json:"stochastic_sampling"`
}

var _ = Register(func() Scheduler {
	base, most := 0.5, 1.15
	return &FlowMatchEuler{TrainSteps: 1000, Shift: 1, BaseShift: &base, MaxShift: &most, BaseTokens: 256,
		MaxTokens: 4096, ShiftType: "exponential"}
})

// Shifted is flow matching with a shift towards noise, 1 for none.
func Shifted(shift float64) Scheduler {
	s := New("FlowMatchEulerDiscreteScheduler").(*FlowMatchEuler)
	s.Shift = shift
	return s
}

// Class is diffusers' name.
func (*FlowMatchEuler) Class() string { return "FlowMatchEulerDiscreteScheduler" }

// Predicts is the velocity.
func (*FlowMatchEuler) Predicts() string { return "flow_prediction" }

func (s *FlowMatchEuler) check(f *faults) {
	checkTrainSteps(f, s.TrainSteps)
	f.Within("shift", s.Shift, 1e-6, 1e6)
	f.OneOf("time_shift_type", s.ShiftType, "exponential", "linear")
	checkTerminal(f, s.Terminal)
	s.Sigmas.check(f)
	if s.Dynamic && (s.BaseShift == nil || s.MaxShift == nil) {
		f.Add("use_dynamic_shifting", "set base_shift and max_shift", "the shift has no ends")
	}
	if s.Dynamic && s.MaxTokens <= s.BaseTokens {
		f.Add("max_image_seq_len", "set more than base_image_seq_len", "%d tokens are no more than %d",
			s.MaxTokens, s.BaseTokens)
	}
}

// checkTerminal refuses a last level that is none.
func checkTerminal(f *faults, t *float64) {
	if t != nil {
		f.Within("shift_terminal", *t, 0, 0.999)
	}
}

// Levels are the shifted table; a dynamic shift leaves training's table as it is.
func (s *FlowMatchEuler) Levels() (Levels, error) {
	if s.Dynamic {
		return flowTable(s.TrainSteps, 1), nil
	}
	return flowTable(s.TrainSteps, s.Shift), nil
}

// Mu is the logarithm of the dynamic shift of a sample of so many tokens: linear, from base_shift at
// base_image_seq_len to max_shift at max_image_seq_len.
func (s *FlowMatchEuler) Mu(tokens int) float64 {
	if s.BaseShift == nil || s.MaxShift == nil || s.MaxTokens == s.BaseTokens {
		return 0
	}
	m := (*s.MaxShift - *s.BaseShift) / float64(s.MaxTokens-s.BaseTokens)
	return float64(float64(tokens)*m) + (*s.BaseShift - float64(m*float64(s.BaseTokens)))
}

// FlowLevels are n equal steps from 1 to 1/n, which pipelines of Qwen-Image and Flux.1 give as levels.
func FlowLevels(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = linspace(1, 1/float64(n), n, i)
	}
	return out
}

// Sampler lays out a run.
func (s *FlowMatchEuler) Sampler(o Options) (*Sampler, error) {
	if err := checkLevels(o); err != nil {
		return nil, err
	}
	grid := o.Sigmas
	if grid == nil {
		table := flowTable(s.TrainSteps, s.Shift)
		if s.Dynamic {
			table = flowTable(s.TrainSteps, 1)
		}
		high, low := float64(table[0].Sigma), float64(table[len(table)-1].Sigma)
		grid = make([]float64, o.Steps)
		for i := range grid {
			grid[i] = linspace(high, low, o.Steps, i)
		}
	}
	grid = shifted(grid, s.Shift, s.Dynamic, s.ShiftType, o.Mu)
	if grid = stretched(grid, s.Terminal); s.Sigmas.key() != "" {
		grid = s.Sigmas.curve(grid[len(grid)-1], grid[0], len(grid))
	}
	if !finite(grid) {
		return nil, fmt.Errorf("%d levels of flow matching with shift_terminal: the last is not below 1: %s",
			len(grid), "take more")
	}
	return s.layOut(narrow(grid)), nil
}

// layOut is the run over finished levels.
func (s *FlowMatchEuler) layOut(sigmas []float32) *Sampler {
	end := float32(0)
	if s.Invert {
		end = 1
		for i := range sigmas {
			sigmas[i] = 1 - sigmas[i]
		}
	}
	p := &Sampler{Sigmas: append(sigmas, end), Scale: 1, Noisy: s.Stochastic}
	for _, v := range sigmas {
		p.Times = append(p.Times, float32(v*float32(s.TrainSteps)))
	}
	p.step = func(st State, out, noise []float32) State {
		now, next := p.Sigmas[st.Done], p.Sigmas[st.Done+1]
		if s.Stochastic {
			return State{X: axpy(1-next, axpy(1, st.X, -now, out), next, noise)}
		}
		return State{X: axpy(1, st.X, next-now, out)}
	}
	return p
}

// checkLevels refuses options without steps or with levels that are no falling shares of noise.
func checkLevels(o Options) error {
	if o.Sigmas == nil || len(o.Sigmas) > stepsMax {
		return checkSteps(max(o.Steps, len(o.Sigmas)), stepsMax)
	}
	if o.Steps != 0 && o.Steps != len(o.Sigmas) {
		return fmt.Errorf("%d noise levels for a sampler of %d steps: leave one out", len(o.Sigmas), o.Steps)
	}
	last := math.Inf(1)
	for i, v := range o.Sigmas {
		if !(v > 0 && v <= 1 && v < last) {
			return fmt.Errorf("noise level %d is %g: levels of flow matching fall from at most 1 to above 0", i, v)
		}
		last = v
	}
	return checkSteps(len(o.Sigmas), stepsMax)
}

// shifted moves levels towards noise: shift·s/(1+(shift−1)·s), or of a dynamic shift e^μ (linear: μ) in the
// place of the shift.
func shifted(grid []float64, shift float64, dynamic bool, kind string, mu float64) []float64 {
	out := make([]float64, len(grid))
	for i, v := range grid {
		if !dynamic {
			out[i] = shift * v / (1 + float64((shift-1)*v))
			continue
		}
		by := mu
		if kind == "exponential" {
			by = math.Exp(mu)
		}
		out[i] = by / (by + (1/v - 1))
	}
	return out
}

// stretched moves the last level to the terminal one, and the others in proportion to their distance from 1.
func stretched(grid []float64, terminal *float64) []float64 {
	if terminal == nil || *terminal == 0 {
		return grid
	}
	by := (1 - grid[len(grid)-1]) / (1 - *terminal)
	out := make([]float64, len(grid))
	for i, v := range grid {
		out[i] = 1 - (1-v)/by
	}
	return out
}

func finite(x []float64) bool {
	for _, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}
