package noise

import (
	"math"
	"sort"
)

// DPMSolver is DPMSolverMultistepScheduler: DPM-Solver++ of orders 1 to 3 and its stochastic form
// (arXiv:2211.01095, algorithm 2 and appendix; 2M is order 2 by "midpoint").
type DPMSolver struct {
	Solver
	Algorithm    string  `json:"algorithm_type"` // dpmsolver++ or sde-dpmsolver++
	EulerAtFinal bool    `json:"euler_at_final"`
	LuLambdas    bool    `json:"use_lu_lambdas"`
	LambdaMin    float64 `json:"lambda_min_clipped"` // later times are left out
	Variance     *string `json:"variance_type"`
}

var _ = Register(func() Scheduler {
	return &DPMSolver{Solver: defaultSolver("midpoint"), Algorithm: "dpmsolver++", LambdaMin: math.Inf(-1)}
})

// Class is diffusers' name.
func (*DPMSolver) Class() string { return "DPMSolverMultistepScheduler" }

func (s *DPMSolver) check(f *faults) {
	s.Solver.check(f, s.Class())
	f.OneOf("algorithm_type", s.Algorithm, "dpmsolver++", "sde-dpmsolver++")
	f.OneOf("solver_type", s.Kind, "midpoint", "heun")
	f.OneOf("time_shift_type", s.ShiftType, "exponential")
	if s.Variance != nil {
		f.Add("variance_type", "set null", "learned variances are not read by this solver")
	}
	if key := s.curveKey(); key != "" && s.FlowSigmas {
		f.Add(key, "leave one out", "the curve has levels above 1, which flow matching (use_flow_sigmas) does not")
	}
	if s.LuLambdas && s.Sigmas.key() != "" {
		f.Add("use_lu_lambdas", "leave one out", "%s chooses the levels too", s.Sigmas.key())
	}
	if math.IsNaN(s.LambdaMin) || s.LambdaMin > 20 {
		f.Add("lambda_min_clipped", "set about -5.1, or -Infinity for none", "%g leaves no times", s.LambdaMin)
	}
}

// curveKey is the key that chooses levels by a curve.
func (s *DPMSolver) curveKey() string {
	if s.LuLambdas {
		return "use_lu_lambdas"
	}
	return s.Sigmas.key()
}

// Sampler lays out a run.
func (s *DPMSolver) Sampler(o Options) (*Sampler, error) {
	if err := s.checkOptions(o); err != nil {
		return nil, err
	}
	table := sigmaTable(s.solverBars(s.ZeroSNR))
	sigmas, times, err := s.grid(o, table)
	if err != nil {
		return nil, err
	}
	r, err := s.newRun(sigmas, times, table[0])
	if err != nil {
		return nil, err
	}
	sde := s.Algorithm == "sde-dpmsolver++"
	p := r.sampler(func(st State, out, noise []float32) State { return s.multistep(r, sde, st, out, noise) })
	p.Noisy = sde
	p.past = func(done int) int { return min(done, s.Order-1) }
	return p, nil
}

// grid are the levels and their times.
func (s *DPMSolver) grid(o Options, table []float64) ([]float64, []float32, error) {
	n := o.Steps
	if s.FlowSigmas {
		sigmas := o.Sigmas
		if sigmas != nil {
			sigmas = shifted(sigmas, s.shift(o), false, "", 0)
		} else {
			sigmas = s.flowGrid(n, s.shift(o))
		}
		return sigmas, truncatedTimes(sigmas, s.TrainSteps), nil
	}
	low, high := table[0], table[len(table)-1]
	if s.curveKey() == "" {
		times, err := s.Spacing.times(n, s.TrainSteps, s.lastTime(table), 1, true)
		if err != nil {
			return nil, nil, err
		}
		sigmas := make([]float64, len(times))
		for i, t := range times {
			sigmas[i] = at(table, t)
		}
		return sigmas, truncated(times), nil
	}
	curve := s.Sigmas
	if s.LuLambdas { // Lu's λ are at equal distances, as those of exponential
		curve = Sigmas{Exponential: true}
	}
	sigmas := curve.curve(low, high, n)
	times := timesOf(sigmas, table)
	if (s.Karras || s.LuLambdas) && s.Schedule != "squaredcos_cap_v2" {
		times = rounded(times)
	}
	return sigmas, truncated(times), nil
}

// shift is the shift of flow matching.
func (s *DPMSolver) shift(o Options) float64 {
	if s.Dynamic {
		return math.Exp(o.Mu)
	}
	return s.FlowShift
}

// flowGrid are shifted levels of 1−a for n+1 numbers a from 1 to 1/T, the largest first and without the 0.
func (s *DPMSolver) flowGrid(n int, shift float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 1 - linspace(1, 1/float64(s.TrainSteps), n+1, n-i)
	}
	return shifted(out, shift, false, "", 0)
}

// lastTime is the time behind the last whose λ is at least lambda_min_clipped.
func (s *DPMSolver) lastTime(table []float64) int {
	n := len(table)
	below := sort.Search(n, func(i int) bool { // from the latest time, whose λ is the smallest
		return -math.Log(table[n-1-i]) >= s.LambdaMin
	})
	return n - below
}

// truncatedTimes are the whole times of levels of flow matching.
func truncatedTimes(sigmas []float64, n int) []float32 {
	times := make([]float64, len(sigmas))
	for i, v := range sigmas {
		times[i] = v * float64(n)
	}
	return truncated(times)
}

// order is that of step i of a run that began at `from`: less at the start, and at the end of short runs.
func (s *DPMSolver) order(i, from, n int) int {
	short := s.LowerFinal && n < 15
	switch {
	case i == from, i == n-1 && (s.EulerAtFinal || short || s.Final == "zero"):
		return 1
	case i == n-2 && short:
		return min(s.Order, 2, i-from+1)
	}
	return min(s.Order, i-from+1)
}

// multistep is a step. m are the predictions of the sample, the newest first.
func (s *DPMSolver) multistep(r *run, sde bool, st State, out, noise []float32) State {
	i := st.Done
	m := pushed(r.x0(i, st.X, out), st.Past, s.Order)
	next := State{Past: m[:min(len(m), s.Order-1)]}
	order := s.order(i, st.From, len(r.times))
	if r.sigmas[i+1] == r.sigmas[i] { // a step of length zero: differences over it are not defined
		order = 1
	}
	if r.sigmas[i+1] == 0 && order == 1 { // h is infinite: what is left is the prediction
		next.X = axpy(1, m[0], 0, nil)
		return next
	}
	h, to := r.h(i, i+1), r.levels[i+1]
	c := coefficients(h, to.Alpha, sde)
	by := to.Sigma / r.levels[i].Sigma
	if sde {
		by = float32(by * exp32(-h))
	}
	x := axpy(by, st.X, c.zero, m[0])
	if order > 1 {
		s.corrections(x, r, i, order, h, c, m)
	}
	if sde {
		add(x, float32(to.Sigma*sqrt32(1-exp32(-2*h))), noise)
	}
	next.X = x
	return next
}

// weightsDPM are what the prediction and its first and second divided differences are multiplied with.
type weightsDPM struct{ zero, middle, one, two float32 }

// coefficients are the weights of a step h to a level of signal alpha; middle is half of zero.
func coefficients(h, alpha float32, sde bool) weightsDPM {
	e, g := exp32(-h)-1, h
	if sde {
		e, g = exp32(-2*h)-1, 2*h
	}
	c := weightsDPM{zero: -float32(alpha * e)}
	c.middle = float32(0.5 * c.zero)
	c.one = float32(alpha * (e/g + 1))
	c.two = -float32(alpha * ((e+g)/float32(g*g) - 0.5))
	if sde { // diffusers: (1−e^{−2h})/(−2h) + 1, and ((1−e^{−2h}−2h)/(2h)² − ½) added
		c.one = float32(alpha * (-e/-g + 1))
		c.two = float32(alpha * ((-e-g)/float32(g*g) - 0.5))
	}
	return c
}

// corrections adds the terms of order 2 or 3 to x.
func (s *DPMSolver) corrections(x []float32, r *run, i, order int, h float32, c weightsDPM, m [][]float32) {
	r0 := r.h(i-1, i) / h
	d := axpy(1, m[0], -1, m[1])
	d = axpy(1/r0, d, 0, nil)
	if order == 2 {
		if s.Kind == "heun" {
			add(x, c.one, d)
		} else {
			add(x, c.middle, d)
		}
		return
	}
	r1 := r.h(i-2, i-1) / h
	older := axpy(1/r1, axpy(1, m[1], -1, m[2]), 0, nil)
	change := axpy(1, d, -1, older)
	d1 := axpy(1, d, r0/(r0+r1), change)
	add(add(x, c.one, d1), c.two, axpy(1/(r0+r1), change, 0, nil))
}
