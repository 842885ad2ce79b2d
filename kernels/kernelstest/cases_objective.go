package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// objectiveCases are all losses over answers, on rows of two pairs with prompts and padding.
func objectiveCases() []Case {
	var l []Case
	p := objective.Params{Beta: 0.1, Gamma: 0.5, Smoothing: 0.1, Text: 0.3, Center: 0.01, Desirable: 1,
		Undesirable: 0.7, Value: 0.1, ClipValue: 0.2}
	for _, name := range objective.Known() {
		if objective.Lookup(name).Of == nil {
			continue
		}
		attr := kernels.Attr{I: [4]int{objective.Lookup(name).Number()}, F: [2]float64{-1}}
		in := func(g *gen) tensors {
			n := 41
			x, seq, weight := g.positive(n), tensor.Make(tensor.I32, n), tensor.Make(tensor.F32, n)
			for i := range n {
				if seq.I32()[i] = int32(i / 10); i%10 > 3 {
					weight.F32()[i] = 0.5
				}
				if i == 40 { // padding
					seq.I32()[i], weight.F32()[i] = -1, 0
				}
			}
			return tensors{x, seq, weight, g.positive(n, objective.Columns),
				tensor.Of(tensor.F32, p.Vector(), len(p.Vector()))}
		}
		l = append(l, Case{Op: kernels.Objective, Name: name, Why: "float64 in row order", Types: onlyF32,
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: in(g), Out: tensors{g.raw(tensor.F32, 1)}, Attr: attr}
			}}, Case{Op: kernels.ObjectiveBwd, Name: name, Why: "float64 in row order", Types: onlyF32,
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: append(in(g), g.normal(tensor.F32, 1, 1)),
					Out: tensors{g.raw(tensor.F32, 41)}, Attr: attr}
			}})
	}
	return l
}

var _ = add(objectiveCases()...)

// divergenceCases are rows with weights and without, at both ends of the mixture and between.
func divergenceCases() []Case {
	var l []Case
	for _, mix := range []float64{0, 0.3, 1} {
		attr := kernels.Attr{I: [4]int{objective.Lookup("gkd").Number()}}
		p := objective.Params{Mix: mix}.Vector()
		in := func(g *gen) tensors {
			w := g.positive(9)
			w.F32()[4] = 0
			return tensors{g.f32(9, 23), g.f32(9, 23), w, tensor.Of(tensor.F32, p, len(p))}
		}
		l = append(l, Case{Op: kernels.Divergence, Name: fmt.Sprint(mix), Why: "float64 in row order", Types: onlyF32,
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: in(g), Out: tensors{g.raw(tensor.F32, 1)}, Attr: attr}
			}}, Case{Op: kernels.DivergenceBwd, Name: fmt.Sprint(
			mix), Why: "float64 in row order", Types: onlyF32, Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: append(in(g), g.normal(tensor.F32, 1, 1)),
				Out: tensors{g.raw(tensor.F32, 9, 23)}, Attr: attr}
		}})
	}
	return l
}

var _ = add(divergenceCases()...)

// contrastCases are three queries with texts of several rows and padding, with either pooling.
func contrastCases() []Case {
	var l []Case
	for pooling, name := range objective.Poolings {
		attr := kernels.Attr{I: [4]int{objective.Lookup("infonce").Number()}}
		p := objective.Params{Temperature: 0.2, Pooling: float64(pooling)}.Vector()
		in := func(g *gen) tensors {
			const n = 25
			seq, more := tensor.Make(tensor.I32, n), tensor.Make(tensor.F32, n, objective.Columns)
			for i := range n {
				seq.I32()[i] = int32(i / 3)
				role := []float32{objective.Query, objective.Positive, objective.Negative}[i/3%3]
				more.F32()[i*objective.Columns+objective.Margin] = role
			}
			seq.I32()[n-1] = -1
			return tensors{g.f32(n, 7), seq, g.positive(n), more, tensor.Of(tensor.F32, p, len(p))}
		}
		l = append(l, Case{Op: kernels.Contrast, Name: name, Why: "float64 in row order", Types: onlyF32,
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: in(g), Out: tensors{g.raw(tensor.F32, 1)}, Attr: attr}
			}}, Case{Op: kernels.ContrastBwd, Name: name, Why: "float64 in row order", Types: onlyF32,
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: append(in(g), g.normal(tensor.F32, 1, 1)),
					Out: tensors{g.raw(tensor.F32, 25, 7)}, Attr: attr}
			}})
	}
	return l
}

var _ = add(contrastCases()...)

var _ = add(
	Case{Op: kernels.TokenNLL, Name: "ignored", Why: "one float32 difference", Types: onlyF32,
		Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(50), g.f32(50), g.ids(50, -3, 10)},
				Out: tensors{g.raw(tensor.F32, 50)}}
		}},
)

// logitsCases cover vocabularies of less than one block and of more, with and without a cap.
func logitsCases() []Case {
	var l []Case
	for i, s := range [][2]int{{0, 7}, {3, 5}, {20, 2051}, {2, 5000}} {
		for number := range 3 {
			l = append(l, Case{Op: kernels.LogitsNLL,
				Name: fmt.Sprintf("%dx%d of %v", s[0], s[1], kernels.NumberedActivation(number)), Tol: 4e-6, Terms: 10,
				Why: "one float32 sum of exponentials", Types: onlyF32, Call: func(g *gen) *kernels.Call {
					a := kernels.Attr{I: [4]int{number, []int{0, 2, 3, 1}[i]}}
					if i%2 == 1 {
						a.F[0] = 3
					}
					return &kernels.Call{In: tensors{g.f32(s[0], s[1]), g.ids(s[0], -2, s[1])},
						Out: tensors{g.raw(tensor.F32, s[0])}, Attr: a}
				}})
		}
	}
	return l
}

var _ = add(logitsCases()...)

// pagedAt has rows of a pool of 40 and of 7 new ones, and some of neither.
func pagedAt(g *gen, n int) *tensor.Tensor { return g.ids(n, -9, 40) }

var _ = add(
	Case{Op: kernels.PagedRows, Name: "heads", Why: "a copy", Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.act(40, 3, 5), g.act(7, 3, 5), pagedAt(g, 61)},
			Out: tensors{g.raw(g.a, 61, 3, 5)}}
	}},
	Case{Op: kernels.PagedRows, Name: "eights", Why: "a copy", Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.act(40, 8), g.act(7, 8), pagedAt(g, 61)}, Out: tensors{g.raw(g.a, 61, 8)}}
	}},
	Case{Op: kernels.PagedRows, Name: "none", Why: "a copy", Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.act(40, 8), g.act(7, 8), pagedAt(g, 0)}, Out: tensors{g.raw(g.a, 0, 8)}}
	}},
)
