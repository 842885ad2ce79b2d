package kernels

// Operations of the optimizer step.
const (
	SumSquares Op = "sum_squares"
	AdamW      Op = "adamw"
	SGD        Op = "sgd"
	Average    Op = "average"
	Lion       Op = "lion"
)

// Hyper is the layout of the hyper-parameter operand (f64) of the optimizer operations.
const (
	HyperLR          = iota // learning rate of this step
	HyperBeta1              // AdamW β1; SGD: momentum
	HyperBeta2              // AdamW β2
	HyperEps                // AdamW ε
	HyperDecay              // decoupled weight decay (AdamW), L2 (SGD)
	HyperCorrection1        // 1-β1^step
	HyperCorrection2        // 1-β2^step
	HyperAverage            // 1 minus the decay of an average of weights
	HyperLen
)

// Clip is the layout of the clip operand (f64) of the optimizer operations.
const (
	ClipNorm     = iota // global gradient norm, after unscaling
	ClipFactor          // what every gradient is multiplied with; 0 if the step is skipped
	ClipOverflow        // 1 if the norm is not finite
	ClipLen
)

var _ = register(
	Spec{Op: SumSquares, Sig: "x[...]f32 -> y[1]f64",
		Doc: "y = Σ x², float64 sums of fixed blocks of 4096 elements added in order. I[0] = Accumulate " +
			"adds into y."},
	Spec{Op: AdamW, Sig: "g[...]f32 hyper[H]f64 clip[3]f64 -> p[...]f32 m[...]f32 v[...]f32 q[...]A?",
		Source: "arXiv:1711.05101, as torch.optim.AdamW",
		Doc: "In place on p, m, v: g *= clip factor; p -= lr·decay·p; m = m + (1-β1)(g-m); v = β2·v + " +
			"(1-β2)g²; p -= (lr/c1)·m/(sqrt(v)/sqrt(c2)+ε); q = p in the model's dtype. " +
			"I[0]=1: no weight decay for this tensor. With overflow = 1 nothing changes."},
	Spec{Op: SGD, Sig: "g[...]f32 hyper[H]f64 clip[3]f64 -> p[...]f32 m[...]f32 q[...]A?",
		Source: "torch.optim.SGD (dampening 0, not Nesterov)",
		Doc: "In place: g = g·factor + decay·p (I[0]=1: without decay); m = β1·m + g; p -= lr·m; q = p " +
			"in the model's dtype. With overflow = 1 nothing changes."},
	Spec{Op: Lion, Sig: "g[...]f32 hyper[H]f64 clip[3]f64 -> p[...]f32 m[...]f32 q[...]A?",
		Source: "arXiv:2302.06675, algorithm 2",
		Doc: "In place: g *= clip factor; p -= lr·(sign(β1·m + (1-β1)g) + decay·p); m = β2·m + (1-β2)g; q = p " +
			"in the model's dtype. I[0]=1: no weight decay. With overflow = 1 nothing changes."},
	Spec{Op: Average, Sig: "p[...]f32 hyper[8]f64 clip[3]f64 -> s[...]f32",
		Source: "diffusers' EMAModel.step",
		Doc: "In place: s -= (1-d)(s-p), the exponential moving average of weights p. With overflow = 1 " +
			"nothing changes."},
)
