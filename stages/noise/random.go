package noise

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// Key counts random numbers from a sample: number e of draw d is a hash of (sample, d, e) and of nothing
// else, so that no plan, order or restart changes it. It is the hash of the Dropout operation.
type Key struct {
	Sample uint64 // the sample's own key, which the data set gives
	Draw   uint64 // which use of the sample: its step or epoch, and the purpose
}

// Word is number e of the key as 64 random bits: mix(mix(Sample + (Draw+1)·0x9E3779B97F4A7C15) + e·0x9E3779B97F4A7C15).
func (k Key) Word(e uint64) uint64 {
	return kernels.SplitMix(kernels.SplitMix(k.Sample+(k.Draw+1)*kernels.Golden) + e*kernels.Golden)
}

// Uniform is number e in (0, 1): the top 53 bits of the word, plus one half, over 2⁵³.
func (k Key) Uniform(e uint64) float64 { return (float64(k.Word(e)>>11) + 0.5) / (1 << 53) }

// Normal is number e of a standard normal distribution: the quantile of Uniform(e) by Wichura's PPND16
// (algorithm AS 241, doi:10.2307/2347330) in float64. Each product is rounded before it is added, so that
// every machine has the same bits.
func (k Key) Normal(e uint64) float64 { return quantile(k.Uniform(e)) }

// Fill sets x to the key's normal numbers from number `from` on, rounded to float32.
func (k Key) Fill(x []float32, from uint64) {
	for i := range x {
		x[i] = float32(k.Normal(from + uint64(i)))
	}
}

// Coefficients of PPND16 from the lowest power up: numerator and denominator of the centre, of the tails up
// to exp(-25), and of the tails beyond.
var ppnd = [3][2][8]float64{
	{{3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3, 1.3731693765509461125e+4,
		4.5921953931549871457e+4, 6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3},
		{1, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3, 2.1213794301586595867e+4,
			3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3}},
	{{1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
		1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4},
		{1, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
			1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9}},
	{{6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
		2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7},
		{1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
			1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15}},
}

// ratio is the quotient of region i's polynomials at x.
func ratio(i int, x float64) float64 {
	var v [2]float64
	for j, c := range ppnd[i] {
		for p := len(c) - 1; p >= 0; p-- {
			v[j] = float64(v[j]*x) + c[p]
		}
	}
	return v[0] / v[1]
}

// quantile is the inverse of the standard normal distribution's integral, for 0 < u < 1.
func quantile(u float64) float64 {
	q := u - 0.5
	if math.Abs(q) <= 0.425 {
		return q * ratio(0, 0.180625-float64(q*q))
	}
	r := math.Sqrt(-ln(min(u, 1-u)))
	v := 0.0
	if r <= 5 {
		v = ratio(1, r-1.6)
	} else {
		v = ratio(2, r-5)
	}
	return math.Copysign(v, q)
}

// ln is the natural logarithm of a positive number by the series of the inverse hyperbolic tangent. The
// library's own has other bits on other processors.
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	f := (m - 1) / (m + 1)
	s, sum := float64(f*f), 0.0
	for k := 25; k >= 1; k -= 2 {
		sum = float64(sum*s) + 1/float64(k)
	}
	return float64(float64(e)*math.Ln2) + float64(2*float64(f*sum))
}
