package kernelstest

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

type tensors = []*tensor.Tensor

// matrixSizes are rows, outputs and inputs of a linear layer: one row, empty, odd, a multiple of every
// block, over the blocks of each dimension.
var matrixSizes = [][3]int{
	{1, 1, 1}, {0, 5, 3}, {4, 0, 3}, {3, 5, 0}, {1, 40, 33}, {3, 5, 7}, {17, 33, 65}, {64, 96, 128},
	{33, 100, 31},
	{130, 70, 60}, {20, 40, 1100}, {300, 65, 40}, {20, 300, 33},
}

const sumWhy = "float32 sums of at most 1100 products"

// matrixCases are linear layers with and without bias and both gradients, the one to the weights
// also added to what is there.
func matrixCases() []Case {
	var l []Case
	for _, s := range matrixSizes {
		m, n, k := s[0], s[1], s[2]
		name := fmt.Sprintf("%dx%dx%d", m, n, k)
		l = append(l, Case{Op: kernels.Linear, Name: name, Tol: 4e-6, Why: sumWhy, Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(m, k), g.scaled(n, k)}, Out: tensors{g.raw(g.a, m, n)}}
		}}, Case{Op: kernels.Linear, Name: name + "bias", Tol: 4e-6, Why: sumWhy, Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(m, k), g.scaled(n, k), g.act(n)},
				Out: tensors{g.raw(tensor.F32, m, n)}}
		}},
			Case{Op: kernels.Linear, Name: name + "parts", Tol: 8e-6, Half: 4,
				Why: sumWhy + ", in 2 or 3 parts that are rounded each", Call: func(g *gen) *kernels.Call {
					p := 2 + k%2
					return &kernels.Call{In: tensors{g.act(m, p*k), g.scaled(n, p*k), g.act(n)},
						Out: tensors{g.raw(g.a, m, n)}, Attr: kernels.Attr{I: [4]int{3: p}}}
				}}, Case{Op: kernels.Linear, Name: name + "part", Tol: 4e-6, Why: sumWhy, Call: func(
				g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(m, 3*k), g.scaled(n, 3*k), g.act(n)},
					Out: tensors{g.raw(g.a, m, n)}, Attr: kernels.Attr{I: [4]int{2: 1 + k%3, 3: 3}}}
			}}, Case{Op: kernels.LinearDX, Name: name, Tol: 4e-6, Why: sumWhy, Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(m, n), g.act(n, k)}, Out: tensors{g.raw(g.a, m, k)}}
			}}, Case{Op: kernels.LinearDW, Name: name, Tol: 4e-6, Why: sumWhy, Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(m, n), g.act(m, k)}, Out: tensors{g.raw(tensor.F32, n, k)}}
			}}, Case{Op: kernels.LinearDW, Name: name + "acc", Tol: 4e-6, Why: sumWhy, Call: func(
				g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(m, n), g.act(m, k)}, Out: tensors{g.f32(n, k)},
					Attr: accumulate(0)}
			}})
	}
	return append(l, Case{Op: kernels.LinearDW, Name: "4100x3x2", Tol: 1e-5, Why: sumWhy, Call: func(
		g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.act(4100, 3), g.act(4100, 2)}, Out: tensors{g.raw(tensor.F32, 3, 2)}}
	}})
}

// lowCases are products of operands in each precision, with sizes that are no whole blocks, subnormal and
// large numbers, blocks of zeros, and ones that are cut off.
func lowCases() []Case {
	var l []Case
	for p := 1; p < len(kernels.Precisions); p++ {
		for _, s := range [][3]int{{1, 1, 1}, {5, 7, 40}, {3, 130, 260}, {150, 33, 129}, {0, 3, 4}, {4, 5, 0}} {
			m, n, k := s[0], s[1], s[2]
			name := fmt.Sprintf("%s-%dx%dx%d", kernels.Precisions[p].Name, m, n, k)
			at := func(site int, add bool) (a kernels.Attr) {
				if a.I[1], a.I[3] = p, site; add {
					a.I[0] = kernels.Accumulate
				}
				return a
			}
			l = append(l, Case{Op: kernels.LowLinear, Name: name, Tol: 4e-6, Why: sumWhy,
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.uneven(m, k), g.uneven(n, k), g.act(n)},
						Out: tensors{g.raw(g.a, m, n)}, Attr: at(0, false)}
				}}, Case{Op: kernels.LowLinearDX, Name: name, Tol: 4e-6, Why: sumWhy, Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.uneven(m, n), g.uneven(n, k), nil, g.draw()},
					Out: tensors{g.raw(g.a, m, k)}, Attr: at(12345, false)}
			}}, Case{Op: kernels.LowLinearDW, Name: name, Tol: 4e-6, Why: sumWhy, Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.uneven(m, n), g.uneven(m, k), nil, g.draw()},
					Out: tensors{g.f32(n, k)}, Attr: at(12345, true)}
			}})
		}
	}
	return l
}

// draw is what noise is counted from.
func (g *gen) draw() *tensor.Tensor { return tensor.Of(tensor.I64, []int64{int64(g.Uint64())}, 1) }

// uneven are numbers of which a tenth is far smaller, one in a hundred a hundred times as large, and a tenth 0.
func (g *gen) uneven(shape ...int) *tensor.Tensor {
	wide := make([]float32, tensor.Len(shape))
	for i := range wide {
		wide[i] = float32(g.NormFloat64())
		switch k := g.IntN(100); {
		case k < 10:
			wide[i] *= 1e-4
		case k < 20:
			wide[i] = 0
		case k < 21:
			wide[i] *= 100
		}
	}
	t := tensor.Make(g.a, shape...)
	tensor.Narrow(g.a, wide, t.Bytes())
	return t
}

func accumulate(i int) (a kernels.Attr) {
	a.I[i] = kernels.Accumulate
	return a
}

// rowSizes are rows and width of row-wise operations.
var rowSizes = [][2]int{{1, 1}, {0, 4}, {1, 64}, {5, 7}, {3, 16}, {33, 65}, {7, 512}, {150, 40}}

// rowCases are the sums of columns and the RMS norm over all sizes of rows.
func rowCases() []Case {
	var l []Case
	for _, s := range rowSizes {
		t, d := s[0], s[1]
		name := fmt.Sprintf("%dx%d", t, d)
		row := func(op kernels.Op, why string, call func(g *gen) *kernels.Call) {
			l = append(l, Case{Op: op, Name: name, Tol: 2e-6, Why: why, Call: call})
		}
		row(kernels.ColSum, "float32 sums over 150 rows", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d)}, Out: tensors{g.raw(tensor.F32, d)}}
		})
		row(kernels.RMSNorm, "one float32 sum over 512 squares and one root", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.act(d)},
				Out: tensors{g.raw(g.a, t, d), g.raw(tensor.F32, t)}, Attr: kernels.Attr{F: [2]float64{1e-5}}}
		})
		row(kernels.RMSNormDX, "one float32 sum over 512 products", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.act(t, d), g.act(d), g.positive(t)},
				Out: tensors{g.raw(g.a, t, d)}}
		})
		row(kernels.RMSNormDW, "float32 sums over 150 rows", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.act(t, d), g.positive(t)},
				Out: tensors{g.raw(tensor.F32, d)}}
		})
	}
	return append(l, Case{Op: kernels.ColSum, Name: "acc", Tol: 2e-6, Why: "float32 sums over 20 rows",
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(4, 5, 33)}, Out: tensors{g.f32(33)}, Attr: accumulate(0)}
		}}, Case{Op: kernels.RMSNormDW, Name: "acc", Tol: 2e-6, Why: "float32 sums over 20 rows", Call: func(
		g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.act(4, 5, 33), g.act(4, 5, 33), g.positive(4, 5)},
			Out: tensors{g.f32(33)}, Attr: accumulate(0)}
	}})
}

// ropeCases are the table of angles and the turning of heads, in both directions and with both ways to pair columns.
func ropeCases() []Case {
	l := []Case{{Op: kernels.RopeTable, Name: "positions", Tol: 3e-7, Why: "cos and sin rounded once, times a factor",
		Types: onlyF32, Call: func(g *gen) *kernels.Call {
			inv := g.raw(tensor.F32, 32)
			for i := range inv.F32() {
				inv.F32()[i] = float32(math.Pow(10000, -float64(i)/32))
			}
			return &kernels.Call{In: tensors{g.ids(37, 0, 130000), inv}, Attr: kernels.Attr{F: [2]float64{1.25}},
				Out: tensors{g.raw(tensor.F32, 37, 32), g.raw(tensor.F32, 37, 32)}}
		}}}
	for _, s := range [][4]int{{1, 1, 2, 1}, {0, 2, 4, 2}, {5, 3, 64, 32}, {7, 2, 40, 12}, {3, 2, 17, 8}} {
		t, h, d, r := s[0], s[1], s[2], s[3]
		for _, sign := range []int{1, -1} {
			for pairs := range 2 {
				l = append(l,
					Case{Op: kernels.Rope, Name: fmt.Sprintf("%dx%dx%dr%d%+dpairs%d", t, h, d, r, sign, pairs),
						Tol: 4e-7, Why: "two products", Call: func(g *gen) *kernels.Call {
							return &kernels.Call{In: tensors{g.act(t, h, d), g.f32(t, r), g.f32(t, r)},
								Out: tensors{g.raw(g.a, t, h, d)}, Attr: kernels.Attr{I: [4]int{sign, pairs}}}
						}})
			}
		}
	}
	return l
}

// attnShape is a packed batch: lengths of queries and keys of each sequence, heads, widths, mask.
type attnShape struct {
	q, k           []int
	h, g, d, e     int
	causal, window int
	extra          int // rows beyond the last offset
}

var attnShapes = []attnShape{
	{q: []int{1}, k: []int{1}, h: 1, g: 1, d: 4, e: 4, causal: 1},
	{q: []int{5}, k: []int{5}, h: 2, g: 2, d: 8, e: 8},
	{q: []int{3, 0, 7}, k: []int{3, 0, 7}, h: 4, g: 2, d: 16, e: 16, causal: 1, extra: 2},
	{q: []int{}, k: []int{}, h: 2, g: 1, d: 8, e: 8, causal: 1, extra: 3},
	{q: []int{1, 2}, k: []int{50, 33}, h: 4, g: 1, d: 32, e: 24, causal: 1},
	{q: []int{9, 3}, k: []int{4, 0}, h: 2, g: 1, d: 5, e: 7, causal: 1},
	{q: []int{70, 130}, k: []int{70, 130}, h: 2, g: 1, d: 64, e: 64, causal: 1},
	{q: []int{200}, k: []int{200}, h: 2, g: 2, d: 20, e: 20, causal: 1, window: 37},
	{q: []int{40}, k: []int{150}, h: 3, g: 3, d: 33, e: 17, window: 64},
	{q: []int{300, 1}, k: []int{300, 1}, h: 1, g: 1, d: 16, e: 16, causal: 1},
	{q: []int{12}, k: []int{12}, h: 2, g: 1, d: 8, e: 8, causal: 1, window: 1},
	{q: []int{20, 50}, k: []int{20, 90}, h: 2, g: 1, d: 80, e: 128, causal: 1, extra: 1},
	{q: []int{66}, k: []int{66}, h: 2, g: 1, d: 256, e: 256, causal: 1},
}

// cumulative turns lengths of sequences into bounds, which begin with 0.
func cumulative(lens []int) []int32 {
	cu := []int32{0}
	for _, n := range lens {
		cu = append(cu, cu[len(cu)-1]+int32(n))
	}
	return cu
}

// operands makes random operands of attention; extra rows belong to no sequence.
func (s attnShape) operands(g *gen) (q, k, v, cuQ, cuK *tensor.Tensor, a kernels.Attr) {
	cq, ck := cumulative(s.q), cumulative(s.k)
	t, n := int(cq[len(cq)-1])+s.extra, int(ck[len(ck)-1])+s.extra
	a = kernels.Attr{I: [4]int{s.causal, s.window}, F: [2]float64{1 / math.Sqrt(float64(s.d))}}
	return g.act(t, s.h, s.d), g.act(n, s.g, s.d), g.act(n, s.g, s.e), g.i32(cq...), g.i32(ck...), a
}

// attnCases are attention and its gradient over all shapes.
func attnCases() []Case {
	var l []Case
	for i, s := range attnShapes {
		name := fmt.Sprintf("%d_q%vk%vh%dg%dd%de%d", i, s.q, s.k, s.h, s.g, s.d, s.e)
		l = append(l, attnForward(name, s, 0), attnBackward(name, s, 0))
	}
	return l
}

// attnForward and attnBackward are cases with a soft cap of most, 0 for none.
func attnForward(name string, s attnShape, most float64) Case {
	return Case{Op: kernels.Attention, Name: name, Tol: 5e-6, Half: 1, Terms: 1,
		Why:   "exponentials, and probabilities times values of unit variance rounded to the activation dtype",
		Leaky: true, Call: func(g *gen) *kernels.Call {
			q, k, v, cuQ, cuK, a := s.operands(g)
			a.F[1] = most
			return &kernels.Call{In: tensors{q, k, v, cuQ, cuK}, Attr: a,
				Out: tensors{g.raw(g.a, q.Shape[0], s.h, s.e), g.raw(tensor.F32, q.Shape[0], s.h)}}
		}}
}

// attnBackward is one case of the gradient. The forward is run first, since the gradient takes its
// output and its sums; most caps the scores, and 0 leaves them.
func attnBackward(name string, s attnShape, most float64) Case {
	return Case{Op: kernels.AttentionBwd, Name: name, Tol: 1e-5, Half: 2, Terms: 1,
		Why: "differences of products of unit variance, rounded to the activation dtype", Leaky: true,
		Call: func(g *gen) *kernels.Call {
			q, k, v, cuQ, cuK, a := s.operands(g)
			a.F[1] = most
			o, lse := g.raw(g.a, q.Shape[0], s.h, s.e), g.raw(tensor.F32, q.Shape[0], s.h)
			do(kernels.Attention, a, tensors{q, k, v, cuQ, cuK}, tensors{o, lse})
			return &kernels.Call{In: tensors{g.act(o.Shape...), q, k, v, o, lse, cuQ, cuK}, Attr: a,
				Out: tensors{g.raw(g.a, q.Shape...), g.raw(g.a, k.Shape...), g.raw(g.a, v.Shape...)}}
		}}
}

var _ = add(matrixCases()...)
var _ = add(lowCases()...)
var _ = add(rowCases()...)
var _ = add(ropeCases()...)
var _ = add(attnCases()...)
