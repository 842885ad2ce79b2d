//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Weights in few bits: unpacked as numbers of the model's type before a product, or rounded while they learn.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.PackedLinear: func(x *issue) {
		a, n, k := x.in(0), x.in(1).Shape[0], lastDim(x.in(0))
		w := x.unpacked(a, n, k)
		x.product(a.DType, product{a: a, b: w, bias: x.in(2), y: x.out(0), m: a.Rows(), n: n, k: k, aRow: k,
			aCol: 1, bRow: k, bCol: 1, yRow: n})
	},
	kernels.PackedLinearDX: func(x *issue) {
		dy, dx := x.in(0), x.out(0)
		n, k := x.in(1).Shape[0], lastDim(dx)
		w := x.unpacked(dy, n, k)
		x.product(dy.DType, product{a: dy, b: w, y: dx, m: dy.Rows(), n: k, k: n, aRow: n, aCol: 1, bRow: 1,
			bCol: k, yRow: k})
	},
	kernels.PackedGrouped: func(x *issue) {
		a, y, g, n, k := x.in(0), x.out(0), x.in(1).Shape[0], x.in(1).Shape[1], lastDim(x.in(0))
		w := x.unpacked(a, g*n, k)
		x.grouped(y, n, product{a: a, b: w, y: y, m: a.Shape[0], n: n, k: k, aRow: k, aCol: 1, bRow: k, bCol: 1,
			yRow: n, groups: g, bGroup: n * k})
	},
	kernels.PackedGroupedDX: func(x *issue) {
		dy, dx, g, n := x.in(0), x.out(0), x.in(1).Shape[0], x.in(1).Shape[1]
		k := lastDim(dx)
		w := x.unpacked(dy, g*n, k)
		x.grouped(dx, k, product{a: dy, b: w, y: dx, m: dy.Shape[0], n: k, k: n, aRow: n, aCol: 1, bRow: 1, bCol: k,
			yRow: k, groups: g, bGroup: n * k})
	},
	kernels.FakeQuant: func(x *issue) { x.fake("fake_quant", x.in(0), nil) },
	kernels.FakeQuantDW: func(x *issue) {
		x.fake("fake_quant_dw", x.in(1), x.in(0))
	},
})

// unpacked is the packed operand 1, n rows of k numbers, in the dtype of a.
func (x *issue) unpacked(a *tensor.Tensor, n, k int) uint64 {
	p, w := kernels.PackingAt(x.c.Attr), x.in(1)
	f := kernels.PackedForms[p.Form]
	codes, _ := p.Words(k) // all words of a row are the width of w
	group := p.Group
	if group == 0 {
		group = max(k, 1)
	}
	y := x.work(n*k, a.DType.Size())
	x.launch(typed("unpack", a), each(n*codes), w, y, n, k, lastDim(w), codes, group, p.Groups(k), p.Form,
		f.Bits == 4, f.Zeros)
	return y
}

func (x *issue) fake(name string, w, dy *tensor.Tensor) {
	f, k := kernels.FakeAt(x.c.Attr), lastDim(w)
	if w.Len() == 0 {
		return
	}
	group := f.Group
	if group == 0 {
		group = k
	}
	groups := parts(k, group)
	x.launch(typed(name, w), rowwise(w.Rows()*groups, min(group, k)), w, dy, x.out(0), k, group, groups, f.Bits)
}
