package optim

import "math"

// polynomial falls as (1-w)² of the share w of the decay that is done, as transformers'
// get_polynomial_decay_schedule_with_warmup with power 2.
var _ = RegisterRate(Rate{Name: "polynomial", Source: "transformers, optimization.py",
	After: decaying(func(l LR, n float64) float64 { return math.Pow(1-l.done(n), 2) })})
