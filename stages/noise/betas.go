package noise

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/configs/source"
)

// Curve is a table of variances β, a value of "beta_schedule".
type Curve struct {
	Name   string
	Source string
	// In names the classes of diffusers that know the curve; nil stands for all of them.
	In []string
	// Betas are the variances of n steps, in float32 as diffusers computes them.
	Betas func(b Betas, n int) []float32
}

// Betas are the keys of schedulers whose noise is a table of variances: ᾱ_t = ∏(1−β), x_t = √ᾱ·x0 + √(1−ᾱ)·ε.
type Betas struct {
	TrainSteps int       `json:"num_train_timesteps"`
	Start      float64   `json:"beta_start"`
	End        float64   `json:"beta_end"`
	Schedule   string    `json:"beta_schedule"`
	Trained    []float64 `json:"trained_betas"` // the table itself; then the other keys are not read
	snr        *float64  // what the ratio of signal and noise is divided by; nil stands for 1
}

// trainStepsMax bounds the tables; the largest in use has 1000 entries.
const trainStepsMax = 1_000_000

func defaultBetas() Betas { return Betas{TrainSteps: 1000, Start: 1e-4, End: 0.02, Schedule: "linear"} }

func (b Betas) check(f *faults, class string) {
	if checkTrainSteps(f, b.TrainSteps); b.Trained != nil {
		b.checkTrained(f)
		return
	}
	f.Within("beta_start", b.Start, 0, 0.999)
	f.Within("beta_end", b.End, b.Start, 0.999)
	f.OneOf("beta_schedule", b.Schedule, Curves()...)
	if c, ok := curves.m[b.Schedule]; ok && c.In != nil && !slices.Contains(c.In, class) {
		f.Add("beta_schedule", "take "+source.OneOf(c.In), "%s does not know %s in diffusers", class, c.Name)
	}
}

func (b Betas) checkTrained(f *faults) {
	if len(b.Trained) != b.TrainSteps {
		f.Add("trained_betas", "set num_train_timesteps to its length", "%d numbers for num_train_timesteps = %d",
			len(b.Trained), b.TrainSteps)
	}
	for _, v := range b.Trained {
		if !(v >= 0 && v < 1) {
			f.Add("trained_betas", "set variances from 0 to below 1", "%g is no variance", v)
			return
		}
	}
}

func checkTrainSteps(f *faults, n int) {
	if n < 1 || n > trainStepsMax {
		f.Add("num_train_timesteps", "set the length of training's table, mostly 1000", "%d is out of range", n)
	}
}

// cumulative is ᾱ for each time, float32 of products kept in float64 as PyTorch's cumprod on a processor.
func (b Betas) cumulative(zeroSNR bool) []float32 {
	bars := cumprod(b.table())
	if b.snr == nil {
		if zeroSNR {
			return cumprod(rescaleZeroSNR(bars))
		}
		return bars
	}
	for i, a := range bars {
		bars[i] = a / (float32(*b.snr) + float32((1-float32(*b.snr))*a))
	}
	if zeroSNR {
		return zeroEnd(bars)
	}
	return bars
}

func (b Betas) table() []float32 {
	if b.Trained == nil {
		return curves.m[b.Schedule].Betas(b, b.TrainSteps)
	}
	out := make([]float32, len(b.Trained))
	for i, v := range b.Trained {
		out[i] = float32(v)
	}
	return out
}

// cumprod is ∏(1−β) up to each entry.
func cumprod(betas []float32) []float32 {
	out, p := make([]float32, len(betas)), 1.0
	for i, b := range betas {
		p *= float64(1 - b)
		out[i] = float32(p)
	}
	return out
}

// zeroEnd shifts and scales √ᾱ so that the last is 0 and the first stays (arXiv:2305.08891, algorithm 1).
func zeroEnd(a []float32) []float32 {
	for i := range a {
		a[i] = sqrt32(a[i])
	}
	first, last := a[0], a[len(a)-1]
	by := first / (first - last)
	for i := range a {
		s := float32((a[i] - last) * by)
		a[i] = float32(s * s)
	}
	return a
}

// rescaleZeroSNR are the variances of ᾱ with that end.
func rescaleZeroSNR(a []float32) []float32 {
	a = zeroEnd(a)
	out := make([]float32, len(a))
	out[0] = 1 - a[0]
	for i := 1; i < len(a); i++ {
		out[i] = 1 - a[i]/a[i-1]
	}
	return out
}

// linspace32 has n numbers from a to b, counted from the nearer end as PyTorch does in float32.
func linspace32(a, b float64, n int) []float32 {
	from, to := float32(a), float32(b)
	if n == 1 {
		return []float32{from}
	}
	out, step := make([]float32, n), (to-from)/float32(n-1)
	for i := range out {
		if i < n/2 {
			out[i] = from + float32(step*float32(i))
		} else {
			out[i] = to - float32(step*float32(n-1-i))
		}
	}
	return out
}

func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }
