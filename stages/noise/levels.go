package noise

import "math"

// Level is a level of noise: a noisy sample is Alpha·x0 + Sigma·ε, and the denoiser is told Time.
type Level struct {
	Alpha, Sigma float32
	Time         float32
	Data         float32 // EDM's σ_data; 0 elsewhere
}

// Mix is the noisy sample Alpha·x0 + Sigma·noise, in float32.
func (l Level) Mix(x0, noise []float32) []float32 { return axpy(l.Alpha, x0, l.Sigma, noise) }

// SNR is the signal's variance over the noise's.
func (l Level) SNR() float32 {
	r := l.Alpha / l.Sigma
	return float32(r * r)
}

// Levels are the noise levels of training.
type Levels interface {
	// At is the level of a number 0 <= u < 1 that a [Draw] gave; u near 0 is noise, as in diffusers' trainers.
	At(u float64) Level
	// Table lists the levels from noise to data, or a grid of them where At is continuous.
	Table() []Level
}

// table is a table of levels from noise to data, of which u chooses one.
type levelTable []Level

// At is entry ⌊u·length⌋.
func (t levelTable) At(u float64) Level {
	return t[min(max(int(u*float64(len(t))), 0), len(t)-1)]
}

// Table is the table itself.
func (t levelTable) Table() []Level { return t }

// variancePreserving are the levels of ᾱ: x = √ᾱ·x0 + √(1−ᾱ)·ε.
func variancePreserving(bars []float32) levelTable {
	out := make(levelTable, len(bars))
	for t, a := range bars {
		out[len(out)-1-t] = Level{Alpha: sqrt32(a), Sigma: sqrt32(1 - a), Time: float32(t)}
	}
	return out
}

// flowTable are the levels of flow matching as diffusers has them: n equal steps from 1 to 1/n, shifted.
func flowTable(n int, shift float64) levelTable {
	out := make(levelTable, n)
	for i := range out {
		s := float32(n-i) / float32(n)
		s = float32(float32(shift)*s) / (1 + float32(float32(shift-1)*s))
		out[i] = Level{Alpha: 1 - s, Sigma: s, Time: float32(s * float32(n))}
	}
	return out
}

// Flow are the levels of flow matching without a table: σ = shift·s/(1+(shift−1)·s) of s = 1−u, as policies
// and Cosmos train. Time is σ·Times.
type Flow struct {
	Shift float64 // 1 leaves s as it is
	Times float64 // 1 or 1000
}

// At is the level at u.
func (f Flow) At(u float64) Level {
	s := 1 - u
	s = f.Shift * s / (1 + float64((f.Shift-1)*s))
	return Level{Alpha: float32(1 - s), Sigma: float32(s), Time: float32(s * f.Times)}
}

// Table is a grid of a thousand levels.
func (f Flow) Table() []Level {
	out := make([]Level, 1000)
	for i := range out {
		out[i] = f.At(float64(i) / 1000)
	}
	return out
}

// EDM are the levels of arXiv:2206.00364: x = x0 + σ·ε, ln σ normal with Mean and Std, and Time = ¼·ln σ.
type EDM struct {
	Mean, Std float64 // −1.2 and 1.2 in the paper
	Data      float64 // σ_data, 0.5 in the paper
}

// At is the level whose ln σ is the quantile of 1−u: a uniform u gives the paper's distribution.
func (e EDM) At(u float64) Level {
	const edge = 1.0 / (1 << 54)
	l := e.Mean + float64(e.Std*quantile(min(max(1-u, edge), 1-edge)))
	return Level{Alpha: 1, Sigma: float32(math.Exp(l)), Time: float32(l / 4), Data: float32(e.Data)}
}

// Table is a grid of a thousand levels at equal shares of the distribution.
func (e EDM) Table() []Level {
	out := make([]Level, 1000)
	for i := range out {
		out[i] = e.At((float64(i) + 0.5) / 1000)
	}
	return out
}
