package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// deltaShape is packed sequences for the delta rule: lengths, key heads, value heads, widths, and how
// fast states decay.
type deltaShape struct {
	lens       []int
	h, n, d, e int
	extra      int // rows beyond the last sequence
	fast       float64
}

// deltaShapes: single tokens, no sequence at all, empty ones, ends within, at and behind chunks of any
// length up to 128, widths that are no multiple of a vector, decays from nearly none to e^-8 a token.
var deltaShapes = []deltaShape{
	{lens: []int{1}, h: 1, n: 1, d: 4, e: 4, fast: 0.1},
	{lens: []int{}, h: 1, n: 2, d: 4, e: 8, extra: 3, fast: 0.1},
	{lens: []int{5, 0, 9}, h: 2, n: 4, d: 8, e: 12, extra: 2, fast: 0.5},
	{lens: []int{64, 65}, h: 1, n: 1, d: 16, e: 16, fast: 0.02},
	{lens: []int{150, 33}, h: 2, n: 2, d: 17, e: 5, fast: 2},
	{lens: []int{200}, h: 1, n: 3, d: 24, e: 40, fast: 0.01},
	{lens: []int{77}, h: 1, n: 2, d: 128, e: 96, fast: 0.05},
}

// operands makes random operands of the delta rule; fast scales the gates, which decide how soon a state fades.
func (s deltaShape) operands(g *gen) (l tensors, a kernels.Attr) {
	cu := cumulative(s.lens)
	t := int(cu[len(cu)-1]) + s.extra
	gate, beta := g.f32(t, s.n), g.f32(t, s.n)
	for i := range gate.F32() {
		gate.F32()[i], beta.F32()[i] = -float32(s.fast*4*g.Float64()), float32(g.Float64())
	}
	a.F[0] = 1e-6
	return tensors{g.act(t, s.h, s.d), g.act(t, s.h, s.d), g.act(t, s.n, s.e), gate, beta, g.i32(cu...)}, a
}

const deltaWhy = "sums of some hundred products of unit rows with states, in another order"

// deltaCases are the delta rule and its gradient over all shapes, with the gates and the convolution before it.
func deltaCases() []Case {
	var l []Case
	for i, s := range deltaShapes {
		name := fmt.Sprintf("%d_%vh%dn%dd%de%d", i, s.lens, s.h, s.n, s.d, s.e)
		l = append(
			l,
			Case{Op: kernels.DeltaRule, Name: name, Tol: 2e-5, Half: 1, Terms: 1, Why: deltaWhy, Leaky: true,
				Call: func(g *gen) *kernels.Call {
					in, a := s.operands(g)
					return &kernels.Call{In: in, Attr: a, Out: tensors{g.raw(g.a, in[2].Shape...)}}
				}},
			Case{
				Op:    kernels.DeltaRuleBwd,
				Name:  name,
				Tol:   1e-4,
				Half:  1,
				Terms: 1,
				Why:   deltaWhy,
				Leaky: true,
				Call: func(g *gen) *kernels.Call {
					in, a := s.operands(g)
					var out tensors
					for i, x := range in[:5] {
						d := g.a
						if i > 2 {
							d = tensor.F32
						}
						out = append(out, g.raw(d, x.Shape...))
					}
					return &kernels.Call{
						In:   append(tensors{g.act(in[2].Shape...)}, in...),
						Attr: a,
						Out:  out,
					}
				},
			},
		)
	}
	return append(append(l, gateCases()...), convCases()...)
}

// gateCases are the gates of the delta rule and their gradient, down to no rows at all.
func gateCases() []Case {
	var l []Case
	for _, s := range [][2]int{{0, 3}, {1, 1}, {7, 17}, {40, 64}} {
		t, n := s[0], s[1]
		name := fmt.Sprintf("%dx%d", t, n)
		l = append(
			l,
			Case{
				Op:    kernels.DeltaGates,
				Name:  name,
				Tol:   1e-5,
				Terms: 1,
				Why:   "two exponentials and a logarithm",
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.act(t, n), g.act(t, n), g.act(n), g.act(n)},
						Out: tensors{g.raw(tensor.F32, t, n), g.raw(tensor.F32, t, n)}}
				},
			},
			Case{
				Op:    kernels.DeltaGatesBwd,
				Name:  name,
				Tol:   1e-5,
				Half:  1,
				Terms: 1,
				Why:   "three exponentials",
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{
						In:  tensors{g.f32(t, n), g.f32(t, n), g.act(t, n), g.act(t, n), g.act(n), g.act(n)},
						Out: tensors{g.raw(g.a, t, n), g.raw(g.a, t, n)},
					}
				},
			},
		)
	}
	return l
}

// convCases are the causal convolution and its gradients, with empty sequences and rows beyond the last one.
func convCases() []Case {
	var l []Case
	for _, s := range []deltaShape{
		{lens: []int{1}, d: 3, e: 4}, {lens: []int{}, d: 5, e: 4, extra: 2}, {lens: []int{2, 0, 9}, d: 33,
			e: 4, extra: 1},
		{lens: []int{70, 3}, d: 300, e: 4}, {lens: []int{20}, d: 16, e: 1},
	} {
		cu := cumulative(s.lens)
		t := int(cu[len(cu)-1]) + s.extra
		name := fmt.Sprintf("%v_%dx%d", s.lens, s.d, s.e)
		for _, op := range []kernels.Op{kernels.CausalConv, kernels.CausalConvDX} {
			l = append(l, Case{Op: op, Name: name, Tol: 2e-6, Half: 1, Why: "a sum of four products",
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{
						In:  tensors{g.act(t, s.d), g.act(s.d, s.e), g.i32(cu...)},
						Out: tensors{g.raw(g.a, t, s.d)},
					}
				}})
		}
		for _, add := range []int{0, kernels.Accumulate} {
			l = append(
				l,
				Case{
					Op:    kernels.CausalConvDW,
					Name:  fmt.Sprintf("%s+%d", name, add),
					Tol:   1e-5,
					Terms: float64(max(1, t)),
					Why:   "sums of products over tokens",
					Call: func(g *gen) *kernels.Call {
						return &kernels.Call{
							In:   tensors{g.act(t, s.d), g.act(t, s.d), g.i32(cu...)},
							Attr: kernels.Attr{I: [4]int{add}},
							Out:  tensors{g.f32(s.d, s.e)},
						}
					},
				},
			)
		}
	}
	return l
}

var _ = add(deltaCases()...)
