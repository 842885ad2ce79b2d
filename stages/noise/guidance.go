package noise

import "math"

// Guide is classifier-free guidance (arXiv:2207.12598) in float32: without + scale·(with − without). A scale
// of 1 is the conditioned output, up to rounding.
func Guide(without, with []float32, scale float32) []float32 {
	out := make([]float32, len(with))
	for i, v := range with {
		out[i] = without[i] + float32(scale*(v-without[i]))
	}
	return out
}

// Rescale moves a guided output's standard deviation, that of one sample, towards that of the conditioned
// output: by the whole way where share is 1, not at all where it is 0 (arXiv:2305.08891, §3.4). A guided
// output without deviation stays.
func Rescale(guided, with []float32, share float32) []float32 {
	from, to := deviation(guided), deviation(with)
	out := make([]float32, len(guided))
	for i, v := range guided {
		if out[i] = v; from > 0 {
			out[i] = float32(share*float32(v*(to/from))) + float32((1-share)*v)
		}
	}
	return out
}

// deviation is the standard deviation with Bessel's correction, summed in float64.
func deviation(x []float32) float32 {
	if len(x) < 2 {
		return 0
	}
	mean, squares := 0.0, 0.0
	for _, v := range x {
		mean += float64(v)
	}
	mean /= float64(len(x))
	for _, v := range x {
		d := float64(v) - mean
		squares += float64(d * d)
	}
	return float32(math.Sqrt(squares / float64(len(x)-1)))
}
