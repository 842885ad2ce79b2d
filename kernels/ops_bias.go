package kernels

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Attention with a bias of its scores by the distance of key and query, as T5 has it.
const (
	AttentionBias    Op = "attention_bias"
	AttentionBiasBwd Op = "attention_bias_bwd"
)

// The bias is a table of distances and heads, and not a matrix of scores: sequences of any lengths, packed in one call,
// share it, it has as many numbers as distances that differ, and its gradient is that of a table. A bias by buckets is
// the rows of another table, one a distance (take), and beyond the reach of the buckets it does not change.
var _ = register(Spec{Op: AttentionBias, Sig: "q[t,h,d]A k[s,g,d]A v[s,g,e]A cu_q[c+1]i32 cu_k[c+1]i32 " +
	"bias[r,h]A|f32 -> o[t,h,e]A lse[t,h]f32", Flops: attnFlops, Source: "arXiv:1910.10683", Doc: "attention " +
	"whose scores are F[0]·q·k + bias[m + min(max(j - i, -m), m), head] for query i and key j, counted " +
	"from the starts of their sequences, and r = 2m+1. I[0] and I[1] as for attention; no soft cap and no mask."},
	Spec{Op: AttentionBiasBwd, Sig: "do[t,h,e]A q[t,h,d]A k[s,g,d]A v[s,g,e]A o[t,h,e]A lse[t,h]f32 cu_q[c+1]i32 " +
		"cu_k[c+1]i32 bias[r,h]A|f32 -> dq[t,h,d]A dk[s,g,d]A dv[s,g,e]A dbias[r,h]A|f32", Flops: attnBwdFlops,
		Source: "arXiv:1910.10683", Doc: "The gradients of attention_bias: that of the bias is the sum of those of " +
			"all scores that it was added to, in float32, rounded once."})

// checkBias wants a table of all distances up to one, heads that divide, and offsets in order.
func checkBias(c *Call, q, k int, cu []*tensor.Tensor) error {
	if r := cu[2].Shape[0]; r%2 != 1 {
		return fmt.Errorf("a bias of %d distances, want those from -m to m", r)
	}
	if c.Attr.F[1] != 0 || c.Attr.I[2] != 0 {
		return fmt.Errorf("a soft cap F[1] of %g and tiles I[2] of %d, want none", c.Attr.F[1], c.Attr.I[2])
	}
	return checkHeads(c.In[q], c.In[k], cu)
}

func init() {
	extra[AttentionBias] = func(c *Call) error { return checkBias(c, 0, 1, c.In[3:]) }
	extra[AttentionBiasBwd] = func(c *Call) error { return checkBias(c, 1, 2, c.In[6:]) }
}
