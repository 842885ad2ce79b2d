package kernelstest

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// packedCases are products with a matrix in each form, with groups of its own size, of another, and whole
// rows; sizes are no whole groups, and more than one tile.
func packedCases() []Case {
	var l []Case
	for form := 1; form < len(kernels.PackedForms); form++ {
		for i, s := range [][3]int{{1, 1, 1}, {5, 7, 40}, {3, 130, 260}, {0, 3, 4}, {4, 5, 0}, {20, 300, 33},
			{2, 520, 5000}, {2, 5000, 520}} {
			m, n, k := s[0], s[1], s[2]
			if form > 1 && i > 5 { // one form shows the tiles
				continue
			}
			for _, group := range slices.Compact([]int{32, kernels.PackedForms[form].Group, 0}) {
				p := kernels.Packing{Form: form, Group: group}
				name := fmt.Sprintf("%v-%dx%dx%d", p, m, n, k)
				l = append(l, Case{Op: kernels.PackedLinear, Name: name, Tol: 8e-6,
					Why: "float32 sums of 5000 products", Call: func(g *gen) *kernels.Call {
						return &kernels.Call{In: tensors{g.act(m, k), g.packed(p, n, k), g.act(n)},
							Out: tensors{g.raw(g.a, m, n)}, Attr: p.Attr()}
					}},
					Case{Op: kernels.PackedLinearDX, Name: name, Tol: 8e-6,
						Why: "float32 sums of 5000 products",
						Call: func(g *gen) *kernels.Call {
							return &kernels.Call{In: tensors{g.act(m, n), g.packed(p, n, k)},
								Out: tensors{g.raw(g.a, m, k)}, Attr: p.Attr()}
						}})
			}
		}
	}
	return append(l, packedGroups()...)
}

// packedGroups are products with a matrix for each group of rows: of none, one and many, between rows of no
// group, and of matrices of more than a tile.
func packedGroups() (l []Case) {
	for form := 1; form < len(kernels.PackedForms); form++ {
		for _, s := range []struct {
			off     []int32
			t, n, k int
		}{{[]int32{1, 1, 6, 7}, 9, 7, 40}, {[]int32{0, 100}, 100, 130, 260}, {[]int32{0, 3, 140}, 140, 600, 33},
			{[]int32{2, 2}, 2, 3, 4}, {[]int32{0, 0, 0}, 0, 8, 8}} {
			p := kernels.Packing{Form: form, Group: kernels.PackedForms[form].Group}
			name, groups := fmt.Sprintf("%v-%v-%dx%d", p, s.off, s.n, s.k), len(s.off)-1
			one := func(op kernels.Op, in, out int) {
				l = append(l, Case{Op: op, Name: name, Tol: 8e-6, Why: "float32 sums of 600 products",
					Call: func(g *gen) *kernels.Call {
						w := g.packed(p, groups*s.n, s.k)
						return &kernels.Call{In: tensors{g.act(s.t, in), w.Alias(groups, s.n, w.Shape[1]),
							tensor.Of(tensor.I32, s.off, len(s.off))}, Out: tensors{g.raw(g.a, s.t, out)},
							Attr: p.Attr()}
					}})
			}
			one(kernels.PackedGrouped, s.k, s.n)
			one(kernels.PackedGroupedDX, s.n, s.k)
		}
	}
	return l
}

// packed is a matrix [n k] of random numbers in a form.
func (g *gen) packed(p kernels.Packing, n, k int) *tensor.Tensor {
	_, words := p.Words(k)
	t, x := g.raw(tensor.I32, n, words), make([]float32, k)
	for i := range n {
		for j := range x {
			x[j] = float32(g.NormFloat64())
		}
		if i%7 == 3 {
			clear(x)
		}
		p.Pack(t.Bytes()[4*i*words:4*(i+1)*words], x)
	}
	return t
}

var _ = add(packedCases()...)
