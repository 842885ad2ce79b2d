package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// shard is the vocabulary shard of a loss case: rows, width, vocabulary, first id.
type shard struct{ t, d, v, first int }

var shards = []shard{{1, 3, 5, 0}, {0, 4, 8, 0}, {7, 16, 33, 20}, {300, 24, 70, 0}, {20, 40, 1000, 500},
	{270, 8, 17, 3}, {9, 5, 2051, 0}}

// ceOperands are x, w, target (some ignored, some outside the shard), lse over the shard, weight and seed.
func ceOperands(g *gen, s shard) tensors {
	x, w := g.act(s.t, s.d), g.scaled(s.v, s.d)
	target := g.ids(s.t, s.first-3, s.first+s.v+3)
	lse, hit := g.raw(tensor.F32, s.t, 1), g.raw(tensor.F32, s.t)
	do(kernels.LinearLSE, kernels.Attr{I: [4]int{s.first}, F: [2]float64{g.cap}}, tensors{x, w, target},
		tensors{lse, hit})
	return tensors{x, w, target, wrap(tensor.F32, lse.Bytes(), []int{s.t}), g.positive(s.t), g.normal(tensor.F32, 1, 1)}
}

// numerators are the outputs e and top of linear_lse.
func (g *gen) numerators(s shard) tensors {
	return tensors{g.raw(g.a, s.t, s.v), g.raw(tensor.F32, s.t, (s.v+kernels.LSEBlock-1)/kernels.LSEBlock)}
}

// keptOperands are ceOperands and the numerators that linear_lse keeps.
func keptOperands(g *gen, s shard) tensors {
	in, kept := ceOperands(g, s), g.numerators(s)
	do(kernels.LinearLSE, kernels.Attr{I: [4]int{s.first}, F: [2]float64{g.cap}}, in[:3],
		append(tensors{g.raw(tensor.F32, s.t, 1), g.raw(tensor.F32, s.t)}, kept...))
	return append(in, kept...)
}

func ceCases() []Case {
	var l []Case
	const why = "exponentials of float32 logits; dz rounded to the activation dtype"
	for _, s := range shards {
		name := fmt.Sprintf("%dx%dx%d+%d", s.t, s.d, s.v, s.first)
		attr := kernels.Attr{I: [4]int{s.first}}
		l = append(l, Case{Op: kernels.LinearLSE, Name: name, Tol: 2e-6,
			Why: "float32 logits and one sum of exponentials", Call: func(g *gen) *kernels.Call {
				in := ceOperands(g, s)
				return &kernels.Call{In: in[:3], Out: tensors{g.raw(tensor.F32, s.t, 1),
					g.raw(tensor.F32, s.t)}, Attr: attr}
			}},
			Case{Op: kernels.LinearLSE, Name: name + " kept", Tol: 2e-5, Half: 1,
				Why: "exponentials of float32 logits", Call: func(g *gen) *kernels.Call {
					in := ceOperands(g, s)
					return &kernels.Call{In: in[:3], Out: append(
						tensors{g.raw(tensor.F32, s.t, 1), g.raw(tensor.F32, s.t)}, g.numerators(s)...), Attr: attr}
				}},
			Case{Op: kernels.LinearCEBwd, Name: name + " kept", Tol: 1e-5, Half: 4, Terms: 0.1, Why: why,
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: keptOperands(g, s), Out: tensors{g.raw(g.a, s.t, s.d),
						g.raw(tensor.F32, s.v, s.d)}, Attr: attr}
				}}, Case{Op: kernels.LinearCEDX, Name: name, Tol: 1e-5, Half: 4, Terms: 0.1, Why: why, Call: func(
				g *gen) *kernels.Call {
				return &kernels.Call{In: ceOperands(g, s), Out: tensors{g.raw(g.a, s.t, s.d)}, Attr: attr}
			}}, Case{Op: kernels.LinearCEDW, Name: name, Tol: 1e-5, Half: 4, Terms: 0.1, Why: why, Call: func(
				g *gen) *kernels.Call {
				return &kernels.Call{In: ceOperands(g, s), Out: tensors{g.raw(tensor.F32, s.v, s.d)}, Attr: attr}
			}}, Case{Op: kernels.LinearCEBwd, Name: name, Tol: 1e-5, Half: 4, Terms: 0.1, Why: why, Call: func(
				g *gen) *kernels.Call {
				return &kernels.Call{In: ceOperands(g, s), Out: tensors{g.raw(g.a, s.t, s.d), g.f32(s.v, s.d)},
					Attr: kernels.Attr{I: [4]int{s.first, kernels.Accumulate}}}
			}})
	}
	for _, s := range []shard{{1, 3, 5, 0}, {0, 4, 8, 0}, {300, 24, 70, 0}, {9, 5, 2051, 0}, {2100, 8, 40, 0}} {
		l = append(l, Case{Op: kernels.LinearCE, Name: fmt.Sprintf("%dx%dx%d", s.t, s.d, s.v), Tol: 1e-5,
			Half: 4, Terms: 0.1, Work: 1, Why: why, Call: func(g *gen) *kernels.Call {
				in := ceOperands(g, s)
				blocks, rows, step := kernels.LossWork(g.a, s.t, s.v)
				out := tensors{g.raw(tensor.F32, 1), g.raw(g.a, blocks, rows, step), g.raw(g.a, s.t, s.d), g.f32(s.v, s.d)}
				if s.t != 9 { // with what rows have beside
					out = append(out, g.raw(tensor.F32, s.t), g.raw(tensor.F32, s.t))
				}
				return &kernels.Call{In: append(append(tensors(nil), in[:3]...), in[4:]...),
					Attr: kernels.Attr{I: [4]int{0, kernels.Accumulate}}, Out: out}
			}})
	}
	return l
}

var _ = add(ceCases()...)

var _ = add(
	Case{Op: kernels.LSEJoin, Name: "4", Tol: 2e-6, Why: "one float32 sum of exponentials", Types: onlyF32,
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(37, 4)}, Out: tensors{g.raw(tensor.F32, 37)}}
		}},
	Case{Op: kernels.LSEJoin, Name: "1", Tol: 2e-6, Why: "one float32 sum of exponentials", Types: onlyF32,
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(5, 1)}, Out: tensors{g.raw(tensor.F32, 5)}}
		}},
	Case{Op: kernels.NLL, Name: "ignored", Tol: 0, Why: "float64 sum in a fixed order", Types: onlyF32,
		Call: nllCall(50)},
	Case{Op: kernels.GroupNLL, Name: "of three", Why: "float64 sums in row order", Types: onlyF32,
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(50), g.f32(50), g.ids(50, -2, 9), g.ids(50, 0, 2)},
				Out: tensors{g.raw(tensor.F32, 7)}}
		}},
	Case{Op: kernels.NLL, Name: "empty", Tol: 0, Why: "no rows: 0", Types: onlyF32, Call: nllCall(0)},
	Case{Op: kernels.Embed, Name: "shard", Why: "a copy", Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.ids(40, 0, 60), g.act(30, 17)}, Out: tensors{g.raw(g.a, 40, 17)},
			Attr: kernels.Attr{I: [4]int{11}}}
	}},
	Case{Op: kernels.EmbedDW, Name: "set", Tol: 1e-6, Why: "float32 sums of a few rows",
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(90, 17), g.ids(90, 0, 60)},
				Out: tensors{g.raw(tensor.F32, 30, 17)}, Attr: kernels.Attr{I: [4]int{0, 11}}}
		}},
	Case{Op: kernels.EmbedDW, Name: "acc", Tol: 1e-6, Why: "float32 sums of a few rows",
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(90, 64), g.ids(90, 0, 7)}, Out: tensors{g.f32(9, 64)},
				Attr: kernels.Attr{I: [4]int{kernels.Accumulate}}}
		}},
)

func nllCall(n int) func(g *gen) *kernels.Call {
	return func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.f32(n), g.f32(n), g.ids(n, -3, 10), g.positive(n)},
			Out: tensors{g.raw(tensor.F32, 1)}}
	}
}
