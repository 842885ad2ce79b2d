//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Convolutions, and elements in another order.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.Conv: func(x *issue) {
		s := x.space(x.in(0), x.in(1), x.out(0))
		x.launch(typed("conv", x.out(0)), each(x.out(0).Len()), s.fields(x.in(0), x.in(1), x.in(2), x.out(0))...)
	},
	kernels.ConvDX: func(x *issue) {
		s := x.space(x.out(0), x.in(1), x.in(0))
		x.launch(typed("conv_dx", x.out(0)), each(x.out(0).Len()), s.fields(x.in(0), x.in(1), x.in(2), x.out(0))...)
	},
	kernels.ConvDW: func(x *issue) {
		dy, a, dw := x.in(0), x.in(1), x.out(0)
		s := x.space(a, dw, dy)
		s.add = x.accumulates(0)
		x.launch(typed("conv_dw", dy), grid{x: parts(dw.Len(), 4), threads: 128}, s.fields(a, dy, nil, dw)...)
	},
	kernels.Permute: func(x *issue) {
		a, y := x.in(0), x.out(0)
		p := byPlace{}
		steps := make([]int, len(a.Shape))
		for i, n := len(a.Shape)-1, 1; i >= 0; i-- {
			steps[i], n = n, n*a.Shape[i]
		}
		for i, axis := range kernels.Order(x.c.Attr, len(a.Shape)) {
			p.axis(y.Shape[i], 0, y.Shape[i], steps[axis])
		}
		x.places(a, y, p)
	},
	kernels.Pad: func(x *issue) {
		a, y := x.in(0), x.out(0)
		p := byPlace{}
		for i, n := range y.Shape {
			before := 0
			if i > 0 && i < len(y.Shape)-1 {
				before = kernels.WindowOf(x.c.Attr.I[i]).Before
			}
			p.axis(n, before, a.Shape[i], tensor.Len(a.Shape[i+1:]))
		}
		x.places(a, y, p)
	},
})

// space is what the struct Space has of shapes; arrays are of the three axes of space.
type space struct {
	n, c, f, each, perGroup int
	in, out, size           [3]int
	win                     [3]kernels.Window
	add                     bool
}

// space describes a convolution of x with w to y.
func (x *issue) space(a, w, y *tensor.Tensor) space {
	rank := len(w.Shape) - 2
	s := space{n: a.Shape[0], c: lastDim(a), f: lastDim(y), each: w.Shape[1]}
	s.perGroup = max(1, s.f/max(1, kernels.Groups(s.c, w.Shape)))
	windows := kernels.Windows(x.c.Attr, w.Shape)
	for i := range 3 {
		s.in[i], s.out[i], s.size[i], s.win[i] = 1, 1, 1, kernels.Window{Stride: 1, Dilation: 1}
		if j := i - (3 - rank); j >= 0 {
			s.in[i], s.out[i], s.size[i], s.win[i] = a.Shape[1+j], y.Shape[1+j], w.Shape[2+j], windows[j]
		}
	}
	return s
}

func (s space) fields(a, w, bias, y *tensor.Tensor) []any {
	all := []any{a, w, orNil(bias), y, s.n, s.c, s.f, s.each, s.perGroup}
	for _, l := range [][3]int{s.in, s.out, s.size, {s.win[0].Stride, s.win[1].Stride, s.win[2].Stride},
		{s.win[0].Dilation, s.win[1].Dilation, s.win[2].Dilation},
		{s.win[0].Before, s.win[1].Before, s.win[2].Before}} {
		all = append(all, l[0], l[1], l[2])
	}
	return append(all, s.add)
}

// byPlace are the axes of the struct Places.
type byPlace struct {
	rank                      int
	size, shift, limit, steps [8]int
}

func (p *byPlace) axis(size, shift, limit, step int) {
	if p.rank < len(p.size) {
		p.size[p.rank], p.shift[p.rank], p.limit[p.rank], p.steps[p.rank] = size, shift, limit, step
	}
	p.rank++
}

// places launches a copy of elements by their places.
func (x *issue) places(a, y *tensor.Tensor, p byPlace) {
	if p.rank > len(p.size) {
		x.absent = true
		return
	}
	args := []any{a, y, y.Len(), p.rank, a.DType.Size()}
	for _, l := range [][8]int{p.size, p.shift, p.limit, p.steps} {
		for _, v := range l {
			args = append(args, v)
		}
	}
	x.launch("places", each(y.Len()), args...)
}
