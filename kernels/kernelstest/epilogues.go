package kernelstest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// epilogueSizes are rows, columns (heads of 8) and the length of the sum of products: one row, primes, over
// blocks of each dimension.
var epilogueSizes = [][3]int{{1, 64, 40}, {2, 8, 3}, {37, 104, 31}, {13, 40, 600}, {260, 528, 20},
	{33, 1112, 9}, {20, 2200, 7}, {0, 16, 8}, {9, 24, 0}}

// epilogues holds that operations behind a product give the bits they give alone, whatever part of it they run on.
func epilogues(t *testing.T, b kernels.Backend) {
	for _, a := range activations {
		for _, s := range epilogueSizes {
			for _, way := range []kernels.Op{kernels.Linear, kernels.LinearDX, kernels.PackedLinear,
				kernels.PackedLinearDX} {
				name := fmt.Sprintf("%v %v %s", a, s, way)
				g := newGen(name, a)
				y := g.raw(a, s[0], s[1])
				base := g.productOf(way, y, s[2])
				for i, then := range append(g.behind(a, y), g.besides(a, y, max(1, s[2]/4))...) {
					behindProduct(t, b, fmt.Sprintf("%s, %d", name, i), base, then)
				}
			}
		}
	}
	y := tensor.Make(tensor.F32, 1, 1)
	one := func() *tensor.Tensor { return tensor.Make(tensor.F32, 1, 1) }
	for why, e := range map[string]*kernels.Call{
		"an operation that is not elementwise is no epilogue": {Op: kernels.ColSum, In: tensors{y},
			Out: tensors{tensor.Make(tensor.F32, 1)}},
		"nor is a product with a bias": {Op: kernels.Linear,
			In: tensors{one(), one(), tensor.Make(tensor.F32, 1)}, Out: tensors{one()}},
	} {
		require.Panics(t, func() {
			b.Run(&kernels.Call{Op: kernels.Linear, In: tensors{y, one()}, Out: tensors{one()},
				Then: []*kernels.Call{e}})
		}, why)
	}
}

// behindProduct holds epilogues of a product to what they give one after the other, where the product is
// read by others too and where it is not.
func behindProduct(t *testing.T, b kernels.Backend, name string, base kernels.Call, then []*kernels.Call) {
	for _, passing := range []bool{false, true} {
		c, want := base, [][]byte{}
		b.Run(&c)
		product := bytes.Clone(c.Out[0].Bytes())
		for _, e := range then {
			b.Run(e)
			for _, o := range e.Out {
				want = append(want, bytes.Clone(o.Bytes()))
			}
		}
		clear(c.Out[0].Bytes())
		for _, e := range then {
			for _, o := range e.Out {
				clear(o.Bytes())
			}
		}
		c.Then, c.Passing = then, passing
		b.Run(&c)
		b.Sync()
		require.True(t, passing || bytes.Equal(product, c.Out[0].Bytes()), "%s: the product", name)
		for _, e := range then {
			for _, o := range e.Out {
				require.True(t, e.Passing || bytes.Equal(want[0], o.Bytes()), "%s: %s behind it, passing %v",
					name, e.Op, passing)
				want = want[1:]
			}
		}
	}
}

// behind are elementwise epilogues of a product y.
func (g *gen) behind(a tensor.DType, y *tensor.Tensor) [][]*kernels.Call {
	m, n := y.Shape[0], y.Shape[1]
	other, third := g.act(m, n), g.act(m, n)
	out := func() *tensor.Tensor { return g.raw(a, m, n) }
	heads := []int{m, n / 8, 8}
	return [][]*kernels.Call{
		{{Op: kernels.Sum, In: tensors{other, y}, Out: tensors{out()}}},
		{{Op: kernels.Sum, In: tensors{y, other, third}, Out: tensors{out()}}},
		{{Op: kernels.SwiGLU, In: tensors{other, y}, Out: tensors{out()}},
			{Op: kernels.Mul, In: tensors{y, third}, Out: tensors{out()}}},
		{{Op: kernels.SwiGLU, In: tensors{other, y}, Out: tensors{out()}}},
		{{Op: kernels.Mul, In: tensors{y, y}, Out: tensors{out()}}},
		{{Op: kernels.SwiGLUBwd, In: tensors{y, other, third}, Out: tensors{out(), out()}}},
		{{Op: kernels.Act, In: tensors{y}, Out: tensors{out()}, Attr: kernels.Attr{I: [4]int{kernels.GELU}}}},
		{{Op: kernels.ActBwd, In: tensors{y, other}, Out: tensors{out()}, Attr: kernels.Attr{I: [4]int{kernels.SiLU}}}},
		{{Op: kernels.Rope, In: tensors{y.Alias(heads...), g.f32(m, 3), g.f32(m, 3)},
			Out: tensors{out().Alias(heads...)}, Attr: kernels.Attr{I: [4]int{1}}}},
		{{Op: kernels.Rope, In: tensors{y.Alias(heads...), g.f32(m, 4), g.f32(m, 4)},
			Out: tensors{out().Alias(heads...)}, Attr: kernels.Attr{I: [4]int{-1, 1}}}},
	}
}

// besides are epilogues with products over k numbers that are added to a product y.
func (g *gen) besides(a tensor.DType, y *tensor.Tensor, k int) [][]*kernels.Call {
	m, n := y.Shape[0], y.Shape[1]
	sum := func(a, b, c *tensor.Tensor) *kernels.Call {
		return &kernels.Call{Op: kernels.Sum, In: tensors{a, b}, Out: tensors{c}}
	}
	other, one, two, added, out := g.act(m, n), g.raw(a, m, n), g.raw(a, m, n), g.raw(a, m, n), g.raw(a, m, n)
	thin := &kernels.Call{Op: kernels.Linear, In: tensors{g.act(m, k), g.scaled(n, k)}, Out: tensors{one},
		Passing: true}
	turned := &kernels.Call{Op: kernels.LinearDX, In: tensors{g.act(m, k), g.scaled(k, n)},
		Out: tensors{two}, Passing: true}
	read := *thin
	read.Passing = false
	return [][]*kernels.Call{
		{thin, sum(y, one, out)},
		{&read, sum(y, one, out)},
		{thin, sum(one, y, added), sum(other, added, out)},
		{turned, sum(two, other, added), sum(added, y, out)},
		{turned, thin, sum(two, y, added), sum(added, one, out)},
	}
}

// productOf is a product with y [m n] as its result, over k numbers each.
func (g *gen) productOf(way kernels.Op, y *tensor.Tensor, k int) kernels.Call {
	m, n, few := y.Shape[0], y.Shape[1], kernels.Packing{Form: 1, Group: 32}
	c := kernels.Call{Op: way, In: tensors{g.act(m, k), nil}, Out: tensors{y}}
	switch way {
	case kernels.Linear:
		c.In = tensors{c.In[0], g.scaled(n, k), g.act(n)}
	case kernels.LinearDX:
		c.In[1] = g.scaled(k, n)
	case kernels.PackedLinear:
		c.In, c.Attr = tensors{c.In[0], g.packed(few, n, k), g.act(n)}, few.Attr()
	case kernels.PackedLinearDX:
		c.In[1], c.Attr = g.packed(few, k, n), few.Attr()
	}
	return c
}
