package optim

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Muon holds the hyper-parameters of the optimizer of that name.
type Muon struct {
	Momentum float64
	Plain    bool   // takes the momentum itself, and not Nesterov's
	Steps    int    // of the iteration
	Scale    string // MatchRMS or Spectral
}

// The scales of Muon's updates of matrices [n k].
const (
	// MatchRMS is 0.2·√max(n, k): updates as large as AdamW's, whose rate and decay serve both (arXiv:2502.16982).
	MatchRMS = "match_rms"
	// Spectral is √max(1, n/k), the original's.
	Spectral = "spectral"
)

// Muon takes the matrices of layers, and each expert's; AdamW has embeddings, heads, biases and norms.
var _ = Register(Optimizer{Name: "muon", State: []string{"momentum_buffer"}, Rest: "adamw", Paper: "2502.16982",
	Takes: func(s Subject) bool {
		return s.Layer && !s.Taps && (len(s.Shape) == 2 || len(s.Shape) == 3 && s.Experts) && s.Shape[len(s.Shape)-1] > 1 &&
			s.Shape[len(s.Shape)-2] > 1
	}, Hyper: func(c Config, lr float64, _ int64, h []float64) {
		h[kernels.HyperLR], h[kernels.HyperBeta1], h[kernels.HyperDecay] = lr, c.Muon.Momentum, c.Decay
		h[kernels.HyperScale] = 1 // of no matrix in particular
	}, Update: turnedStep, Turning: &Turning{
		Direct: func(c Config, b kernels.Backend, grad, hyper, clip *tensor.Tensor, state []*tensor.Tensor) {
			at := kernels.Attr{}
			if c.Muon.Plain {
				at.I[0] = 1
			}
			b.Run(&kernels.Call{Op: kernels.MuonMomentum, In: []*tensor.Tensor{grad, hyper, clip},
				Out: []*tensor.Tensor{grad, state[0]}, Attr: at})
		},
		Turn: func(c Config, b kernels.Backend, whole *tensor.Tensor, _ Turned) {
			b.Run(&kernels.Call{Op: kernels.Orthogonalize, In: []*tensor.Tensor{whole}, Out: []*tensor.Tensor{whole},
				Attr: kernels.Attr{I: [4]int{c.Muon.Steps}}})
		},
		Scale: func(c Config, n, k int) float64 {
			if c.Muon.Scale == Spectral {
				return math.Sqrt(max(1, float64(n)/float64(k)))
			}
			return 0.2 * math.Sqrt(float64(max(n, k)))
		},
		Flops: func(c Config, n, k int) int64 {
			m, w := int64(min(n, k)), int64(max(n, k))
			return int64(c.Muon.Steps) * (4*m*m*w + 2*m*m*m)
		},
	}})
