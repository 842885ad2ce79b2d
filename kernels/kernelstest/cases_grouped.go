package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// groupedShape is groups of rows of x [t, k] times w [g, n, k]; extra rows before and after belong to none.
type groupedShape struct {
	rows  []int
	n, k  int
	extra int
}

// groupedShapes: one row, empty groups and empty everything, primes, groups of few rows and of many, sums
// and widths over every block of the product.
var groupedShapes = []groupedShape{
	{[]int{1}, 1, 1, 0}, {nil, 3, 2, 4}, {[]int{0, 0}, 5, 3, 0}, {[]int{0, 3, 0, 1}, 0, 7, 1},
	{[]int{2, 3}, 5, 0, 0},
	{[]int{1, 0, 2, 7, 13}, 17, 31, 2}, {[]int{5, 1, 4, 33}, 64, 96, 0}, {[]int{31, 0, 67, 3}, 53, 101, 3},
	{[]int{6, 2}, 300, 61, 0}, {[]int{19, 3}, 41, 1100, 1}, {[]int{4, 5}, 1100, 37, 0},
	{[]int{97, 0, 41, 64, 65}, 130, 70, 0},
}

func (s groupedShape) offsets(g *gen) (off *tensor.Tensor, t int) {
	cu := []int32{int32(s.extra)}
	for _, n := range s.rows {
		cu = append(cu, cu[len(cu)-1]+int32(n))
	}
	return g.i32(cu...), int(cu[len(cu)-1]) + s.extra
}

func groupedCases() []Case {
	var l []Case
	for _, s := range groupedShapes {
		e := len(s.rows)
		half := 0.0
		weights := func(g *gen) *tensor.Tensor { return g.scaled(e*s.n, s.k) }
		one := func(op kernels.Op, suffix string, call func(g *gen, off *tensor.Tensor, t int) *kernels.Call) {
			l = append(l, Case{Op: op, Name: fmt.Sprintf("%vx%dx%d+%d%s", s.rows, s.n, s.k, s.extra, suffix),
				Tol: 4e-6, Half: half, Why: sumWhy, Call: func(g *gen) *kernels.Call {
					off, t := s.offsets(g)
					return call(g, off, t)
				}})
		}
		cube := func(w *tensor.Tensor) *tensor.Tensor { w.Shape = []int{e, s.n, s.k}; return w }
		one(kernels.GroupedLinear, "", func(g *gen, off *tensor.Tensor, t int) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, s.k), cube(weights(g)), off}, Out: tensors{g.raw(g.a, t, s.n)}}
		})
		half = 4 // parts are rounded each
		one(kernels.GroupedLinear, "parts", func(g *gen, off *tensor.Tensor, t int) *kernels.Call {
			w := g.scaled(e*s.n, 2*s.k)
			w.Shape = []int{e, s.n, 2 * s.k}
			return &kernels.Call{In: tensors{g.act(t, 2*s.k), w, off}, Out: tensors{g.raw(g.a, t, s.n)},
				Attr: kernels.Attr{I: [4]int{3: 2}}}
		})
		half = 0
		one(kernels.GroupedLinear, "f32", func(g *gen, off *tensor.Tensor, t int) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, s.k), cube(weights(g)), off},
				Out: tensors{g.raw(tensor.F32, t, s.n)}}
		})
		one(kernels.GroupedLinearDX, "", func(g *gen, off *tensor.Tensor, t int) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, s.n), cube(g.act(e*s.n, s.k)), off},
				Out: tensors{g.raw(g.a, t, s.k)}}
		})
		one(kernels.GroupedLinearDW, "", func(g *gen, off *tensor.Tensor, t int) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, s.n), g.act(t, s.k), off},
				Out: tensors{g.raw(tensor.F32, e, s.n, s.k)}}
		})
		one(kernels.GroupedLinearDW, "acc", func(g *gen, off *tensor.Tensor, t int) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, s.n), g.act(t, s.k), off},
				Out: tensors{g.f32(e, s.n, s.k)}, Attr: accumulate(0)}
		})
	}
	return append(append(l, headCases()...), roundedCases()...)
}

// roundedCases are operands of products in each precision by themselves: groups of rows, empty ones among
// them, and matrices of the last two axes.
func roundedCases() (l []Case) {
	for p := 1; p < len(kernels.Precisions); p++ {
		for operand := range 6 {
			at := kernels.Attr{I: [4]int{operand / 2, p, operand % 2}}
			name := fmt.Sprintf("%s operand %d", kernels.Precisions[p].Name, operand)
			l = append(l, Case{Op: kernels.Rounded, Name: name + " of groups", Tol: 1e-6,
				Why: "one product and rounding", Call: func(g *gen) *kernels.Call {
					off := tensor.Of(tensor.I32, []int32{3, 3, 8, 45, 45, 66}, 6)
					return &kernels.Call{In: tensors{g.uneven(70, 37), off, nil, g.draw()},
						Out: tensors{g.raw(g.a, 70, 37)}, Attr: at}
				}}, Case{Op: kernels.Rounded, Name: name, Tol: 1e-6, Why: "one product and rounding",
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.uneven(3, 35, 130), nil, nil, g.draw()}, Out: tensors{g.raw(g.a, 3, 35,
						130)}, Attr: at}
				}})
		}
	}
	return l
}

// headCases are groups without offsets: tokens, heads, and both widths.
func headCases() (l []Case) {
	for _, s := range [][4]int{{0, 2, 3, 4}, {1, 1, 1, 1}, {3, 5, 7, 6}, {70, 4, 24, 40}, {130, 3, 64, 33},
		{5, 2, 0, 3}, {5, 2, 3, 0}} {
		t, h, n, k := s[0], s[1], s[2], s[3]
		one := func(op kernels.Op, suffix string, call func(g *gen) *kernels.Call) {
			l = append(l, Case{Op: op, Name: fmt.Sprintf("heads %v%s", s, suffix), Tol: 4e-6, Why: sumWhy, Call: call})
		}
		one(kernels.GroupedLinear, "", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, h, k), g.act(h, n, k)}, Out: tensors{g.raw(g.a, t, h, n)}}
		})
		one(kernels.GroupedLinearDX, "", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, h, n), g.act(h, n, k), nil}, Out: tensors{g.raw(g.a, t, h, k)}}
		})
		one(kernels.GroupedLinearDW, "", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, h, n), g.act(t, h, k)}, Out: tensors{g.raw(tensor.F32, h, n, k)}}
		})
		one(kernels.GroupedLinearDW, " acc", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, h, n), g.act(t, h, k), nil}, Out: tensors{g.f32(h, n, k)},
				Attr: accumulate(0)}
		})
	}
	return l
}

var _ = add(groupedCases()...)
