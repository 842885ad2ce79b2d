package kernels

import "github.com/lfactor/lfactor/kernels/tensor"

// Loss, elementwise and structural operations.
const (
	LinearLSE   Op = "linear_lse"
	LSEJoin     Op = "lse_join"
	NLL         Op = "nll"
	LinearCEDX  Op = "linear_ce_dx"
	LinearCEDW  Op = "linear_ce_dw"
	LinearCEBwd Op = "linear_ce_bwd"
	LinearCE    Op = "linear_ce"
	GroupNLL    Op = "group_nll"
	Sum         Op = "sum"
	Mul         Op = "mul"
	Scale       Op = "scale"
	Cast        Op = "cast"
	Fill        Op = "fill"
	Dropout     Op = "dropout"
	Slice       Op = "slice"
	Concat      Op = "concat"
	AddTo       Op = "add_to"
)

// LSEBlock is the columns of the logits that share one maximum in linear_lse.
const LSEBlock = 2048

// linear_ce has as many rows of exponentials at work as take lossWork bytes, but never fewer than its
// products need to be long, nor more than gain anything.
const (
	lossWork      = 32 << 20
	lossRowsLeast = 512
	lossRowsMost  = 2048
	// lossPad lengthens rows of a block: a power of two apart they would share few sets of a cache.
	lossPad = 32
)

// LossRows is the rows of logits whose gradient goes into one product, for activations of dtype d and a
// vocabulary of v: what the order of sums in the weights' gradient depends on.
func LossRows(d tensor.DType, v int) int {
	n := lossRowsMost
	for n > lossRowsLeast && n*v*d.Size() > lossWork {
		n /= 2
	}
	return n
}

// LossWork is the shape of linear_ce's work for t rows of activations of dtype d and a vocabulary of v:
// blocks of logits one after another, of rows that are step elements apart.
func LossWork(d tensor.DType, t, v int) (blocks, rows, step int) {
	return (v + LSEBlock - 1) / LSEBlock, min(t, LossRows(d, v)), min(v, LSEBlock)/lossPad*lossPad + 2*lossPad
}

var _ = register(Spec{Op: LinearLSE,
	Sig:      "x[t,d]A w[v,d]A target[t]i32 -> lse[t,1]f32 hit[t]f32 e[t,v]A? top[t,b]f32?",
	Products: lossProducts(false, false), Source: "arXiv:2411.09009", Doc: "With logits z = x·wᵀ, or " +
		"F[0]·tanh(x·wᵀ/F[0]) with a soft cap F[0] > 0 (arXiv:2408.00118 §2), that are never held whole (blocks " +
		"of at most 4 Mi logits): lse = log Σ exp z over this shard's rows of w, hit = z[target-I[0]], or 0 " +
		"where the target lies outside the shard. I[0] is the first id of the shard. e and top, both or none, are " +
		"numerators for the gradient: e = exp(z - top), with a cap times 1 - (z/F[0])², where top is the maximum " +
		"of z over a block of 2048 columns, in f16 less 8, so that small ones keep their digits; 0 if there is none."},
	Spec{Op: LSEJoin, Sig: "lse[t,n]f32 -> y[t]f32", Doc: "y = log Σ exp over the n shards, stable."},
	Spec{Op: NLL, Sig: "lse[t]f32 hit[t]f32 target[t]i32 weight[t]f32 -> loss[1]f32",
		Doc: "loss = Σ weight·(lse-hit) over rows with target >= 0, in float64, in row order."},
	Spec{Op: GroupNLL, Sig: "lse[t]f32 hit[t]f32 target[t]i32 group[t]i32 -> y[k]f32",
		Doc: "Of rows of group g with target >= 0, y[1+2g] = Σ lse-hit and y[2+2g] is how many, in float64, in row " +
			"order, rounded once; y[0] = 0."},
	Spec{Op: LinearCEDX, Sig: "x[t,d]A w[v,d]A target[t]i32 lse[t]f32 weight[t]f32 " +
		"seed[1]f32 e[t,v]A? top[t,b]f32? -> dx[t,d]A", Products: lossProducts(true, false),
		Doc: "With dz = seed·weight·(exp(z-lse) - onehot(target-I[0])), 0 where target < 0, with a soft " +
			"cap F[0] times 1 - (z/F[0])²: dx = dz·w. exp(z-lse) is e·exp(top-lse) with e and top of linear_lse, " +
			"which are computed again by blocks where they are absent, with the same result."}, Spec{Op: LinearCEDW,
		Sig:      "x[t,d]A w[v,d]A target[t]i32 lse[t]f32 weight[t]f32 seed[1]f32 e[t,v]A? top[t,b]f32? -> dw[v,d]f32",
		Products: lossProducts(false, true), Doc: "dw = dzᵀ·x with dz and F[0] as in " +
			"linear_ce_dx. I[0] is the first id of the shard; I[1] = Accumulate adds into dw."},
	Spec{Op: LinearCEBwd, Sig: "x[t,d]A w[v,d]A target[t]i32 lse[t]f32 weight[t]f32 seed[1]f32 e[t,v]A? " +
		"top[t,b]f32? -> dx[t,d]A dw[v,d]f32", Products: lossProducts(true, true), Doc: "Both gradients from one " +
		"dz, each bit-identical to the separate operation. I[0], I[1] and F[0] as in linear_ce_dw."}, Spec{Op: LinearCE,
		Sig: "x[t,d]A w[v,d]A target[t]i32 weight[t]f32 seed[1]f32 -> loss[1]f32 work[b,r,s]A dx[t,d]A dw[v,d]f32 " +
			"lse[t]f32? hit[t]f32?",
		Products: lossProducts(true, true), Doc: "linear_lse, lse_join, nll and linear_ce_bwd of an " +
			"unsharded vocabulary in one: loss, dx and dw, and lse and hit, both or neither, have their bits, and no logits outlive the call. " +
			"work is of the shape LossWork; what is left in it has no meaning. I[1] = Accumulate adds into dw."},
	Spec{Op: Sum, Sig: "x0[...]T ... -> y[...]T", Doc: "y = x0 + x1 + …, in operand order " +
		"in float32 (float64 for f64), rounded once. y may be x0 (in place). One operand copies."},
	Spec{Op: Mul, Sig: "a[...]A b[...]A -> y[...]A", Doc: "Elementwise product."}, Spec{Op: Scale,
		Sig: "x[...]A -> y[...]A", Doc: "y = F[0]·x; y may be x (in place)."}, Spec{Op: Cast, Sig: "x[...]T -> y[...]U",
		Doc: "Converts between f32, bf16, f16 and f64 with round to nearest even; the same dtype copies, any dtype."},
	Spec{Op: Fill, Sig: "-> y[...]T", Doc: "y = F[0] (f32, bf16, f16, f64)."}, Spec{Op: AddTo,
		Sig: "x[...]A|f32|f64 -> y[...]f32|f64", Doc: "y += x (in place on y). I[0]=0 sets y = x instead of adding."},
	Spec{Op: Dropout, Sig: "x[t,...]A key[t]i64 -> y[t,...]A", Source: "SplitMix64: doi:10.1145/2714064.2660195",
		Doc: "Element e of row i is kept iff u >= F[0], and then multiplied with 1/(1-F[0]); " +
			"u = top 24 bits / 2^24 of mix(mix(key[i] + (I[0]+1)·0x9E3779B97F4A7C15) + " +
			"e·0x9E3779B97F4A7C15), where mix is SplitMix64's finaliser. I[0] is the block's " +
			"draw number; e counts elements within the row. The gradient is the same call on dy."},
	Spec{Op: Slice, Sig: "x[*]T -> y[*]T", Doc: "y = x[..., I[1]:I[1]+len, ...] along axis I[0]; len is y's."},
	Spec{Op: Concat, Sig: "x0[*]T ... -> y[*]T", Doc: "Concatenates along axis I[0]."})

// StoreGroupNLL is group_nll on the processor.
func StoreGroupNLL(c *Call) {
	lse, hit, target, group, y := c.In[0].F32(), c.In[1].F32(), c.In[2].I32(), c.In[3].I32(), c.Out[0].F32()
	sums := make([]float64, len(y))
	for i, g := range group {
		if target[i] >= 0 {
			sums[1+2*g] += float64(lse[i]) - float64(hit[i])
			sums[2+2*g]++
		}
	}
	for i, x := range sums {
		y[i] = float32(x)
	}
}
