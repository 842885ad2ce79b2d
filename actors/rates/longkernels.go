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
	return kernelGroup{[]string{what + name, what + " backward" + name},
		func(k *kernelSet) { build(k, name, n) }, true}
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
	k.add("delta rule backward"+name, 2.5*flops, &kernels.Call{Op: kernels.DeltaRuleBwd,
		In: append(operands(k.randomTensor(n, values, width)), in...), Attr: at,
		Out: operands(k.randomTensor(n, keys, width), k.randomTensor(n, keys, width), k.randomTensor(n, values, width),
			k.f32(n, values), k.f32(n, values))})
}
