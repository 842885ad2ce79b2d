package rates

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// longGroup is a kernel of one sequence of n tokens, with its backward.
func longGroup(what string, n int, build func(k *kernelSet, name string, n int)) kernelGroup {
	name := fmt.Sprintf(" over %d tokens", n)
	return kernelGroup{[]string{what + name, what + " backward" + name}, func(k *kernelSet) { build(k, name, n) }, true}
}

// longAttention is causal attention of one head of width 128.
func longAttention(k *kernelSet, name string, n int) {
	const width = 128
	cu := tensor.Of(tensor.I32, []int32{0, int32(n)}, 2)
	act := func() *tensor.Tensor { return k.randomTensor(n, 1, width) }
	q, keys, v, o, lse := act(), act(), act(), act(), tensor.Make(tensor.F32, n, 1)
	at := kernels.Attr{I: [4]int{1}, F: [2]float64{1 / math.Sqrt(width)}}
	flops := float64(n) * float64(n) / 2 * width * 2 * 2
	k.add("attention"+name, flops, &kernels.Call{Op: kernels.Attention,
		In: operands(q, keys, v, cu, cu), Out: operands(o, lse), Attr: at})
	k.add("attention backward"+name, 2.5*flops, &kernels.Call{Op: kernels.AttentionBwd,
		In: operands(o, q, keys, v, o, lse, cu, cu), Attr: at, Out: operands(act(), act(), act())})
}

// deltaCases are the gated delta rule with two key heads and four value heads of width 128. The operations
// that are counted are those of the rule token by token.
func deltaCases(k *kernelSet, name string, n int) {
	const keys, values, width = 2, 4, 128
	cu := tensor.Of(tensor.I32, []int32{0, int32(n)}, 2)
	gate, beta := k.f32(n, values), k.f32(n, values)
	for i, x := range gate.F32() {
		gate.F32()[i], beta.F32()[i] = -x*x/4, 0.5
	}
	at := kernels.Attr{F: [2]float64{1e-6}}
	q, key, v := k.randomTensor(n, keys, width), k.randomTensor(n, keys, width), k.randomTensor(n, values, width)
	in := operands(q, key, v, gate, beta, cu)
	flops := 6 * float64(n) * values * width * width
	k.add("delta rule"+name, flops, &kernels.Call{Op: kernels.DeltaRule, In: in,
		Out: operands(k.randomTensor(n, values, width)), Attr: at})
	k.add("delta rule backward"+name, 2.5*flops, &kernels.Call{Op: kernels.DeltaRuleBwd, In: append(
		operands(k.randomTensor(n, values, width)), in...), Attr: at, Out: operands(k.randomTensor(n, keys, width),
		k.randomTensor(n, keys, width), k.randomTensor(n, values, width), k.f32(n, values), k.f32(n, values))})
}

// The shape of latent attention: DeepSeek-V3's widths of the latent, of heads' numbers that turn and that do
// not, and of values, its heads, and the keys that a query of its sparse attention reads. Attention to all
// keys, whose time a head does not depend on their number, has a few heads. Of a sequence it has the queries
// in the middle, which see as many keys as the mean of all.
const (
	latentRank, latentTurning, latentStill = 512, 64, 128
	sparseHeads, denseHeads, sparseTop     = 128, 4, 2048
	middleQueries                          = 1024
)

// latentAttention is causal attention of heads that share a latent key, the absorbed form.
func latentAttention(k *kernelSet, name string, n int) {
	denseAttention(k, "latent attention", name, n, 1, latentRank+latentTurning, latentRank)
}

// latentHeads is the same with keys and values that are made for each head, as attention to all keys does.
func latentHeads(k *kernelSet, name string, n int) {
	denseAttention(k, "latent heads", name, n, denseHeads, latentStill+latentTurning, latentStill)
}

// denseAttention adds attention of a block of queries in the middle of n keys, which stands for the average over a long
// sequence. g, d and e are the heads of the keys, the width of keys, and that of values.
func denseAttention(k *kernelSet, what, name string, n, g, d, e int) {
	const t = middleQueries
	s := (n + t) / 2
	cu, cuK := tensor.Of(tensor.I32, []int32{0, t}, 2), tensor.Of(tensor.I32, []int32{0, int32(s)}, 2)
	q, keys, v, o := k.randomTensor(t, denseHeads, d), k.randomTensor(s, g, d), k.randomTensor(s, g, e),
		k.randomTensor(t, denseHeads, e)
	lse, at := tensor.Make(tensor.F32, t, denseHeads), latentScale(1)
	flops := t * float64(n) * denseHeads
	k.add(what+name, flops*float64(d+e), &kernels.Call{Op: kernels.Attention,
		In: operands(q, keys, v, cu, cuK), Out: operands(o, lse), Attr: at})
	k.add(what+" backward"+name, flops*float64(3*d+2*e), &kernels.Call{Op: kernels.AttentionBwd,
		In: operands(o, q, keys, v, o, lse, cu, cuK), Attr: at, Out: operands(k.randomTensor(q.Shape...),
			k.randomTensor(keys.Shape...), k.randomTensor(v.Shape...))})
}

func latentScale(causal int) kernels.Attr {
	return kernels.Attr{I: [4]int{causal}, F: [2]float64{1 / math.Sqrt(latentStill+latentTurning)}}
}

// sparseAttention is attention of heads that share a latent key to keys of each query drawn at random, so
// that no two queries read the same.
func sparseAttention(k *kernelSet, name string, n int) {
	const d, e, t = latentRank + latentTurning, latentRank, middleQueries
	s := (n + t) / 2
	q, keys, v, o := k.randomTensor(t, sparseHeads, d), k.randomTensor(s, 1, d), k.randomTensor(s, 1, e),
		k.randomTensor(t, sparseHeads, e)
	lse, idx, at := tensor.Make(tensor.F32, t, sparseHeads), tensor.Make(tensor.I32, t, sparseTop), latentScale(0)
	flops := 0.0
	for a := range t {
		sees := s - t + a + 1
		row, left := idx.I32()[a*sparseTop:(a+1)*sparseTop], min(sparseTop, sees)
		flops += 2 * sparseHeads * float64(left)
		for i, j := 0, 0; i < sparseTop; i++ {
			row[i] = -1
			for ; left > 0; j++ {
				if k.r.IntN(sees-j) < left {
					row[i] = int32(j)
					j++
					left--
					break
				}
			}
		}
	}
	k.add("sparse attention"+name, flops*(d+e), &kernels.Call{Op: kernels.AttentionSparse,
		In: operands(q, keys, v, idx), Out: operands(o, lse), Attr: at})
	k.add("sparse attention backward"+name, flops*(3*d+2*e), &kernels.Call{Op: kernels.AttentionSparseBwd,
		In: operands(o, q, keys, v, o, lse, idx), Attr: at, Out: operands(k.randomTensor(q.Shape...),
			k.randomTensor(keys.Shape...), k.randomTensor(v.Shape...))})
}
