package ref_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

type tensors = []*tensor.Tensor

// gradCase is a differentiable operation: forward maps the varied inputs to one scalar, gradient gives the
// derivative by each of them as the operations compute it.
type gradCase struct {
	name     string
	vary     tensors
	forward  func() float64
	gradient func() tensors
}

type maker struct{ *rand.Rand }

func (m maker) normal(shape ...int) *tensor.Tensor {
	t := tensor.Make(tensor.F32, shape...)
	for i := range t.F32() {
		t.F32()[i] = float32(m.NormFloat64())
	}
	return t
}

func run(op kernels.Op, a kernels.Attr, in tensors, shapes ...[]int) tensors {
	var out tensors
	for _, s := range shapes {
		out = append(out, tensor.Make(tensor.F32, s...))
	}
	ref.New().Run(&kernels.Call{Op: op, Attr: a, In: in, Out: out})
	return out
}

func inner(a, b *tensor.Tensor) float64 {
	s := 0.0
	for i, x := range a.F32() {
		s += float64(x) * float64(b.F32()[i])
	}
	return s
}

// of builds a case whose forward is ⟨dy, op(in)⟩ for a random dy.
func (m maker) of(name string, op kernels.Op, a kernels.Attr, in, vary tensors,
	gradient func(dy *tensor.Tensor) tensors, shapes ...[]int) gradCase {
	dy := m.normal(shapes[0]...)
	return gradCase{name, vary, func() float64 { return inner(dy, run(op, a, in, shapes...)[0]) },
		func() tensors { return gradient(dy) }}
}

func (m maker) matrices() gradCase {
	x, w, b := m.normal(3, 5), m.normal(4, 5), m.normal(4)
	return m.of("linear", kernels.Linear, kernels.Attr{}, tensors{x, w, b}, tensors{x, w, b},
		func(dy *tensor.Tensor) tensors {
			return tensors{run(kernels.LinearDX, kernels.Attr{}, tensors{dy, w}, x.Shape)[0],
				run(kernels.LinearDW, kernels.Attr{}, tensors{dy, x}, w.Shape)[0],
				run(kernels.ColSum, kernels.Attr{}, tensors{dy}, b.Shape)[0]}
		}, []int{3, 4})
}

func (m maker) grouped() gradCase {
	x, w, off := m.normal(7, 5), m.normal(3, 4, 5), tensor.Of(tensor.I32, []int32{1, 4, 4, 6}, 4)
	return m.of("grouped_linear", kernels.GroupedLinear, kernels.Attr{}, tensors{x, w, off}, tensors{x, w},
		func(dy *tensor.Tensor) tensors {
			return tensors{run(kernels.GroupedLinearDX, kernels.Attr{}, tensors{dy, w, off}, x.Shape)[0],
				run(kernels.GroupedLinearDW, kernels.Attr{}, tensors{dy, x, off}, w.Shape)[0]}
		}, []int{7, 4})
}

func (m maker) norm(plus float64) gradCase {
	x, w := m.normal(3, 6), m.normal(6)
	a := kernels.Attr{F: [2]float64{0.01, plus}}
	return m.of("rmsnorm", kernels.RMSNorm, a, tensors{x, w}, tensors{x, w}, func(dy *tensor.Tensor) tensors {
		rstd := run(kernels.RMSNorm, a, tensors{x, w}, x.Shape, []int{3})[1]
		return tensors{run(kernels.RMSNormDX, a, tensors{dy, x, w, rstd}, x.Shape)[0],
			run(kernels.RMSNormDW, a, tensors{dy, x, rstd}, w.Shape)[0]}
	}, x.Shape, []int{3})
}

func (m maker) rope(pairs int) gradCase {
	x, cos, sin := m.normal(3, 2, 7), m.normal(3, 3), m.normal(3, 3)
	return m.of("rope", kernels.Rope, kernels.Attr{I: [4]int{1, pairs}}, tensors{x, cos, sin}, tensors{x},
		func(dy *tensor.Tensor) tensors {
			return run(kernels.Rope, kernels.Attr{I: [4]int{-1, pairs}}, tensors{dy, cos, sin}, x.Shape)
		}, x.Shape)
}

func (m maker) swiglu() gradCase {
	g, u := m.normal(3, 6), m.normal(3, 6)
	return m.of("swiglu", kernels.SwiGLU, kernels.Attr{}, tensors{g, u}, tensors{g, u},
		func(dy *tensor.Tensor) tensors {
			return run(kernels.SwiGLUBwd, kernels.Attr{}, tensors{dy, g, u}, g.Shape, u.Shape)
		}, g.Shape)
}

func (m maker) embed() gradCase {
	w, ids := m.normal(6, 3), tensor.Of(tensor.I32, []int32{4, 9, 2, 4, 0}, 5)
	return m.of("embed", kernels.Embed, kernels.Attr{I: [4]int{2}}, tensors{ids, w}, tensors{w},
		func(dy *tensor.Tensor) tensors {
			return run(kernels.EmbedDW, kernels.Attr{I: [4]int{0, 2}}, tensors{dy, ids}, w.Shape)
		}, []int{5, 3})
}

func (m maker) dropout() gradCase {
	x, key := m.normal(4, 9), tensor.Of(tensor.I64, []int64{1, -5, 99, 0}, 4)
	a := kernels.Attr{F: [2]float64{0.4}, I: [4]int{3}}
	return m.of("dropout", kernels.Dropout, a, tensors{x, key}, tensors{x}, func(dy *tensor.Tensor) tensors {
		return run(kernels.Dropout, a, tensors{dy, key}, x.Shape)
	}, x.Shape)
}

func (m maker) attention(name string, causal, window, h, g int, most float64, cuQ, cuK []int32,
	mask ...*tensor.Tensor) gradCase {
	t, s := int(cuQ[len(cuQ)-1]), int(cuK[len(cuK)-1])
	q, k, v := m.normal(t, h, 5), m.normal(s, g, 5), m.normal(s, g, 4)
	a := kernels.Attr{I: [4]int{causal, window}, F: [2]float64{0.6, most}}
	cu := append(tensors{tensor.Of(tensor.I32, cuQ, len(cuQ)), tensor.Of(tensor.I32, cuK, len(cuK))}, mask...)
	if len(mask) > 0 {
		a.I[2] = 2
	}
	in, shapes := append(tensors{q, k, v}, cu...), [][]int{{t, h, 4}, {t, h}}
	return m.of("attention "+name, kernels.Attention, a, in, tensors{q, k, v},
		func(dy *tensor.Tensor) tensors {
			o := run(kernels.Attention, a, in, shapes...)
			return run(kernels.AttentionBwd, a, append(tensors{dy, q, k, v, o[0], o[1]}, cu...), q.Shape,
				k.Shape, v.Shape)
		}, shapes...)
}

func (m maker) loss(most float64) gradCase {
	x, w := m.normal(4, 5), m.normal(6, 5)
	target := tensor.Of(tensor.I32, []int32{12, 10, -100, 15}, 4)
	weight, seed := m.normal(4), tensor.Of(tensor.F32, []float32{0.7}, 1)
	a := kernels.Attr{I: [4]int{10}, F: [2]float64{most}}
	lse := func() (l, hit *tensor.Tensor) {
		o := run(kernels.LinearLSE, a, tensors{x, w, target}, []int{4, 1}, []int{4})
		return run(kernels.LSEJoin, kernels.Attr{}, o[:1], []int{4})[0], o[1]
	}
	return gradCase{"linear_ce", tensors{x, w}, func() float64 {
		l, hit := lse()
		return float64(seed.F32()[0]) * float64(run(kernels.NLL, kernels.Attr{},
			tensors{l, hit, target, weight}, []int{1})[0].F32()[0])
	}, func() tensors {
		l, _ := lse()
		return run(kernels.LinearCEBwd, a, tensors{x, w, target, l, weight, seed}, x.Shape, w.Shape)
	}}
}

// TestGradients compares every gradient operation with central differences. Outputs are rounded to float32,
// which leaves about 1e-7/step; the truncation error is step² times the third derivative: together below
// 1e-3 of the gradient's norm.
func TestGradients(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(1, 2))}
	for _, c := range []gradCase{
		m.matrices(), m.grouped(), m.norm(0), m.norm(1), m.rope(0), m.rope(1), m.swiglu(), m.embed(),
		m.dropout(), m.loss(0), m.loss(1.5),
		m.attention("full", 0, 0, 2, 2, 0, []int32{0, 3}, []int32{0, 4}),
		m.attention("causal packed", 1, 0, 2, 1, 0, []int32{0, 3, 3, 7}, []int32{0, 3, 3, 7}),
		m.attention("causal longer keys", 1, 0, 4, 2, 0, []int32{0, 2, 4}, []int32{0, 5, 7}),
		m.attention("causal unseen queries", 1, 0, 1, 1, 0, []int32{0, 5}, []int32{0, 3}),
		m.attention("window", 1, 2, 3, 3, 0, []int32{0, 6}, []int32{0, 6}),
		m.attention("soft cap", 1, 3, 4, 2, 0.8, []int32{0, 6}, []int32{0, 6}),
		m.attention("mask", 0, 0, 2, 1, 0, []int32{0, 4, 6}, []int32{0, 4, 6},
			tensor.Of(tensor.I32, []int32{3, 2, 7}, 3, 1),
			tensor.Of(tensor.I32, []int32{0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1}, 6, 3),
			tensor.Of(tensor.I32, []int32{0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1}, 6, 3),
			tensor.Of(tensor.I32, []int32{0, 1, 1, 1, -1, 0}, 6)),
	} {
		grads := c.gradient()
		require.Len(t, grads, len(c.vary), c.name)
		for i, v := range c.vary {
			require.Less(t, distance(grads[i].F32(), differences(v.F32(), c.forward)), 1e-3,
				"%s: gradient of operand %d", c.name, i)
		}
	}
}

// differences are central differences of f by each element of v.
func differences(v []float32, f func() float64) []float32 {
	const step = 0x1p-8
	d := make([]float32, len(v))
	for i, x := range v {
		v[i] = x + step
		up, h := f(), float64(v[i])
		v[i] = x - step
		d[i] = float32((up - f()) / (h - float64(v[i])))
		v[i] = x
	}
	return d
}

// distance is |a-b|/|b|.
func distance(a, b []float32) float64 {
	d, n := 0.0, 0.0
	for i := range b {
		d += math.Pow(float64(a[i]-b[i]), 2)
		n += math.Pow(float64(b[i]), 2)
	}
	return math.Sqrt(d / n)
}
