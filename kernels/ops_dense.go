package kernels

// Products of matrices, norms, rotary embedding, attention and gated MLP.
const (
	Linear       Op = "linear"
	LinearDX     Op = "linear_dx"
	LowLinear    Op = "low_linear"
	LowLinearDX  Op = "low_linear_dx"
	LowLinearDW  Op = "low_linear_dw"
	LinearDW     Op = "linear_dw"
	ColSum       Op = "col_sum"
	RMSNorm      Op = "rmsnorm"
	RMSNormDX    Op = "rmsnorm_dx"
	RMSNormDW    Op = "rmsnorm_dw"
	RopeTable    Op = "rope_table"
	Rope         Op = "rope"
	Attention    Op = "attention"
	AttentionBwd Op = "attention_bwd"
	SwiGLU       Op = "swiglu"
	SwiGLUBwd    Op = "swiglu_bwd"
	Embed        Op = "embed"
	EmbedDW      Op = "embed_dw"
)

// Accumulate is the value of Attr.I[0] with which a weight-gradient operation adds into its output instead
// of setting it.
const Accumulate = 1

// attnFlops counts both products over a dense t×s rectangle halved for causality, the convention of
// published MFU figures.
func attnFlops(in, out [][]int) int64 { return 2 * prod(in[0]) * int64(in[1][0]) }

func attnBwdFlops(in, out [][]int) int64 { return 5 * prod(in[1]) * int64(in[2][0]) }

var _ = register(Spec{Op: Linear, Sig: "x[...,k]A w[n,k]A bias[n]A? -> y[...,n]A|f32", Products: linearProducts,
	Doc: "y = x·wᵀ + bias. Sums over k in float32, rounded once to y's dtype. With I[3] = p > 1 y is the " +
		"sum (see sum) of p such products, each over a p-th of k in order, the first with the bias: what p " +
		"ranks give together that have a part of the columns each. With I[2] = i > 0 too it is the i-th of them."},
	Spec{Op: LinearDX, Sig: "dy[...,n]A w[n,k]A -> dx[...,k]A",
		Products: linearDXProducts, Doc: "dx = dy·w: the input gradient of linear."},
	Spec{Op: LinearDW, Sig: "dy[...,n]A x[...,k]A -> dw[n,k]f32", Products: linearDWProducts,
		Doc: "dw = dyᵀ·x: the weight gradient of linear. I[0] = Accumulate adds into dw."}, Spec{Op: LowLinear,
		Sig: "x[...,k]A w[n,k]A bias[n]A? choice[1,c]f32? -> y[...,n]A", Products: linearProducts, Doc: "linear " +
			"of operands that are rounded as Precisions[I[1]] says, each number to q(x·f)/f with the factor f " +
			"of its block and q to the nearest of its format, ties to even, and then to A. A block with a NaN or " +
			"an infinity is NaN."}, Spec{Op: LowLinearDX, Sig: "dy[...,n]A w[n,k]A choice[1,c]f32? draw[1]i64? -> dx[...,k]A",
		Products: linearDXProducts, Doc: "dx = dy·w of operands that are rounded in blocks along n. What is rounded by " +
			"chance is so by the noise of the draw, of the tensor I[3], the row and the column (Noise)."},
	Spec{Op: LowLinearDW, Sig: "dy[...,n]A x[...,k]A choice[1,c]f32? draw[1]i64? -> dw[n,k]f32",
		Products: linearDWProducts, Doc: "dw = dyᵀ·x of operands that are rounded in blocks along the rows, with noise as " +
			"low_linear_dx. I[0] = Accumulate adds into dw."},
	Spec{Op: ColSum, Sig: "dy[...,n]A -> db[n]f32",
		Doc: "db = Σ over rows of dy: the bias gradient. I[0] = Accumulate adds into db."},
	Spec{Op: RMSNorm, Sig: "x[...,d]A w[d]A -> y[...,d]A rstd[...]f32", Source: "arXiv:1910.07467",
		Doc: "rstd = 1/sqrt(mean(x²) + F[0]); y = x·rstd·(w + F[1]). All in float32, rounded once. F[1] is 1 in " +
			"Gemma's norms, else 0."}, Spec{Op: RMSNormDX, Sig: "dy[...,d]A x[...,d]A w[d]A rstd[...]f32 -> dx[...,d]A",
		Doc: "With g = dy·(w + F[1]): dx = rstd·(g - x·rstd²·mean(g·x))."},
	Spec{Op: RMSNormDW, Sig: "dy[...,d]A x[...,d]A rstd[...]f32 -> dw[d]f32",
		Doc: "dw = Σ over rows of dy·x·rstd. I[0] = Accumulate adds into dw."},
	Spec{Op: RopeTable, Sig: "pos[t]i32 inv[r]f32 -> cos[t,r]f32 sin[t,r]f32", Source: "arXiv:2104.09864",
		Doc: "The angle pos·inv is taken in float32 as transformers does; cos and sin are multiplied by F[0] " +
			"(1, or YaRN's attention factor)."}, Spec{Op: Rope, Sig: "x[t,h,d]A cos[t,r]f32 sin[t,r]f32 -> y[t,h,d]A",
		Source: "arXiv:2104.09864", Doc: "Rotates the first 2r of d dimensions by +angle (I[0]=1) or -angle " +
			"(I[0]=-1: the gradient), copies the rest. Pairs are (i, i+r) for I[1]=0 (Hugging Face), (2i, 2i+1) for " +
			"I[1]=1. y may be x (in place)."}, Spec{Op: Attention, Sig: "q[t,h,d]A k[s,g,d]A v[s,g,e]A cu_q[c+1]i32 " +
		"cu_k[c+1]i32 blocks[m,n]i32? pos_q[t,3]i32? pos_k[s,3]i32? near[6]i32? -> o[t,h,e]A lse[t,h]f32",
		Flops: attnFlops, Source: "arXiv:2307.08691", Doc: "Packed attention: sequence i is query rows " +
			"cu_q[i]:cu_q[i+1] and key rows cu_k[i]:cu_k[i+1]; head j uses key head j·g/h. Scores are F[0]·q·k, " +
			"and with a soft cap F[1] > 0 they are F[1]·tanh(F[0]·q·k/F[1]) (arXiv:2408.00118 §2). With I[0]=1 " +
			"causal: query a of Lq sees key b iff b <= a + Lk - Lq; with window I[1]>0 also b > a + Lk - Lq - I[1]. " +
			"With blocks, row i of q sees row j of k only if bit j/I[2]%32 of blocks[i/I[2], j/I[2]/32] is set: " +
			"tiles of I[2] rows, counted over all sequences. With pos_q, pos_k and near, only if on every axis a " +
			"the distance x = pos_k[j,a] - pos_q[i,a] has x >= -near[2a] and x <= near[2a+1], where a negative limit " +
			"is none: windows in frames, rows and columns of a video. A mask wants F[0] > 0. lse is the natural " +
			"log of the sum of exponentials. A query that sees no key gives o = 0, lse = -Inf. Memory is linear in t " +
			"and s. Rows outside all sequences are set to 0, of lse too."}, Spec{Op: AttentionBwd, Sig: "do[t,h,e]A " +
		"q[t,h,d]A k[s,g,d]A v[s,g,e]A o[t,h,e]A lse[t,h]f32 cu_q[c+1]i32 cu_k[c+1]i32 blocks[m,n]i32? " +
		"pos_q[t,3]i32? pos_k[s,3]i32? near[6]i32? -> dq[t,h,d]A dk[s,g,d]A dv[s,g,e]A", Flops: attnBwdFlops,
		Source: "arXiv:2307.08691", Doc: "The gradients of attention, with probabilities recomputed from " +
			"lse. Attributes and masks as for attention. Sums over the query heads of a key head in head order."},
	Spec{Op: SwiGLU, Sig: "g[...]A u[...]A -> y[...]A", Source: "arXiv:2002.05202", Doc: "y = g·sigmoid(g)·u."},
	Spec{Op: SwiGLUBwd, Sig: "dy[...]A g[...]A u[...]A -> dg[...]A du[...]A", Doc: "The gradients of swiglu."},
	Spec{Op: Embed, Sig: "ids[t]i32 w[v,d]A -> y[t,d]A", Doc: "y[i] = w[ids[i]-I[0]], or 0 " +
		"where that row lies outside w: I[0] is the first id of a vocabulary shard."}, Spec{Op: EmbedDW,
		Sig: "dy[t,d]A ids[t]i32 -> dw[v,d]f32", Doc: "dw[id-I[1]] += dy[i], rows in order of i, ids outside " +
			"skipped. I[0] = Accumulate adds into dw, else the rest is 0. I[1] is the first id of the shard."})
