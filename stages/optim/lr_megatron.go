package optim

import "math"

// scheduler is where Megatron-LM's shapes are defined.
const scheduler = "Megatron-LM, megatron/core/optimizer_param_scheduler.py"

var (
	_ = RegisterRate(Rate{Name: "constant", Source: scheduler, After: func(l LR, _ float64) float64 {
		return l.Max
	}})
	_ = RegisterRate(Rate{Name: "linear", Source: scheduler, After: decaying(func(l LR, n float64) float64 {
		return 1 - l.done(n)
	})})
	_ = RegisterRate(Rate{Name: "cosine", Source: scheduler, After: decaying(func(l LR, n float64) float64 {
		return 0.5 * (math.Cos(math.Pi*l.done(n)) + 1)
	})})
	_ = RegisterRate(Rate{Name: "inverse-square-root", Source: scheduler, After: func(l LR, n float64) float64 {
		if n > float64(l.Decay) {
			return l.Min
		}
		return max(l.Min, l.Max*math.Sqrt(float64(max(l.Warmup, 1)))/math.Sqrt(max(n, 1)))
	}})
)
