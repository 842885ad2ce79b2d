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

// epilogues holds that operations behind a product give the bits they give alone, whatever part of it they
// run on.
func epilogues(t *testing.T, b kernels.Backend) {
	for _, a := range activations {
		for _, s := range epilogueSizes {
			for _, way := range []kernels.Op{kernels.Linear, kernels.LinearDX, kernels.PackedLinear,
				kernels.PackedLinearDX} {
				name := fmt.Sprintf("%v %v %s", a, s, way)
				g := newGen(name, a)
				m, n, k := s[0], s[1], s[2]
				y := g.raw(a, m, n)
				base := g.productOf(way, y, k)
				b.Run(&base)
				product := bytes.Clone(y.Bytes())
				other, third := g.act(m, n), g.act(m, n)
				out := func() *tensor.Tensor { return g.raw(a, m, n) }
				heads := []int{m, n / 8, 8}
				for i, then := range [][]*kernels.Call{
					{{Op: kernels.Sum, In: tensors{other, y}, Out: tensors{out()}}},
					{{Op: kernels.Sum, In: tensors{y, other, third}, Out: tensors{out()}}},
					{{Op: kernels.SwiGLU, In: tensors{other, y}, Out: tensors{out()}},
						{Op: kernels.Mul, In: tensors{y, third}, Out: tensors{out()}}},
					{{Op: kernels.SwiGLUBwd, In: tensors{y, other, third}, Out: tensors{out(), out()}}},
					{{Op: kernels.Act, In: tensors{y}, Out: tensors{out()},
						Attr: kernels.Attr{I: [4]int{kernels.GELU}}}},
					{{Op: kernels.ActBwd, In: tensors{y, other}, Out: tensors{out()},
						Attr: kernels.Attr{I: [4]int{kernels.SiLU}}}},
					{{Op: kernels.Rope, In: tensors{y.Alias(heads...), g.f32(m, 3), g.f32(m, 3)},
						Out: tensors{out().Alias(heads...)}, Attr: kernels.Attr{I: [4]int{1}}}},
					{{Op: kernels.Rope, In: tensors{y.Alias(heads...), g.f32(m, 4), g.f32(m, 4)},
						Out: tensors{out().Alias(heads...)}, Attr: kernels.Attr{I: [4]int{-1, 1}}}},
				} {
					c, want := base, [][]byte{}
					for _, e := range then {
						b.Run(e)
						for _, o := range e.Out {
							want = append(want, bytes.Clone(o.Bytes()))
							clear(o.Bytes())
						}
					}
					clear(y.Bytes())
					c.Then = then
					b.Run(&c)
					b.Sync()
					require.True(t, bytes.Equal(product, y.Bytes()), "%s: product before epilogue %d",
						name, i)
					for _, e := range then {
						for _, o := range e.Out {
							require.True(t, bytes.Equal(want[0], o.Bytes()), "%s: %s behind the product",
								name, e.Op)
							want = want[1:]
						}
					}
				}
			}
		}
	}
	y := tensor.Make(tensor.F32, 1, 1)
	require.Panics(t, func() {
		b.Run(&kernels.Call{Op: kernels.Linear, In: tensors{y, tensor.Make(tensor.F32, 1, 1)},
			Out: tensors{tensor.Make(tensor.F32, 1, 1)},
			Then: []*kernels.Call{{Op: kernels.ColSum, In: tensors{y},
				Out: tensors{tensor.Make(tensor.F32, 1)}}}})
	}, "an operation that is not elementwise is no epilogue")
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
