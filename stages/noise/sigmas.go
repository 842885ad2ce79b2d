package noise

import (
	"math"
	"slices"
)

// lastBar is ᾱ at the end of training's times where rescaling would make it 0 and a solver divides by it.
const lastBar = 1.0 / (1 << 24)

// sigmaTable are √((1−ᾱ)/ᾱ) for each time, float32 as diffusers has them.
func sigmaTable(bars []float32) []float64 {
	out := make([]float64, len(bars))
	for t, a := range bars {
		out[t] = float64(sqrt32((1 - a) / a))
	}
	return out
}

// solverBars are ᾱ as solvers use them.
func (b Betas) solverBars(zeroSNR bool) []float32 {
	bars := b.cumulative(zeroSNR)
	if zeroSNR {
		bars[len(bars)-1] = lastBar
	}
	return bars
}

// at interpolates the table linearly at a time.
func at(table []float64, t float64) float64 {
	low := min(max(int(math.Floor(t)), 0), len(table)-1)
	if low == len(table)-1 {
		return table[low]
	}
	return table[low] + float64((t-float64(low))*(table[low+1]-table[low]))
}

// timeOf is the time of a level: linear in its logarithm between entries of the table.
func timeOf(sigma float64, table []float64) float64 {
	l := math.Log(max(sigma, 1e-10))
	low := 0
	for i, v := range table {
		if l >= float64(log32(float32(v))) {
			low = i
		}
	}
	low = min(low, max(len(table)-2, 0))
	if len(table) == 1 {
		return 0
	}
	a, b := float64(log32(float32(table[low]))), float64(log32(float32(table[low+1])))
	w := min(max((a-l)/(a-b), 0), 1)
	return float64((1-w)*float64(low)) + float64(w*float64(low+1))
}

// timesOf are the times of levels.
func timesOf(sigmas, table []float64) []float64 {
	out := make([]float64, len(sigmas))
	for i, s := range sigmas {
		out[i] = timeOf(s, table)
	}
	return out
}

// truncated are times as int64, which drops what is behind the point.
func truncated(times []float64) []float32 {
	out := make([]float32, len(times))
	for i, t := range times {
		out[i] = float32(math.Trunc(t))
	}
	return out
}

func rounded(times []float64) []float64 {
	out := slices.Clone(times)
	for i, t := range out {
		out[i] = math.RoundToEven(t)
	}
	return out
}

// half gives α and σ of a variance-preserving process at a level of σ-space, and 1−σ and σ of flow matching.
func half(sigma float32, flow bool) Level {
	if flow {
		return Level{Alpha: 1 - sigma, Sigma: sigma}
	}
	alpha := 1 / sqrt32(float32(sigma*sigma)+1)
	return Level{Alpha: alpha, Sigma: float32(sigma * alpha)}
}

// lambda is half the logarithm of the SNR; it is infinite without noise.
func (l Level) lambda() float32 { return log32(l.Alpha) - log32(l.Sigma) }
