package kernels

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Operations of DeepSeek's sparse attention: an indexer scores keys for each query, and attention reads the
// best of them alone.
const (
	VisibleKeys        Op = "visible_keys"
	IndexTopK          Op = "index_topk"
	AttentionSparse    Op = "attention_sparse"
	AttentionSparseBwd Op = "attention_sparse_bwd"
	IndexLoss          Op = "index_loss"
	IndexLossBwd       Op = "index_loss_bwd"
)

// topKFlops counts the products of all queries with half of all keys, as those of attention.
func topKFlops(in, out [][]int) int64 { return prod(in[0]) * int64(in[1][0]) }

func sparseFlops(in, out [][]int) int64 {
	return 2 * prod(in[0][:2]) * int64(in[3][1]) * int64(in[0][2]+in[2][2])
}

func sparseBwdFlops(in, out [][]int) int64 {
	return 2 * prod(in[1][:2]) * int64(in[6][1]) * int64(3*in[1][2]+2*in[3][2])
}

// indexFlops counts scores of the indexer and of all heads for the keys of each query: those that are
// listed, or half of all.
func indexFlops(in, out [][]int) int64 {
	keys := int64(in[1][0])
	if len(in) > 7 && len(in[7]) == 2 {
		keys = 2 * int64(in[7][1])
	}
	return (prod(in[0]) + prod(in[3])) * keys
}

func indexBwdFlops(in, out [][]int) int64 {
	return indexFlops(in[1:], nil) + 2*prod(in[1])*int64(in[2][0])
}

const indexOperands = "iq[t,m,r]A ik[s,1,r]A iw[t,m]f32 q[t,h,d]A k[s,g,d]A see[t,2]i32 mean[t]f32 idx[t,n]i32?"

var _ = register(Spec{Op: VisibleKeys, Sig: "cu_q[c+1]i32 cu_k[c+1]i32 -> see[t,2]i32 mean[t]f32",
	Doc: "see[a] are the first row of keys that query a sees and the one behind the last: those of " +
		"its packed sequence up to its own place, where the last query is at the last key. mean is one " +
		"over the number of queries of all sequences. Rows outside all sequences see 0:0 and have a mean of 0."},
	Spec{Op: IndexTopK, Flops: topKFlops, Source: "DeepSeek-V3.2-Exp's report, eq. 1 and 2",
		Sig: "q[t,h,d]A k[s,1,d]A w[t,h]f32 see[t,2]i32 -> idx[t,n]i32", Doc: "idx[a] are the n rows " +
			"j of k in see[a,0]:see[a,1] of the greatest scores F[0]·Σ_i w[a,i]·max(q[a,i]·k[j], 0), in " +
			"ascending order; the first of those with equal scores, and where there are fewer than n, all " +
			"of them and then -1. A score that is not a number counts as greatest. Memory is linear in t and s."},
	Spec{Op: AttentionSparse, Flops: sparseFlops, Source: "DeepSeek-V3.2-Exp's report, eq. 2",
		Sig: "q[t,h,d]A k[s,g,d]A v[s,g,e]A idx[t,n]i32 -> o[t,h,e]A lse[t,h]f32",
		Doc: "Attention of each query to the rows of keys that it lists: scores F[0]·q[a]·k[j] for j of idx[a], " +
			"without those below 0; head i uses key head i·g/h. lse is the natural log of the sum of exponentials. " +
			"I[0] is how many heads of the whole model share a key head, 0: h/g. A backend may sum in another order for " +
			"many, by I[0] alone: bits do not depend on how ranks share heads out. " +
			"A query that lists no key gives o = 0, lse = -Inf. No matrix of all queries and keys is built."},
	Spec{Op: AttentionSparseBwd, Flops: sparseBwdFlops, Sig: "do[t,h,e]A q[t,h,d]A k[s,g,d]A v[s,g,e]A " +
		"o[t,h,e]A lse[t,h]f32 idx[t,n]i32 -> dq[t,h,d]A dk[s,g,d]A dv[s,g,e]A", Doc: "The gradients of " +
		"attention_sparse, with probabilities computed again from lse. dk and dv sum over queries in their order."},
	Spec{Op: IndexLoss, Flops: indexFlops, Source: "DeepSeek-V3.2-Exp's report, eq. 3 and 4", Sig: indexOperands +
		" -> loss[1]f32", Doc: "Σ_a mean[a]·KL(p[a] ‖ softmax(s[a])) over the keys of query a: those of idx[a] from " +
		"0 on, or without idx those of see[a]. s are the indexer's scores F[0]·Σ_i iw[a,i]·max(iq[a,i]·ik[j], 0), " +
		"and p is the mean over heads of attention's softmax of F[1]·q·k, whose head i uses key head i·g/h. A query " +
		"without keys adds 0."}, Spec{Op: IndexLossBwd, Flops: indexBwdFlops, Sig: "dloss[1]f32 " + indexOperands +
		" -> diq[t,m,r]A dik[s,1,r]A diw[t,m]f32", Doc: "The gradients of index_loss by what the indexer makes: " +
		"ds = dloss·mean·(softmax(s) - p). dik sums over queries in their order. p counts as constant."})

func init() {
	extra[VisibleKeys] = func(c *Call) error {
		if err := checkCu("cu_q", c.In[0], c.Out[0].Shape[0]); err != nil {
			return err
		}
		return checkCu("cu_k", c.In[1], 1<<31-1)
	}
	extra[IndexTopK] = func(c *Call) error {
		if c.Out[0].Shape[1] == 0 {
			return fmt.Errorf("no keys to choose")
		}
		return checkSees(c.In[3], c.In[1].Shape[0])
	}
	extra[AttentionSparse] = func(c *Call) error { return checkListed(c.In[0], c.In[1], c.In[3]) }
	extra[AttentionSparseBwd] = func(c *Call) error { return checkListed(c.In[1], c.In[2], c.In[6]) }
	index := func(in []*tensor.Tensor) error {
		if err := checkSees(in[5], in[4].Shape[0]); err != nil {
			return err
		}
		if len(in) > 7 && in[7] != nil {
			return checkListed(in[3], in[4], in[7])
		}
		return nil
	}
	extra[IndexLoss] = func(c *Call) error { return index(c.In) }
	extra[IndexLossBwd] = func(c *Call) error { return index(c.In[1:]) }
}

// checkSees wants ranges of rows of s keys.
func checkSees(see *tensor.Tensor, s int) error {
	if !see.OnHost() {
		return nil
	}
	for i, v := 0, see.I32(); i+1 < len(v); i += 2 {
		if v[i] < 0 || v[i+1] < v[i] || int(v[i+1]) > s {
			return fmt.Errorf("query %d sees rows %d:%d of %d keys", i/2, v[i], v[i+1], s)
		}
	}
	return nil
}

// checkListed wants heads that divide, and rows of keys that there are.
func checkListed(q, k, idx *tensor.Tensor) error {
	if g, h := k.Shape[1], q.Shape[1]; g == 0 || h%g != 0 {
		return fmt.Errorf("%d query heads with %d key heads", h, g)
	}
	if !idx.OnHost() {
		return nil
	}
	for i, j := range idx.I32() {
		if int(j) >= k.Shape[0] {
			return fmt.Errorf("query %d lists row %d of %d keys", i/max(1, idx.Shape[1]), j, k.Shape[0])
		}
	}
	return nil
}
