package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// lengths are element counts: empty, one, odd, whole vectors, several blocks.
var lengths = []int{0, 1, 5, 64, 1031, 9000}

func elementwiseCases() []Case {
	var l []Case
	for _, n := range lengths {
		name := fmt.Sprint(n)
		l = append(l, Case{Op: kernels.SwiGLU, Name: name, Tol: 1e-6, Why: "one exponential and one quotient",
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.normal(g.a, 3, n), g.act(n)}, Out: tensors{g.raw(g.a, n)}}
			}}, Case{Op: kernels.SwiGLUBwd, Name: name, Tol: 1e-6, Why: "one exponential and one quotient", Call: func(
			g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(n), g.normal(g.a, 3, n), g.act(n)},
				Out: tensors{g.raw(g.a, n), g.raw(g.a, n)}}
		}}, Case{Op: kernels.Sum, Name: name + "x3", Why: "float32 in operand order", Call: func(
			g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(n), g.act(n), g.act(n)}, Out: tensors{g.raw(g.a, n)}}
		}}, Case{Op: kernels.Mul, Name: name, Why: "one product", Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(n), g.act(n)}, Out: tensors{g.raw(g.a, n)}}
		}}, Case{Op: kernels.Scale, Name: name, Why: "one product with a factor rounded to float32", Call: func(
			g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(n)}, Out: tensors{g.raw(g.a, n)},
				Attr: kernels.Attr{F: [2]float64{0.3}}}
		}}, Case{Op: kernels.AddTo, Name: name + "add", Why: "one sum", Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(n)}, Out: tensors{g.f32(n)}, Attr: accumulate(0)}
		}}, Case{Op: kernels.AddTo, Name: name + "set", Why: "a copy", Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(n)}, Out: tensors{g.raw(tensor.F32, n)}}
		}}, Case{Op: kernels.SumSquares, Name: name, Tol: 1e-12, Why: "float64 sums", Types: onlyF32, Call: func(
			g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(n)}, Out: tensors{g.raw(tensor.F64, 1)}}
		}}, optimCase(kernels.AdamW, n, 3), optimCase(kernels.SGD, n, 2), optimCase(kernels.Lion, n, 2))
	}
	return l
}

// optimCase updates n parameters; state is the number of float32 outputs.
func optimCase(op kernels.Op, n, state int) Case {
	return Case{Op: op, Name: fmt.Sprint(n), Tol: 5e-7,
		Why: "a few float32 operations on terms of like size", Call: func(g *gen) *kernels.Call {
			c := &kernels.Call{In: tensors{g.f32(n), g.f64(1e-2, 0.9, 0.95, 1e-8, 0.1, 0.271, 0.142625, 0.03, 0.7),
				g.f64(3, 0.5, 0)}, Out: tensors{g.f32(n), g.f32(n), g.positive(n)}[:state]}
			if g.a != tensor.F32 {
				c.Out = append(c.Out, g.raw(g.a, n))
			}
			return c
		}}
}

// narrowCase has moments in bf16, in which a difference in the last bit of a float32 may decide by chance
// for the other neighbour, 1/128 away.
func narrowCase(n int, overflow float64) Case {
	return Case{Op: kernels.AdamWNarrow, Name: fmt.Sprint(n, "-", overflow), Tol: 8e-3, Why: "a number of bf16",
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(n),
				g.f64(1e-2, 0.9, 0.95, 1e-8, 0.1, 0.271, 0.142625, 0.03, 0.7, 4e9, 77, float64(n%3*5), 31),
				g.f64(3, 0.5, overflow)},
				Out: tensors{g.f32(n), g.normal(tensor.BF16, 1, n), narrow(g.positive(n)), g.raw(g.a, n)}}
		}}
}

// narrow is a tensor in bf16.
func narrow(t *tensor.Tensor) *tensor.Tensor {
	out := tensor.Make(tensor.BF16, t.Shape...)
	tensor.Narrow(tensor.BF16, t.F32(), out.Bytes())
	return out
}

func optimVariant(op kernels.Op, name string, state int, overflow float64, noDecay int) Case {
	return Case{Op: op, Name: name, Tol: 5e-7, Why: "a few float32 operations on terms of like size",
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(100), g.f64(1e-2, 0.9, 0.95, 1e-8, 0.1, 0.271, 0.142625, 0.03, 0.7),
				g.f64(3, 0.5, overflow)}, Out: append(tensors{g.f32(100), g.f32(100), g.positive(100)}[:state],
				g.act(100)), Attr: kernels.Attr{I: [4]int{noDecay}}}
		}}
}

// muonCases are those of Muon's three operations.
func muonCases() []Case {
	const why = "a few float32 operations on terms of like size"
	var l []Case
	for _, v := range []struct {
		name     string
		n        int
		overflow float64
		flag     int
	}{{"none", 0, 0, 0}, {"1", 1, 0, 0}, {"4099", 4099, 0, 0}, {"flag", 100, 0, 1}, {"overflow", 100, 1, 0}} {
		hyper := func(g *gen) tensors {
			return tensors{g.f32(v.n), g.f64(1e-2, 0.9, 0.95, 1e-8, 0.1, 0.271, 0.142625, 0.03, 0.7),
				g.f64(3, 0.5, v.overflow)}
		}
		at := kernels.Attr{I: [4]int{v.flag}}
		l = append(l, Case{Op: kernels.MuonMomentum, Name: v.name, Tol: 5e-7, Why: why, Types: onlyF32,
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: hyper(g), Out: tensors{g.f32(v.n), g.f32(v.n)}, Attr: at}
			}}, Case{Op: kernels.MuonStep, Name: v.name, Tol: 5e-7, Why: why, Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: hyper(g), Out: tensors{g.f32(v.n), g.act(v.n)}, Attr: at}
		}})
	}
	for _, s := range [][]int{{1, 1}, {3, 3}, {5, 40}, {37, 6}, {2, 9, 17}, {3, 20, 4}, {0, 4}, {2, 0, 3}} {
		l = append(l, Case{Op: kernels.Orthogonalize, Name: fmt.Sprint(s), Tol: 2e-5, Types: onlyF32,
			Why: "five steps, each of which makes errors of the one before up to 3.4 times as large",
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.f32(s...)}, Out: tensors{g.raw(tensor.F32, s...)},
					Attr: kernels.Attr{I: [4]int{5}}}
			}})
	}
	return append(l, Case{Op: kernels.Orthogonalize, Name: "zero", Why: "nothing is added", Types: onlyF32,
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{tensor.Make(tensor.F32, 4, 3)}, Out: tensors{g.raw(tensor.F32, 4, 3)},
				Attr: kernels.Attr{I: [4]int{5}}}
		}})
}

func averageCase(name string, n int, overflow float64) Case {
	return Case{Op: kernels.Average, Name: name, Tol: 5e-7, Types: onlyF32,
		Why: "a few float32 operations on terms of like size", Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(n), g.f64(1e-2, 0.9, 0.95, 1e-8, 0.1, 0.271, 0.142625, 0.03, 0.7),
				g.f64(3, 0.5, overflow)}, Out: tensors{g.f32(n)}}
		}}
}

func castCases() []Case {
	var l []Case
	types := []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.F64}
	for _, from := range types {
		for _, to := range types {
			for _, n := range []int{0, 3, 777} {
				l = append(l, Case{Op: kernels.Cast, Name: fmt.Sprintf("%v-%v-%d", from, to, n), Why: "rounded once",
					Types: onlyF32, Call: func(g *gen) *kernels.Call {
						return &kernels.Call{In: tensors{g.normal(from, 100, n)}, Out: tensors{g.raw(to, n)}}
					}})
			}
		}
	}
	return append(l, Case{Op: kernels.Cast, Name: "i64-i64", Why: "a copy", Types: onlyF32,
		Call: func(g *gen) *kernels.Call {
			x := g.raw(tensor.I64, 3)
			for i := range x.I64() {
				x.I64()[i] = int64(g.Uint64())
			}
			return &kernels.Call{In: tensors{x}, Out: tensors{g.raw(tensor.I64, 3)}}
		}})
}

func axisCases() []Case {
	var l []Case
	for axis, cut := range [][2]int{{1, 2}, {2, 3}, {0, 5}} {
		l = append(l, Case{Op: kernels.Slice, Name: fmt.Sprint(axis), Why: "a copy", Call: func(g *gen) *kernels.Call {
			shape := []int{3, 5, 7}
			shape[axis] = cut[1]
			return &kernels.Call{In: tensors{g.act(3, 5, 7)}, Out: tensors{g.raw(g.a, shape...)},
				Attr: kernels.Attr{I: [4]int{axis, cut[0]}}}
		}}, Case{Op: kernels.Concat, Name: fmt.Sprint(axis), Why: "a copy", Call: func(g *gen) *kernels.Call {
			a, b, y := []int{3, 5, 7}, []int{3, 5, 7}, []int{3, 5, 7}
			b[axis] = cut[1]
			y[axis] += cut[1]
			return &kernels.Call{In: tensors{g.act(a...), g.act(b...)}, Out: tensors{g.raw(g.a, y...)},
				Attr: kernels.Attr{I: [4]int{axis}}}
		}})
	}
	return append(l, Case{Op: kernels.Slice, Name: "eights", Why: "a copy", Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.act(3, 24)}, Out: tensors{g.raw(g.a, 3, 8)}, Attr: kernels.Attr{I: [4]int{1, 8}}}
	}}, Case{Op: kernels.Slice, Name: "bytes", Why: "a copy", Types: onlyF32, Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.raw(tensor.U8, 3, 5)}, Out: tensors{g.raw(tensor.U8, 3, 3)},
			Attr: kernels.Attr{I: [4]int{1, 1}}}
	}}, Case{Op: kernels.Concat, Name: "integers", Why: "a copy", Types: onlyF32,
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.ids(3, 0, 9), g.ids(0, 0, 9), g.ids(4, 0, 9)},
				Out: tensors{g.raw(tensor.I32, 7)}}
		}})
}

func dropoutCase(p float64, draw int, shape ...int) Case {
	return Case{Op: kernels.Dropout, Name: fmt.Sprintf("%v_%v", shape, p), Tol: 1e-7,
		Why: "the same elements kept; one product", Call: func(g *gen) *kernels.Call {
			key := g.raw(tensor.I64, shape[0])
			for i := range key.I64() {
				key.I64()[i] = int64(g.Uint64())
			}
			return &kernels.Call{In: tensors{g.act(shape...), key}, Out: tensors{g.raw(g.a, shape...)},
				Attr: kernels.Attr{F: [2]float64{p}, I: [4]int{draw}}}
		}}
}

var _ = add(elementwiseCases()...)
var _ = add(castCases()...)
var _ = add(muonCases()...)
var _ = add(axisCases()...)
var _ = add(
	dropoutCase(0.3, 0, 5, 33), dropoutCase(0.5, 7, 3, 4, 16), dropoutCase(0, 1, 2, 9),
	dropoutCase(0.1, 0, 0, 9),
	narrowCase(1, 0), narrowCase(4099, 0), narrowCase(100, 1), optimVariant(kernels.AdamW, "nodecay", 3, 0,
		1), optimVariant(kernels.AdamW, "overflow", 3, 1, 0),
	optimVariant(kernels.Lion, "nodecay", 2, 0, 1), optimVariant(kernels.Lion, "overflow", 2, 1, 0),
	averageCase("1", 1, 0), averageCase("4099", 4099, 0), averageCase("none", 0, 0), averageCase("overflow", 100, 1),
	optimVariant(kernels.SGD, "nodecay", 2, 0, 1), optimVariant(kernels.SGD, "overflow", 2, 1, 0),
	Case{Op: kernels.Sum, Name: "one", Why: "a copy", Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.act(3, 5)}, Out: tensors{g.raw(g.a, 15)}}
	}},
	Case{Op: kernels.Sum, Name: "f64", Why: "float64", Types: onlyF32, Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.normal(tensor.F64, 1, 70), g.normal(tensor.F64, 1, 70)},
			Out: tensors{g.raw(tensor.F64, 70)}}
	}},
	Case{Op: kernels.AddTo, Name: "f64", Why: "float64", Types: onlyF32, Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.normal(tensor.F64, 1, 3)},
			Out: tensors{g.normal(tensor.F64, 1, 3)}, Attr: accumulate(0)}
	}},
	Case{Op: kernels.SumSquares, Name: "acc", Tol: 1e-12, Why: "float64 sums", Types: onlyF32,
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(3, 700)}, Out: tensors{g.f64(11)}, Attr: accumulate(0)}
		}},
	Case{Op: kernels.Fill, Name: "half", Why: "one rounding", Call: func(g *gen) *kernels.Call {
		return &kernels.Call{Out: tensors{g.raw(g.a, 3, 43)}, Attr: kernels.Attr{F: [2]float64{0.3}}}
	}},
	Case{Op: kernels.Fill, Name: "f64", Why: "exact", Types: onlyF32, Call: func(g *gen) *kernels.Call {
		return &kernels.Call{Out: tensors{g.raw(tensor.F64, 3)}, Attr: kernels.Attr{F: [2]float64{0.1}}}
	}},
)
