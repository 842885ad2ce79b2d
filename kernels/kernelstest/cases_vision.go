package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func visionRowCases() []Case {
	var l []Case
	for _, s := range rowSizes {
		t, d := s[0], s[1]
		name := fmt.Sprintf("%dx%d", t, d)
		row := func(op kernels.Op, tol float64, why string, call func(g *gen) *kernels.Call) {
			l = append(l, Case{Op: op, Name: name, Tol: tol, Why: why, Call: call})
		}
		eps := kernels.Attr{F: [2]float64{1e-5}}
		if d == 1 {
			eps.F[0] = 0.5 // a row of one has no spread: rounding would be all there is
		}
		row(kernels.LayerNorm, 4e-6, "two float32 sums over 512 and one root", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.act(d), g.act(d)}, Out: tensors{g.raw(g.a, t, d),
				g.raw(tensor.F32, t), g.raw(tensor.F32, t)}, Attr: eps}
		})
		row(kernels.LayerNormDX, 4e-6, "two float32 sums over 512 products", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.act(t, d), g.act(d), g.f32(t), g.positive(t)},
				Out: tensors{g.raw(g.a, t, d)}}
		})
		row(kernels.LayerNormDW, 2e-6, "float32 sums over 150 rows", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.act(t, d), g.f32(t), g.positive(t)},
				Out: tensors{g.raw(tensor.F32, d)}}
		})
		row(kernels.ScaleRows, 0, "one product", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.f32(t)}, Out: tensors{g.raw(g.a, t, d)}}
		})
		row(kernels.MulCols, 0, "one product", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.act(d)}, Out: tensors{g.raw(g.a, t, d)}}
		})
		row(kernels.MulColsDW, 2e-6, "float32 sums over 150 rows", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.act(t, d)}, Out: tensors{g.raw(tensor.F32, d)}}
		})
	}
	return append(l, Case{Op: kernels.LayerNorm, Name: "nobias", Tol: 4e-6,
		Why: "two float32 sums over 33 and one root", Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(4, 5, 33), g.act(33), nil},
				Out:  tensors{g.raw(g.a, 4, 5, 33), g.raw(tensor.F32, 4, 5), g.raw(tensor.F32, 4, 5)},
				Attr: kernels.Attr{F: [2]float64{1e-6}}}
		}}, Case{Op: kernels.LayerNormDW, Name: "acc", Tol: 2e-6, Why: "float32 sums over 20 rows", Call: func(
		g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.act(4, 5, 33), g.act(4, 5, 33), g.f32(4, 5),
			g.positive(4, 5)}, Out: tensors{g.f32(33)}, Attr: accumulate(0)}
	}}, Case{Op: kernels.MulColsDW, Name: "acc", Tol: 2e-6, Why: "float32 sums over 20 rows", Call: func(
		g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.act(4, 5, 33), g.act(4, 5, 33)}, Out: tensors{g.f32(33)},
			Attr: accumulate(0)}
	}})
}

func actCases() []Case {
	var l []Case
	for kind := kernels.GELU; kind <= kernels.Exp; kind++ {
		terms := 0.0
		if kind == kernels.Tanh { // whose slope is 1 less a square near 1
			terms = 1
		}
		for _, n := range lengths {
			at := kernels.Attr{I: [4]int{kind}}
			l = append(l, Case{Op: kernels.Act, Name: fmt.Sprintf("%d-%d", kind, n), Tol: 1e-6,
				Why: "an exponential, a quotient and a polynomial of degree 9", Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.normal(g.a, 3, n)}, Out: tensors{g.raw(g.a, n)}, Attr: at}
				}},
				Case{Op: kernels.ActBwd, Name: fmt.Sprintf("%d-%d", kind, n), Tol: 3e-6, Terms: terms,
					Why: "an exponent of size 5 with its rounding, and terms that cancel where the " +
						"slope turns", Call: func(g *gen) *kernels.Call {
						return &kernels.Call{In: tensors{g.act(n), g.normal(g.a, 3, n)},
							Out: tensors{g.raw(g.a, n)}, Attr: at}
					}})
		}
	}
	return l
}

func takeCases() []Case {
	var l []Case
	for _, s := range [][3]int{{5, 7, 3}, {1, 1, 1}, {40, 9, 65}, {3, 0, 4}, {6, 200, 33}} {
		rows, t, d := s[0], s[1], s[2]
		name := fmt.Sprintf("%dx%d-%d", rows, d, t)
		l = append(l, Case{Op: kernels.Take, Name: name, Why: "a copy", Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(rows, d), g.ids(t, -1, rows+1)}, Out: tensors{g.raw(g.a, t, d)}}
		}},
			Case{Op: kernels.TakeBwd, Name: name, Tol: 1e-6,
				Why: "float32 sums of at most 200 rows in order", Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.act(t, d), g.ids(t, -1, rows+1)},
						Out: tensors{g.raw(g.a, rows, d)}}
				}})
	}
	return append(l, Case{Op: kernels.RopeAxes, Name: "three", Tol: 3e-7,
		Why: "cos and sin rounded once, times a factor", Types: onlyF32, Call: func(g *gen) *kernels.Call {
			axis := g.i32(0, 1, 2, 0, 1, 2, 0, 0)
			inv := g.positive(8)
			pos := g.ids(37*3, 0, 4000)
			pos.Shape = []int{37, 3}
			return &kernels.Call{In: tensors{pos, inv, axis}, Attr: kernels.Attr{F: [2]float64{1.25}},
				Out: tensors{g.raw(tensor.F32, 37, 8), g.raw(tensor.F32, 37, 8)}}
		}})
}

func turnCases() []Case {
	var l []Case
	for _, s := range [][3]int{{1, 1, 1}, {0, 2, 4}, {9, 3, 20}, {40, 2, 65}} {
		t, h, r := s[0], s[1], s[2]
		name := fmt.Sprintf("%dx%dx%d", t, h, 2*r)
		for _, way := range []int{1, -1} {
			l = append(l, Case{Op: kernels.Turn, Name: fmt.Sprintf("%s%+d", name, way), Tol: 4e-7,
				Why: "two products", Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.act(t, h, 2*r), g.act(r), g.ids(t, 0, 2)},
						Out: tensors{g.raw(g.a, t, h, 2*r)}, Attr: kernels.Attr{I: [4]int{way}}}
				}})
		}
		l = append(l, Case{Op: kernels.TurnDW, Name: name, Tol: 2e-6, Why: "float32 sums over 80 pairs",
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(t, h, 2*r), g.act(t, h, 2*r), g.ids(t, 0, 2)},
					Out: tensors{g.raw(tensor.F32, r)}}
			}}, Case{Op: kernels.TurnDW, Name: name + "acc", Tol: 2e-6, Why: "float32 sums over 80 pairs", Call: func(
			g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, h, 2*r), g.act(t, h, 2*r), g.ids(t, 0, 2)},
				Out: tensors{g.f32(r)}, Attr: accumulate(0)}
		}})
	}
	return l
}

var _ = add(turnCases()...)
var _ = add(visionRowCases()...)
var _ = add(actCases()...)
var _ = add(takeCases()...)
