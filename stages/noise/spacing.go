package noise

import (
	"fmt"
	"math"
	"slices"
)

// Spacing are the keys that choose which of training's times a sampler visits.
type Spacing struct {
	Kind   string `json:"timestep_spacing"` // linspace, leading or trailing (arXiv:2305.08891, table 2)
	Offset int    `json:"steps_offset"`     // added to the times of leading
}

func (s Spacing) check(f *faults) {
	f.OneOf("timestep_spacing", s.Kind, "linspace", "leading", "trailing")
	f.Within("steps_offset", float64(s.Offset), 0, trainStepsMax)
}

// times are n times of a table of `table` entries, the latest first. A solver that keeps the last time for itself
// (extra = 1) has n+1 of linspace and leading, and drops the smallest. end is the entry behind the last that may be
// visited; trailing has fewer than n times below it. linspace is rounded to whole times where round is true.
func (s Spacing) times(n, table, end, extra int, round bool) ([]float64, error) {
	var out []float64
	for i := range n {
		k := n - 1 - i + extra // counted from the smallest
		switch s.Kind {
		case "linspace":
			t := linspace(0, float64(end-1), n+extra, k)
			if round {
				t = math.RoundToEven(t)
			}
			out = append(out, float64(float32(t)))
		case "leading":
			out = append(out, float64(k*(end/(n+extra))+s.Offset))
		default:
			by := float64(end) - float64(table)/float64(n) - float64(end) // NumPy's arange steps by this
			if t := float64(end) + float64(float64(i)*by); t > 0 {
				out = append(out, math.RoundToEven(t)-1)
			}
		}
	}
	if len(out) == 0 || slices.Min(out) < 0 || slices.Max(out) > float64(table-1) {
		return nil, fmt.Errorf("%d steps with timestep_spacing %s and steps_offset %d leave the %d times of %s",
			n, s.Kind, s.Offset, table, "training: take fewer steps or a smaller offset")
	}
	return out, nil
}

// linspace is entry i of n numbers from a to b in float64, as NumPy has it.
func linspace(a, b float64, n, i int) float64 {
	if n == 1 {
		return a
	}
	if i == n-1 {
		return b
	}
	return float64(float64(i)*((b-a)/float64(n-1))) + a
}

// Sigmas are the keys that replace the noise levels of a grid by a curve between its ends.
type Sigmas struct {
	Karras      bool `json:"use_karras_sigmas"`      // arXiv:2206.00364, equation 5, ρ = 7
	Exponential bool `json:"use_exponential_sigmas"` // equal distances in ln σ
	Beta        bool `json:"use_beta_sigmas"`        // quantiles of Beta(0.6, 0.6), arXiv:2407.12173
}

func (s Sigmas) check(f *faults) {
	n := 0
	for _, on := range []bool{s.Karras, s.Exponential, s.Beta} {
		if on {
			n++
		}
	}
	if n > 1 {
		f.Add(s.key(), "set one of use_karras_sigmas, use_exponential_sigmas and use_beta_sigmas",
			"%d curves of noise levels are chosen", n)
	}
}

// key is that of the chosen curve, "" if there is none.
func (s Sigmas) key() string {
	switch {
	case s.Karras:
		return "use_karras_sigmas"
	case s.Exponential:
		return "use_exponential_sigmas"
	case s.Beta:
		return "use_beta_sigmas"
	}
	return ""
}

// curve has n levels from high to low.
func (s Sigmas) curve(low, high float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		switch r := linspace(0, 1, n, i); {
		case s.Karras:
			out[i] = karras(low, high, 7, r)
		case s.Exponential:
			out[i] = math.Exp(linspace(math.Log(high), math.Log(low), n, i))
		default:
			out[i] = low + betaQuantile(1-r, 0.6, 0.6)*(high-low)
		}
	}
	return out
}

// karras is the level at share r of the way from high to low.
func karras(low, high, rho, r float64) float64 {
	a, b := math.Pow(low, 1/rho), math.Pow(high, 1/rho)
	return math.Pow(b+float64(r*(a-b)), rho)
}

// betaQuantile is the inverse of the integral of Beta(a, b)'s density, by bisection to the last bit.
func betaQuantile(p, a, b float64) float64 {
	switch {
	case p <= 0:
		return 0
	case p >= 1:
		return 1
	case b == 1:
		return math.Pow(p, 1/a)
	}
	low, high := 0.0, 1.0
	for range 200 {
		x := (low + high) / 2
		if x == low || x == high {
			break
		}
		if betaIntegral(x, a, b) < p {
			low = x
		} else {
			high = x
		}
	}
	return (low + high) / 2
}

// betaIntegral is the regularised incomplete beta function by Lentz's continued fraction (DLMF 8.17.22).
func betaIntegral(x, a, b float64) float64 {
	if x > (a+1)/(a+b+2) {
		return 1 - betaIntegral(1-x, b, a)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log1p(-x)) / a
	c, d := 1.0, 1/(1-(a+b)*x/(a+1))
	h := d
	for m := 1.0; m < 500; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d, c = 1/(1+even*d), 1+even/c
		h *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d, c = 1/(1+odd*d), 1+odd/c
		h *= d * c
		if math.Abs(d*c-1) < 1e-16 {
			break
		}
	}
	return front * h
}
