package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

const (
	modulateWhy = "two float32 sums over 512 and one root"
	modulations = 3 // of rows that name some beside them too
)

// stats is a statistic that a norm has, nil where it has none.
func (g *gen) stats(have bool, make func(shape ...int) *tensor.Tensor, t int) *tensor.Tensor {
	if have {
		return make(t)
	}
	return nil
}

// modulateCases are scaling and shifting of rows by a table, for each kind of norm, with tables in both types.
func modulateCases() []Case {
	var l []Case
	for _, s := range rowSizes {
		for kind := kernels.PlainRows; kind <= kernels.RMSRows; kind++ {
			for _, wide := range []bool{false, true} { // modulations in float32, whatever the rows are
				l = append(l, modulateCase(s[0], s[1], kind, wide)...)
			}
		}
	}
	return l
}

func modulateCase(t, d, kind int, wide bool) []Case {
	name := fmt.Sprintf("%dx%d-%d-%v", t, d, kind, wide)
	a := kernels.Attr{I: [4]int{kind}, F: [2]float64{1e-5, 1}}
	if d == 1 {
		a.F[0] = 0.5 // a row of one has no spread: rounding would be all there is
	}
	centred, normed := kind == kernels.LayerRows, kind != kernels.PlainRows
	table := func(g *gen) *tensor.Tensor {
		if wide {
			return g.f32(modulations, d)
		}
		return g.act(modulations, d)
	}
	empty := func(g *gen, shape ...int) *tensor.Tensor {
		if wide {
			return g.raw(tensor.F32, shape...)
		}
		return g.raw(g.a, shape...)
	}
	one := func(op kernels.Op, more string, tol, terms float64, call func(g *gen) *kernels.Call) Case {
		return Case{Op: op, Name: name + more, Tol: tol, Why: modulateWhy, Terms: terms,
			Call: func(g *gen) *kernels.Call {
				c := call(g)
				c.Attr = a
				return c
			}}
	}
	at := func(g *gen) *tensor.Tensor { return g.ids(t, -1, modulations+1) }
	out := func(g *gen) func(...int) *tensor.Tensor {
		return func(shape ...int) *tensor.Tensor { return g.raw(tensor.F32, shape...) }
	}
	forward := func(g *gen, b *tensor.Tensor) *kernels.Call {
		return &kernels.Call{In: tensors{g.act(t, d), table(g), b, at(g)}, Out: tensors{g.raw(g.a, t, d),
			g.stats(normed, out(g), t), g.stats(centred, out(g), t)}}
	}
	return []Case{
		one(kernels.Modulate, "", 4e-6, 3, func(g *gen) *kernels.Call { return forward(g, table(g)) }),
		one(kernels.Modulate, "unshifted", 4e-6, 3, func(g *gen) *kernels.Call { return forward(g, nil) }),
		one(kernels.ModulateDX, "", 4e-6, 3, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.act(t, d), table(g), at(g), g.stats(normed, g.positive, t),
				g.stats(centred, g.f32, t)}, Out: tensors{g.raw(g.a, t, d)}}
		}),
		one(kernels.ModulateDW, "", 2e-6, 3, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.act(t, d), at(g), g.stats(normed, g.positive, t),
				g.stats(centred, g.f32, t)}, Out: tensors{empty(g, modulations, d), empty(g, modulations, d)}}
		}),
		one(kernels.ModulateDW, "unshifted", 2e-6, 3, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, d), g.act(t, d), at(g), g.stats(normed, g.positive, t),
				g.stats(centred, g.f32, t)}, Out: tensors{empty(g, modulations, d), nil}}
		}),
	}
}

func gateCasesBy() []Case {
	var l []Case
	for _, s := range rowSizes {
		t, d := s[0], s[1]
		for _, add := range []bool{false, true} {
			l = append(l, Case{Op: kernels.Gate, Name: fmt.Sprintf("%dx%d-%v", t, d, add), Tol: 4e-7, Terms: 1,
				Why: "a product and a sum", Call: func(g *gen) *kernels.Call {
					c := &kernels.Call{In: tensors{g.act(t, d), g.act(modulations, d), g.ids(t, -1, modulations+1),
						nil}, Out: tensors{g.raw(g.a, t, d)}}
					if add {
						c.In[3] = g.act(t, d)
					}
					return c
				}})
		}
	}
	return append(l, Case{Op: kernels.Gate, Name: "wide", Tol: 4e-7, Terms: 1, Why: "a product and a sum",
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(7, 33), g.f32(2, 33), g.ids(7, 0, 2), g.act(7, 33)},
				Out: tensors{g.raw(g.a, 7, 33)}}
		}})
}

// runCases are modulations and losses of samples, of three rows each.
func runCases() []Case {
	at := kernels.Attr{I: [4]int{kernels.LayerRows}, F: [2]float64{1e-5, 1}}
	return []Case{
		{Op: kernels.Modulate, Name: "runs", Tol: 4e-6, Terms: 3, Why: modulateWhy, Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(4, 3, 33), g.act(2, 33), g.act(2, 33), g.i32(1, 0, -1, 1)},
				Out: tensors{g.raw(g.a, 4, 3, 33), g.raw(tensor.F32, 12), g.raw(tensor.F32, 12)}, Attr: at}
		}},
		{Op: kernels.ModulateDX, Name: "runs", Tol: 4e-6, Terms: 3, Why: modulateWhy, Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(12, 33), g.act(12, 33), g.act(2, 33), g.i32(1, 0, -1, 1),
				g.positive(12), g.f32(12)}, Out: tensors{g.raw(g.a, 12, 33)}, Attr: at}
		}},
		{Op: kernels.ModulateDW, Name: "runs", Tol: 2e-6, Terms: 3, Why: modulateWhy, Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(12, 333), g.act(12, 333), g.i32(1, 0, -1, 1), g.positive(12),
				g.f32(12)}, Out: tensors{g.raw(g.a, 2, 333), g.raw(g.a, 2, 333)}, Attr: at}
		}},
		{Op: kernels.Gate, Name: "runs", Tol: 4e-7, Terms: 1, Why: "a product and a sum",
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(12, 33), g.act(2, 33), g.i32(1, 0, -1, 1), g.act(12, 33)},
					Out: tensors{g.raw(g.a, 12, 33)}}
			}},
		{Op: kernels.PointLoss, Name: "runs", Tol: 2e-6, Terms: 3, Why: "float32 terms of either sign",
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(12, 33), g.act(12, 33), g.f32(4)},
					Out: tensors{g.raw(tensor.F32, 1)}}
			}},
		{Op: kernels.PointLossDX, Name: "runs", Tol: 4e-7, Terms: 1, Why: "a difference and three products",
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(12, 33), g.act(12, 33), g.f32(4), nil, g.f32(1)},
					Out: tensors{g.raw(g.a, 12, 33)}}
			}},
	}
}

func sinusoidCases() []Case {
	var l []Case
	for _, first := range []int{0, 1} {
		for _, s := range [][2]int{{1, 1}, {0, 4}, {5, 33}, {9, 128}} {
			l = append(l, Case{Op: kernels.Sinusoids, Name: fmt.Sprintf("%dx%d-%d", s[0], s[1], first), Tol: 3e-7,
				Terms: 1, Why: "a sine rounded once", Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.positive(s[0]), g.positive(s[1])},
						Attr: kernels.Attr{I: [4]int{first}, F: [2]float64{1000}},
						Out:  tensors{g.raw(g.a, s[0], 2*s[1])}}
				}})
		}
	}
	return l
}

// pointOperands are numbers, what they are compared with, weights of rows of which some are 0, and a mask.
func pointOperands(g *gen, t, d int, wide, masked bool) tensors {
	in := tensors{g.act(t, d), g.act(t, d), g.f32(t), nil}
	if wide {
		in[1] = g.f32(t, d)
	}
	for i, w := range in[2].F32() {
		if w < -1 {
			in[2].F32()[i] = 0
		}
	}
	if masked {
		in[3] = g.normal(tensor.F32, 1, t, d)
		for i, v := range in[3].F32() {
			in[3].F32()[i] = max(0, v)
		}
	}
	return in
}

func pointCases() []Case {
	var l []Case
	for kind := kernels.SquaredLoss; kind <= kernels.VarianceLoss; kind++ {
		for i, s := range rowSizes {
			t, d, wide, masked := s[0], s[1], i%2 == 0, i%4 > 1
			name := fmt.Sprintf("%d-%dx%d-%v-%v", kind, t, d, wide, masked)
			a := kernels.Attr{I: [4]int{kind}, F: [2]float64{0.8}}
			l = append(l, Case{Op: kernels.PointLoss, Name: name, Tol: 2e-6, Terms: float64(t*d) / 16,
				Why: "float32 terms of either sign", Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: pointOperands(g, t, d, wide, masked), Attr: a,
						Out: tensors{g.raw(tensor.F32, 1)}}
				}},
				Case{Op: kernels.PointLossDX, Name: name, Tol: 4e-7, Terms: 1,
					Why: "a difference and three products",
					Call: func(g *gen) *kernels.Call {
						return &kernels.Call{In: append(pointOperands(g, t, d, wide, masked), g.f32(1)), Attr: a,
							Out: tensors{g.raw(g.a, t, d)}}
					}})
		}
	}
	return l
}

var _ = add(modulateCases()...)
var _ = add(gateCasesBy()...)
var _ = add(sinusoidCases()...)
var _ = add(pointCases()...)
var _ = add(runCases()...)
