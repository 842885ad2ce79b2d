package optim

import (
	"math"
	"sync"

	"github.com/lfactor/lfactor/kernels"
)

// Schedule-free AdamW trains at y, between its steps z and their average x, which is the model: a mean
// weighted by the squares of the largest rates so far.
var _ = Register(Optimizer{Name: "schedule_free", Op: kernels.ScheduleFree,
	State: []string{"z", "exp_avg_sq", AverageState}, Averages: true, Paper: "2405.15682",
	Hyper: func(c Config, lr float64, update int64, h []float64) {
		h[kernels.HyperLR], h[kernels.HyperBeta1], h[kernels.HyperBeta2] = lr, c.Beta1, c.Beta2
		h[kernels.HyperEps], h[kernels.HyperDecay] = c.Eps, c.Decay
		h[kernels.HyperCorrection1] = 0
		if update == 1 {
			h[kernels.HyperCorrection1] = 1
		}
		h[kernels.HyperCorrection2] = 1 - math.Pow(c.Beta2, float64(update))
		h[kernels.HyperAverage] = c.Rate.share(update)
	}})

// sums are those of the weights of a schedule's steps, as far as they were asked for.
type sums struct {
	mu          sync.Mutex
	weight, sum []float64
	most        float64
}

var sumsOf sync.Map // of LR

// share is the weight of an update among those of all until it; one of a schedule that is nowhere above 0 has none.
func (l LR) share(update int64) float64 {
	if l.Style == "" { // one rate for all
		return 1 / float64(update)
	}
	v, _ := sumsOf.LoadOrStore(l, &sums{})
	s := v.(*sums)
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := int64(len(s.sum)); n < update; n++ {
		s.most = max(s.most, l.At(n+1))
		before := 0.0
		if n > 0 {
			before = s.sum[n-1]
		}
		s.weight, s.sum = append(s.weight, s.most*s.most), append(s.sum, before+s.most*s.most)
	}
	if s.sum[update-1] == 0 {
		return 0
	}
	return s.weight[update-1] / s.sum[update-1]
}
