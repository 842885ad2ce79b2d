package kernels

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Operations of attention whose queries, or keys too, are shared out by rows.
const (
	CutSequences     Op = "cut_sequences"
	CutParts         Op = "cut_parts"
	AttentionPart    Op = "attention_part"
	AttentionPartBwd Op = "attention_part_bwd"
	AttentionMerge   Op = "attention_merge"
)

var _ = register(Spec{Op: CutSequences, Sig: "cu_q[c]i32 cu_k[c]i32 -> q[c]i32 k[c]i32",
	Doc: "The borders of those queries of packed sequences that lie in rows I[0]:I[0]+I[1], counted from " +
		"I[0], and of the keys that they may see: a sequence that is cut keeps its keys up to as many behind " +
		"the queries that are left as before. A sequence without queries there has no keys."}, Spec{Op: CutParts,
	Sig: "cu_q[c+1]i32 cu_k[c+1]i32 -> q[c+1]i32 k[c+1]i32 at[c]i32", Doc: "The borders of those queries " +
		"of packed sequences that lie in rows I[0]:I[0]+I[1], counted from I[0], and of those keys that lie in " +
		"rows I[2]:I[2]+I[3], counted from I[2]. at is the place of a sequence's first query that is left among " +
		"its keys that are left: negative if it is before them. In the whole, the last query is at the last key."},
	Spec{Op: AttentionPart, Flops: attnFlops, Source: "arXiv:2310.01889",
		Sig: "q[t,h,d]A k[s,g,d]A v[s,g,e]A cu_q[c+1]i32 cu_k[c+1]i32 at[c]i32 -> o[t,h,e]A lse[t,h]f32",
		Doc: "Attention to a part of the keys. As attention without masks, but query a of sequence i is at " +
			"key a + at[i] instead of a + Lk - Lq, so that with I[0]=1 it sees key b iff b <= a + at[i], and " +
			"with a window I[1]>0 iff b > a + at[i] - I[1] as well."}, Spec{Op: AttentionPartBwd, Flops: attnBwdFlops,
		Source: "arXiv:2310.01889", Sig: "do[t,h,e]A q[t,h,d]A k[s,g,d]A v[s,g,e]A o[t,h,e]A lse[t,h]f32 " +
			"cu_q[c+1]i32 cu_k[c+1]i32 at[c]i32 -> dq[t,h,d]A dk[s,g,d]A dv[s,g,e]A", Doc: "The gradients " +
			"of attention to all parts through one of them: o and lse are those of all parts, merged."},
	Spec{Op: AttentionMerge,
		Sig:    "oa[t,h,e]f32|A la[t,h]f32 ob[t,h,e]A lb[t,h]f32 -> o[t,h,e]f32|A lse[t,h]f32",
		Source: "arXiv:2310.01889",
		Doc: "Attention to two parts of the keys from that to each: lse = log(exp(la) + exp(lb)), o = " +
			"exp(la-lse)·oa + exp(lb-lse)·ob, in float32. " +
			"A part in which a query sees no key, so that its lse is -Inf, is not read; if neither has " +
			"any, o = 0 and lse = -Inf."})

func init() {
	extra[CutSequences] = func(c *Call) error { return checkBorders(c.In[0], c.In[1]) }
	extra[CutParts] = extra[CutSequences]
	extra[AttentionPart] = func(c *Call) error { return checkPart(c.In[0], c.In[1], c.In[3:], c.Attr) }
	extra[AttentionPartBwd] = func(c *Call) error { return checkPart(c.In[1], c.In[2], c.In[6:], c.Attr) }
}

// checkBorders checks the bounds of the sequences of queries and of keys, which need not be equally many tokens.
func checkBorders(cuQ, cuK *tensor.Tensor) error {
	if err := checkCu("cu_q", cuQ, 1<<31-1); err != nil {
		return err
	}
	return checkCu("cu_k", cuK, 1<<31-1)
}

// checkPart is checkAttention for a part of the keys, which has no tiles.
func checkPart(q, k *tensor.Tensor, more []*tensor.Tensor, at Attr) error {
	if at.I[2] != 0 {
		return fmt.Errorf("tiles of I[2] = %d rows, want none", at.I[2])
	}
	return checkHeads(q, k, more)
}
