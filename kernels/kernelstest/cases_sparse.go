package kernelstest

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// sparseShape is queries, keys, heads, key heads, widths of keys and values, and keys that a query lists.
type sparseShape struct{ t, s, h, g, d, e, n int }

var sparseShapes = []sparseShape{{0, 3, 2, 1, 4, 4, 2}, {1, 1, 1, 1, 3, 5, 1}, {9, 20, 4, 2, 8, 7, 5},
	{40, 70, 4, 4, 33, 16, 24}, {33, 600, 2, 1, 64, 48, 300}, {21, 300, 26, 2, 36, 32, 150},
	{70, 400, 64, 1, 48, 40, 260}, {3, 40, 18, 1, 192, 128, 30}, {2, 40, 17, 1, 576, 512, 30}}

// lists gives each query rows of keys in ascending order: as many as it may, fewer, or none.
func (x sparseShape) lists(g *gen) *tensor.Tensor {
	idx := g.raw(tensor.I32, x.t, x.n)
	for a := range x.t {
		row, at := idx.I32()[a*x.n:(a+1)*x.n], 0
		for j := range x.s {
			if at < x.n && a%4 != 3 && g.IntN(x.s) < x.n {
				row[at] = int32(j)
				at++
			}
		}
		for ; at < x.n; at++ {
			row[at] = -1
		}
	}
	return idx
}

// sees gives each query a range of keys; some see none.
func (x sparseShape) sees(g *gen) *tensor.Tensor {
	see := g.raw(tensor.I32, x.t, 2)
	for a := range x.t {
		from := g.IntN(x.s)
		see.I32()[2*a], see.I32()[2*a+1] = int32(from/2), int32(from/2+g.IntN(x.s-from/2+1))
		if a%5 == 4 {
			see.I32()[2*a+1] = see.I32()[2*a]
		}
	}
	return see
}

const whySparse = "sums of up to 600 terms in float32, and exponentials"

func sparseCases() (l []Case) {
	for _, x := range sparseShapes {
		at := kernels.Attr{F: [2]float64{min(0.3, 2.4/math.Sqrt(float64(x.d)))}}
		l = append(l, Case{Op: kernels.AttentionSparse, Name: fmt.Sprint(x), Tol: 5e-6, Terms: 1, Why: whySparse,
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{Attr: at, In: tensors{g.act(x.t, x.h, x.d), g.act(x.s, x.g, x.d),
					g.act(x.s, x.g, x.e), x.lists(g)},
					Out: tensors{g.raw(g.a, x.t, x.h, x.e), g.raw(tensor.F32, x.t, x.h)}}
			}}, Case{Op: kernels.AttentionSparseBwd, Name: fmt.Sprint(
			x), Tol: 1e-5, Half: 1, Terms: 1, Why: whySparse, Call: func(g *gen) *kernels.Call {
			q, k, v, idx := g.act(x.t, x.h, x.d), g.act(x.s, x.g, x.d), g.act(x.s, x.g, x.e), x.lists(g)
			o, lse := g.raw(g.a, x.t, x.h, x.e), g.raw(tensor.F32, x.t, x.h)
			do(kernels.AttentionSparse, at, tensors{q, k, v, idx}, tensors{o, lse})
			return &kernels.Call{Attr: at, In: tensors{g.act(x.t, x.h, x.e), q, k, v, o, lse, idx},
				Out: tensors{g.raw(g.a, x.t, x.h, x.d), g.raw(g.a, x.s, x.g, x.d), g.raw(g.a, x.s, x.g, x.e)}}
		}}, Case{Op: kernels.IndexTopK, Name: fmt.Sprint(x), Why: "integers", Call: func(g *gen) *kernels.Call {
			return &kernels.Call{Attr: at, In: tensors{g.act(x.t, x.h, x.d), g.act(x.s, 1, x.d),
				g.f32(x.t, x.h), x.sees(g)}, Out: tensors{g.raw(tensor.I32, x.t, x.n)}}
		}})
		for _, some := range []bool{false, true} {
			l = append(l, x.losses(some)...)
		}
	}
	return l
}

// losses are those of an indexer over all keys that queries see, or over some.
func (x sparseShape) losses(some bool) []Case {
	at := kernels.Attr{F: [2]float64{0.2, 0.3}}
	operands := func(g *gen) tensors {
		in := tensors{g.act(x.t, 3, x.e), g.act(x.s, 1, x.e), g.f32(x.t, 3), g.act(x.t, x.h, x.d),
			g.act(x.s, x.g, x.d), x.sees(g), g.positive(x.t)}
		if some {
			in = append(in, x.lists(g))
		}
		return in
	}
	name := fmt.Sprint(x, some)
	return []Case{{Op: kernels.IndexLoss, Name: name, Tol: 1e-5, Terms: 1, Why: whySparse,
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{Attr: at, In: operands(g), Out: tensors{g.raw(tensor.F32, 1)}}
		}}, {Op: kernels.IndexLossBwd, Name: name, Tol: 2e-5, Terms: 0.01, Why: whySparse,
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{Attr: at, In: append(tensors{g.f32(1)}, operands(g)...),
				Out: tensors{g.raw(g.a, x.t, 3, x.e), g.raw(g.a, x.s, 1, x.e), g.raw(tensor.F32, x.t, 3)}}
		}}}
}

func visibleCases() (l []Case) {
	for _, cu := range [][2][]int32{{{0, 7}, {0, 7}}, {{0, 2, 2, 6}, {0, 5, 9, 13}}, {{1, 3, 6}, {2, 6, 9}},
		{{0, 5}, {0, 3}}, {{0, 0}, {0, 0}}} {
		l = append(l, Case{Op: kernels.VisibleKeys, Name: fmt.Sprint(cu), Types: onlyF32, Why: "integers",
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.i32(cu[0]...), g.i32(cu[1]...)},
					Out: tensors{g.raw(tensor.I32, 8, 2), g.raw(tensor.F32, 8)}}
			}})
	}
	return l
}

var _ = add(sparseCases()...)
var _ = add(visibleCases()...)
