package kernels

// Operations of the optimizer step.
const (
	SumSquares Op = "sum_squares"
	AdamW      Op = "adamw"
	SGD        Op = "sgd"
	Average    Op = "average"
	Lion       Op = "lion"

	ScheduleFree Op = "schedule_free"

	// AdamWNarrow is AdamW with moments in bf16.
	AdamWNarrow Op = "adamw_narrow"

	MuonMomentum  Op = "muon_momentum"
	MuonStep      Op = "muon_step"
	Orthogonalize Op = "orthogonalize"
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
	HyperScale              // what an update by Muon is multiplied with beside the learning rate
	// what is rounded by chance is drawn by: 32 bits of seed, step and tensor. The i-th number of a call is
	// the whole tensor's HyperFirst + i/HyperRun·HyperPitch + i%HyperRun
	HyperDraw
	HyperFirst
	HyperRun // 0 where a call has all of a tensor, or rows of it
	HyperPitch
	HyperLen
)

// Clip is the layout of the clip operand (f64) of the optimizer operations.
const (
	ClipNorm     = iota // global gradient norm, after unscaling
	ClipFactor          // what every gradient is multiplied with; 0 if the step is skipped
	ClipOverflow        // 1 if the norm is not finite
	ClipLen
)

// The coefficients of Orthogonalize, and the least norm that it divides by.
const (
	OrthogonalA, OrthogonalB, OrthogonalC = 3.4445, -4.7750, 2.0315
	OrthogonalLeast                       = 1e-7
)

var _ = register(Spec{Op: SumSquares, Sig: "x[...]f32 -> y[1]f64",
	Doc: "y = Σ x², float64 sums of fixed blocks of 4096 elements added in order. I[0] = Accumulate adds into y."},
	Spec{Op: AdamW, Sig: "g[...]f32 hyper[H]f64 clip[3]f64 -> p[...]f32 m[...]f32 v[...]f32 q[...]A?",
		Source: "arXiv:1711.05101, as torch.optim.AdamW", Doc: "In place on p, m, v: g *= clip factor; " +
			"p -= lr·decay·p; m = m + (1-β1)(g-m); v = β2·v + (1-β2)g²; p -= (lr/c1)·m/(sqrt(v)/sqrt(c2)+ε); " +
			"q = p in the model's dtype. I[0]=1: no weight decay for this tensor. With overflow = 1 nothing changes."},
	Spec{Op: AdamWNarrow, Sig: "g[...]f32 hyper[H]f64 clip[3]f64 -> p[...]f32 m[...]bf16 v[...]bf16 q[...]A?",
		Source: "arXiv:1711.05101; arXiv:2412.19437, section 3.3.3",
		Doc: "adamw whose moments are kept in bf16: p is made of the moments as they are computed, " +
			"which are then rounded up or down by chance, as StochasticRound16 with HyperNoise: its low half for m, " +
			"its high half for v."},
	Spec{Op: SGD, Sig: "g[...]f32 hyper[H]f64 clip[3]f64 -> p[...]f32 m[...]f32 q[...]A?",
		Source: "torch.optim.SGD (dampening 0, not Nesterov)", Doc: "In place: g = g·factor + decay·p (I[0]=1: " +
			"without decay); m = β1·m + g; p -= lr·m; q = p in the model's dtype. With overflow = 1 nothing changes."},
	Spec{Op: Lion, Sig: "g[...]f32 hyper[H]f64 clip[3]f64 -> p[...]f32 m[...]f32 q[...]A?",
		Source: "arXiv:2302.06675, algorithm 2",
		Doc: "In place: g *= clip factor; p -= lr·(sign(β1·m + (1-β1)g) + decay·p); m = β2·m + (1-β2)g; q = p " +
			"in the model's dtype. I[0]=1: no weight decay. With overflow = 1 nothing changes."}, Spec{Op: ScheduleFree,
		Sig:    "g[...]f32 hyper[H]f64 clip[3]f64 -> p[...]f32 z[...]f32 v[...]f32 x[...]f32 q[...]A?",
		Source: "arXiv:2405.15682, as schedulefree.AdamWScheduleFree", Doc: "In place, with p the point " +
			"that gradients are of: g *= clip factor; where hyper[5] is 1, the first update, z = x = p; v = β2·v " +
			"+ (1-β2)g²; u = g/(sqrt(v/c2)+ε) + decay·p (I[0]=1: without decay); z -= lr·u; x += c(z-x) with " +
			"c = hyper[7]; p = (1-β1)z + β1·x; q = p in the model's dtype. With overflow = 1 nothing changes."},
	Spec{Op: MuonMomentum, Sig: "g[...]f32 hyper[H]f64 clip[3]f64 -> u[...]f32 m[...]f32",
		Source: "torch.optim.Muon", Doc: "In place on m: g *= clip factor; m = m + (1-β1)(g-m); u = g + " +
			"β1·(m-g), or m with I[0]=1 (not Nesterov's). u may be g. With overflow = 1 m does not change, and u is 0."},
	Spec{Op: Orthogonalize, Sig: "x[...,n,k]f32 -> y[...,n,k]f32",
		Source: "Newton and Schulz's iteration of https://kellerjordan.github.io/posts/muon, as torch.optim.Muon",
		Doc: "Of each matrix x: X = x/max(‖x‖, 1e-7), and I[0] times A = X·Xᵀ, X = a·X + (b·A " +
			"+ c·A·A)·X with a, b, c = 3.4445, -4.7750, 2.0315, where a matrix of more rows than " +
			"columns is taken as its transpose: singular values become about 1, and 0 stays 0. y may be x."},
	Spec{Op: MuonStep, Sig: "u[...]f32 hyper[H]f64 clip[3]f64 -> p[...]f32 q[...]A?", Source: "torch.optim.Muon",
		Doc: "In place: p -= lr·decay·p (I[0]=1: without decay); p -= lr·scale·u; q = p in the model's dtype. " +
			"With overflow = 1 nothing changes."}, Spec{Op: Average, Sig: "p[...]f32 hyper[H]f64 clip[3]f64 -> s[...]f32",
		Source: "diffusers' EMAModel.step", Doc: "In place: s -= (1-d)(s-p), the exponential moving average of " +
			"weights p. With overflow = 1 nothing changes."})
