package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// convCase is a convolution: x [n, s…, c], weights [f, c/g, k…] and an axis' window each.
type convCase struct {
	x, w []int
	wins []kernels.Window
}

// same is the window of stride 1 with so much padding at both ends.
func same(pad int) kernels.Window {
	return kernels.Window{Stride: 1, Dilation: 1, Before: pad, After: pad}
}

func win(stride, dilation, before, after int) kernels.Window {
	return kernels.Window{Stride: stride, Dilation: dilation, Before: before, After: after}
}

// spaceShapes are convolutions with empty dimensions, single places, odd sizes, kernels larger than the
// image, and with products over the blocks of each backend.
var spaceShapes = []convCase{
	{[]int{1, 1, 1}, []int{1, 1, 1}, []kernels.Window{same(0)}},
	{[]int{0, 4, 3}, []int{5, 3, 3}, []kernels.Window{same(1)}},
	{[]int{0, 4, 4, 300}, []int{5, 300, 2, 2}, []kernels.Window{same(0), win(2, 1, 0, 0)}},
	{[]int{2, 0, 3}, []int{4, 3, 3}, []kernels.Window{same(1)}},
	{[]int{2, 5, 0}, []int{4, 0, 3}, []kernels.Window{same(1)}},
	{[]int{2, 5, 3}, []int{0, 3, 3}, []kernels.Window{same(1)}},
	{[]int{2, 2, 3}, []int{4, 3, 5}, []kernels.Window{same(1)}},
	{[]int{2, 37, 5}, []int{7, 5, 3}, []kernels.Window{win(1, 1, 2, 0)}},
	{[]int{3, 64, 16}, []int{32, 16, 5}, []kernels.Window{win(2, 1, 2, 2)}},
	{[]int{1, 29, 6}, []int{9, 2, 4}, []kernels.Window{win(3, 2, 5, 1)}},
	{[]int{2, 9, 11, 20}, []int{40, 20, 3, 3}, []kernels.Window{same(1), same(1)}},
	{[]int{1, 16, 17, 64}, []int{33, 64, 3, 3}, []kernels.Window{same(1), same(1)}},
	{[]int{1, 12, 13, 48}, []int{48, 48, 3, 3}, []kernels.Window{win(2, 1, 0, 1), win(2, 1, 0, 1)}},
	{[]int{2, 7, 8, 130}, []int{70, 130, 1, 1}, []kernels.Window{same(0), same(0)}},
	{[]int{1, 15, 14, 3}, []int{24, 3, 7, 7}, []kernels.Window{win(2, 1, 3, 3), win(2, 1, 3, 3)}},
	{[]int{1, 9, 8, 12}, []int{18, 4, 3, 2}, []kernels.Window{win(1, 2, 2, 1), win(2, 1, -1, 1)}},
	{[]int{2, 10, 9, 33}, []int{33, 1, 3, 3}, []kernels.Window{same(1), same(1)}},
	{[]int{1, 11, 10, 40}, []int{40, 1, 5, 3}, []kernels.Window{win(2, 1, 2, 2), win(1, 2, 0, 2)}},
	{[]int{1, 6, 6, 8}, []int{16, 1, 3, 3}, []kernels.Window{same(1), same(1)}},
	{[]int{1, 4, 6, 7, 16}, []int{24, 16, 3, 3, 3}, []kernels.Window{win(1, 1, 2, 0), same(1), same(1)}},
	{[]int{1, 5, 5, 6, 10}, []int{12, 10, 3, 1, 1}, []kernels.Window{win(2, 1, 0, 0), same(0), same(0)}},
	{[]int{2, 4, 6, 8, 16}, []int{20, 16, 1, 2, 2}, []kernels.Window{same(0), win(2, 1, 0, 0), win(2, 1, 0, 0)}},
	{[]int{1, 26, 30, 18}, []int{20, 18, 3, 3}, []kernels.Window{same(1), same(1)}},
	{[]int{1, 3, 15, 17, 16}, []int{16, 16, 3, 3, 3}, []kernels.Window{win(1, 1, 2, 0), same(1), same(1)}},
	{[]int{1, 3, 5, 4, 6}, []int{6, 1, 3, 3, 3}, []kernels.Window{win(1, 1, 2, 0), win(2, 1, 1, 1), same(1)}},
	// one output along the first axis: taps before and behind the input
	{[]int{2, 1, 8, 9, 20}, []int{24, 20, 3, 3, 3}, []kernels.Window{win(1, 1, 2, 0), same(1), same(1)}},
	{[]int{1, 2, 4, 5, 6}, []int{8, 3, 5, 1, 3}, []kernels.Window{win(2, 2, 5, 2), same(0), win(2, 1, 1, 0)}},
	{[]int{3, 1, 4, 4, 4}, []int{4, 1, 3, 3, 3}, []kernels.Window{win(1, 1, 0, 2), same(1), same(1)}},
}

func (s convCase) name() string {
	n := fmt.Sprintf("%vx%v", s.x, s.w)
	for _, w := range s.wins {
		n += fmt.Sprintf("_%d%+d%+d%+d", w.Stride, w.Dilation, w.Before, w.After)
	}
	return n
}

func (s convCase) attr() (a kernels.Attr) {
	for i, w := range s.wins {
		a.I[1+i] = w.Pack()
	}
	return a
}

// y is the shape of the result.
func (s convCase) y() []int {
	y := []int{s.x[0]}
	for i, w := range kernels.Windows(s.attr(), s.w) {
		y = append(y, w.Out(s.x[1+i]))
	}
	return append(y, s.w[0])
}

// sums is the number of products in one of the weights' gradients.
func (s convCase) sums() float64 { return float64(max(1, tensor.Len(s.y())/max(1, s.w[0]))) }

const convWhy = "float32 sums of some hundred products, in half precision by transforms that may lose a small " +
	"part of what rounding does; zeros of the padding spread what is not finite"

// convHalf is that part of a rounding.
const convHalf = 0.004

// spaceCases are convolutions over space with and without bias, and both gradients, over all of the shapes.
func spaceCases() []Case {
	var l []Case
	for _, s := range spaceShapes {
		weights := func(g *gen) *tensor.Tensor {
			w := g.scaled(s.w[0], tensor.Len(s.w[1:]))
			w.Shape = s.w
			return w
		}
		c := func(op kernels.Op, more string, tol, terms float64, call func(g *gen) *kernels.Call) {
			l = append(l, Case{Op: op, Name: s.name() + more, Tol: tol, Half: convHalf, Why: convWhy, Leaky: true,
				Terms: terms, Call: func(g *gen) *kernels.Call {
					k := call(g)
					at := s.attr()
					at.I[0] = k.Attr.I[0]
					k.Attr = at
					return k
				}})
		}
		c(kernels.Conv, "", 4e-6, 1, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(s.x...), weights(g)}, Out: tensors{g.raw(g.a, s.y()...)}}
		})
		c(kernels.Conv, "bias", 4e-6, 1, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(s.x...), weights(g), g.act(s.w[0])},
				Out: tensors{g.raw(g.a, s.y()...)}}
		})
		c(kernels.ConvDX, "", 4e-6, 1, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(s.y()...), weights(g)}, Out: tensors{g.raw(g.a, s.x...)}}
		})
		c(kernels.ConvDX, "bias", 4e-6, 1, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(s.y()...), weights(g), g.act(s.x[len(s.x)-1])},
				Out: tensors{g.raw(g.a, s.x...)}}
		})
		c(kernels.ConvDW, "", 4e-6, s.sums(), func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(s.y()...), g.act(s.x...)}, Out: tensors{g.raw(tensor.F32, s.w...)}}
		})
		c(kernels.ConvDW, "acc", 4e-6, s.sums(), func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(s.y()...), g.act(s.x...)}, Out: tensors{g.f32(s.w...)},
				Attr: accumulate(0)}
		})
	}
	return l
}

var _ = add(spaceCases()...)
