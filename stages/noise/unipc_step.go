package noise

// uniStep is a step of UniPC from level i: x' = keep·x − by·(φ·m0 + B·Σ ρ·D).
type uniStep struct {
	order      int
	past       [][]float32 // evaluations, the newest, at the step's beginning, first
	keep, by   float32
	phi, scale float32   // φ1 = e^hh − 1 and B
	ratios     []float32 // r of the earlier evaluations, and 1 for the step's end
	rhs        []float32 // b
	ends       bool      // the step ends at a level of zero
}

// newStep prepares a step of an order from level i, with the evaluations up to there.
func (s *UniPC) newStep(r *run, i, order int, past [][]float32) uniStep {
	from, to := r.levels[i], r.levels[i+1]
	u := uniStep{order: order, past: past, keep: to.Sigma / from.Sigma, by: to.Alpha}
	h := r.h(i, i+1)
	hh := -h
	if !s.PredictX0 {
		u.keep, u.by, hh = to.Alpha/from.Alpha, to.Sigma, h
	}
	u.ends = r.sigmas[i+1] == 0
	u.phi = expm132(hh)
	if u.scale = u.phi; s.Kind == "bh1" {
		u.scale = hh
	}
	for k := 1; k < order; k++ {
		u.ratios = append(u.ratios, -r.h(i-k, i)/h)
	}
	u.ratios = append(u.ratios, 1)
	q, factorial := u.phi/hh-1, float32(1)
	for k := 1; k <= order; k++ {
		u.rhs = append(u.rhs, float32(q*factorial)/u.scale)
		factorial *= float32(k + 1)
		q = q/hh - 1/factorial
	}
	return u
}

// start is x' of order 1.
func (u uniStep) start(x []float32) []float32 {
	return axpy(u.keep, x, -float32(u.by*u.phi), u.past[0])
}

// predict is the next sample.
func (u uniStep) predict(x []float32) []float32 {
	if u.ends && u.order == 1 { // φ is −1 and B, of bh1 infinite, has nothing to multiply
		return axpy(1, u.past[0], 0, nil)
	}
	out := u.start(x)
	if u.order == 1 {
		return out
	}
	rho := []float32{0.5}
	if u.order > 2 {
		rho = solve(u.ratios[:u.order-1], u.rhs[:u.order-1])
	}
	return add(out, -float32(u.by*u.scale), u.differences(rho, len(x)))
}

// correct is the sample at the step's end, of the evaluation there.
func (u uniStep) correct(x, m []float32) []float32 {
	rho := []float32{0.5}
	if u.order > 1 {
		rho = solve(u.ratios, u.rhs)
	}
	d := u.differences(rho[:u.order-1], len(x))
	last := rho[u.order-1]
	for i, v := range m {
		d[i] += float32(last * (v - u.past[0][i]))
	}
	return add(u.start(x), -float32(u.by*u.scale), d)
}

// differences is Σ ρ·(m_k − m0)/r_k.
func (u uniStep) differences(rho []float32, n int) []float32 {
	out := make([]float32, n)
	for k, p := range rho {
		add(out, p, over(axpy(1, u.past[k+1], -1, u.past[0]), u.ratios[k]))
	}
	return out
}

// solve is ρ with Σ_j r_j^k·ρ_j = b_k for k = 0 …, by elimination in float64.
func solve(r, b []float32) []float32 {
	n := len(r)
	a := make([][]float64, n)
	for k := range a {
		a[k] = make([]float64, n+1)
		for j, v := range r {
			a[k][j] = 1
			for range k {
				a[k][j] = float64(float32(float32(a[k][j]) * v))
			}
		}
		a[k][n] = float64(b[k])
	}
	for c := range a {
		for k := range a {
			if k == c {
				continue
			}
			f := a[k][c] / a[c][c]
			for j := c; j <= n; j++ {
				a[k][j] -= float64(f * a[c][j])
			}
		}
	}
	out := make([]float32, n)
	for k := range out {
		out[k] = float32(a[k][n] / a[k][k])
	}
	return out
}
