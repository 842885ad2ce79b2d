package kernels

import "fmt"

// Operations of linear attention by the gated delta rule, and of the short convolution before it.
const (
	CausalConv    Op = "causal_conv"
	CausalConvDX  Op = "causal_conv_dx"
	CausalConvDW  Op = "causal_conv_dw"
	DeltaGates    Op = "delta_gates"
	DeltaGatesBwd Op = "delta_gates_bwd"
	DeltaRule     Op = "delta_rule"
	DeltaRuleBwd  Op = "delta_rule_bwd"
)

// deltaFlops counts a decay, two products with the state and an update of it for each token and value head.
func deltaFlops(in, out [][]int) int64 { return 6 * prod(in[2]) * int64(in[0][2]) }

func deltaBwdFlops(in, out [][]int) int64 { return 15 * prod(in[3]) * int64(in[1][2]) }

func convFlops(in, out [][]int) int64 { return 2 * prod(in[0]) * int64(in[1][1]) }

func convDWFlops(in, out [][]int) int64 { return 2 * prod(in[0]) * int64(out[0][1]) }

var _ = register(Spec{Op: CausalConv, Sig: "x[t,c]A w[c,k]A cu[s+1]i32 -> y[t,c]A", Flops: convFlops,
	Doc: "Each column's convolution with its own k numbers along packed sequences: y[i] = Σ_j w[j]·x[i-k+1+j], " +
		"where rows before a sequence count as 0. Sums in float32. Rows outside all sequences are set to 0."},
	Spec{Op: CausalConvDX, Sig: "dy[t,c]A w[c,k]A cu[s+1]i32 -> dx[t,c]A",
		Flops: convFlops, Doc: "dx[i] = Σ_j w[j]·dy[i+k-1-j] within the sequence."},
	Spec{Op: CausalConvDW, Sig: "dy[t,c]A x[t,c]A cu[s+1]i32 -> dw[c,k]f32", Flops: convDWFlops,
		Doc: "dw[j] = Σ_i dy[i]·x[i-k+1+j] within sequences. I[0] = Accumulate adds into dw."}, Spec{
		Op:     DeltaGates,
		Sig:    "a[t,n]A b[t,n]A decay[n]A bias[n]A -> g[t,n]f32 beta[t,n]f32",
		Source: "arXiv:2412.06464",
		Doc:    "g = -exp(decay)·softplus(a + bias), beta = sigmoid(b), in float32.",
	}, Spec{
		Op:  DeltaGatesBwd,
		Sig: "dg[t,n]f32 dbeta[t,n]f32 a[t,n]A b[t,n]A decay[n]A bias[n]A -> da[t,n]A db[t,n]A",
		Doc: "da = -dg·exp(decay)·sigmoid(a + bias), db = dbeta·beta·(1-beta).",
	}, Spec{Op: DeltaRule, Source: "arXiv:2412.06464", Flops: deltaFlops,
		Sig: "q[t,h,d]A k[t,h,d]A v[t,n,e]A g[t,n]f32 beta[t,n]f32 cu[s+1]i32 -> o[t,n,e]A",
		Doc: "The gated delta rule along packed sequences. With x/sqrt(Σx²+F[0]) of each query and key " +
			"in place of x, and queries times d^-½, value head j takes key head j·h/n and has a state S [d,e], " +
			"0 before a sequence: S = exp(g)·S; S += k⊗beta·(v - Sᵀk); o = Sᵀq. All in float32. Rows outside " +
			"all sequences are set to 0."}, Spec{Op: DeltaRuleBwd, Source: "arXiv:2412.06464", Flops: deltaBwdFlops,
		Sig: "do[t,n,e]A q[t,h,d]A k[t,h,d]A v[t,n,e]A g[t,n]f32 beta[t,n]f32 cu[s+1]i32 -> dq[t,h,d]A " +
			"dk[t,h,d]A dv[t,n,e]A dg[t,n]f32 dbeta[t,n]f32", Doc: "The gradients of delta_rule, with states " +
			"computed again. Sums over the value heads of a key head in head order."})

func init() {
	check := func(in int) func(c *Call) error {
		return func(c *Call) error {
			if h, n := c.In[in].Shape[1], c.In[in+2].Shape[1]; h == 0 || n%h != 0 {
				return fmt.Errorf("%d value heads with %d key heads", n, h)
			}
			return checkCu("cu", c.In[in+5], c.In[in].Shape[0])
		}
	}
	extra[DeltaRule], extra[DeltaRuleBwd] = check(0), check(1)
	for _, op := range []Op{CausalConv, CausalConvDX, CausalConvDW} {
		extra[op] = func(c *Call) error { return checkCu("cu", c.In[2], c.In[0].Shape[0]) }
	}
}
