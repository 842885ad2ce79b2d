//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Norms over groups of channels of images, and what changes their size.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.GroupNorm: func(x *issue) {
		g := groupsOf(x.in(0), x.out(1))
		g.x, g.w, g.b, g.y, g.rstdOut, g.meanOut = x.in(0), x.in(1), x.in(2), x.out(0), x.out(1), x.out(2)
		x.byGroup("group_norm", x.in(0), g)
	},
	kernels.GroupMoments: func(x *issue) {
		g := groupsOf(x.in(0), x.out(0))
		g.x, g.meanOut, g.rstdOut = x.in(0), x.out(0), x.out(1)
		x.byGroup("group_moments", x.in(0), g)
	},
	kernels.GroupNormDX: func(x *issue) {
		g := groupsOf(x.in(1), x.in(3))
		g.dy, g.x, g.w, g.rstd, g.mean, g.y = x.in(0), x.in(1), x.in(2), x.in(3), x.in(4), x.out(0)
		x.byGroup("group_norm_dx", x.in(0), g)
	},
	kernels.GroupNormDW: func(x *issue) {
		g := groupsOf(x.in(1), x.in(2))
		g.dy, g.x, g.rstd, g.mean = x.in(0), x.in(1), x.in(2), x.in(3)
		n := parts(g.n*g.places, chunk)
		g.part = x.work(n*g.c, 4)
		over := rowwise(n, g.c)
		if over.y = parts(g.c, over.threads); g.c > 0 {
			x.launch(typed("group_norm_dw", x.in(0)), over, g.fields(0)...)
		}
		x.join(g.part, n, g.c)
	},
	kernels.GroupJoin: func(x *issue) {
		y := x.out(0)
		g := groups{mean: x.in(0), rstd: x.in(1), rstdOut: y, meanOut: x.out(1), n: y.Shape[0], g: y.Shape[1],
			parts: max(1, x.in(0).Len()/max(1, y.Len()))}
		x.launch("group_join", each(y.Len()), g.fields(x.c.Attr.F[0])...)
	},
	kernels.GroupScale: func(x *issue) {
		g := groupsOf(x.in(0), x.in(3))
		g.x, g.w, g.b, g.rstd, g.mean, g.y = x.in(0), x.in(1), x.in(2), x.in(3), x.in(4), x.out(0)
		x.launch(typed("group_scale", x.in(0)), each(x.in(0).Len()), g.fields(0)...)
	},
	kernels.GroupScaleDX: func(x *issue) {
		g := groupsOf(x.in(1), x.in(3))
		g.dy, g.x, g.w, g.rstd, g.mean, g.dw, g.db, g.y = x.in(0), x.in(1), x.in(2), x.in(3), x.in(4), x.in(5), x.in(6),
			x.out(0)
		g.parts = x.c.Attr.I[0]
		x.launch(typed("group_scale_dx", x.in(0)), each(x.in(0).Len()), g.fields(0)...)
	},
	kernels.FrozenNorm: func(x *issue) {
		a := x.in(0)
		g := groups{x: a, w: x.in(1), b: x.in(2), mean: x.in(3), rstd: x.in(4), y: x.out(0), rstdOut: x.out(1),
			meanOut: x.out(2), places: a.Rows(), c: lastDim(a), wide: floats(x.in(3), x.in(4))}
		x.launch(typed("frozen_norm", a), each(max(a.Len(), lastDim(a))), g.fields(x.c.Attr.F[0])...)
	},
	kernels.FrozenNormDX: func(x *issue) {
		dy := x.in(0)
		g := groups{dy: dy, w: x.in(1), rstd: x.in(2), y: x.out(0), places: dy.Rows(), c: lastDim(dy)}
		x.launch(typed("frozen_norm_dx", dy), each(dy.Len()), g.fields(0)...)
	},
	kernels.Resize:    func(x *issue) { x.sized("resize", x.in(0), x.out(0), x.in(0), nil, false) },
	kernels.ResizeBwd: func(x *issue) { x.sized("resize_bwd", x.out(0), x.in(0), nil, x.in(0), false) },
	kernels.Pool:      func(x *issue) { x.sized("pool", x.in(0), x.out(0), x.in(0), nil, true) },
	kernels.PoolBwd:   func(x *issue) { x.sized("pool_bwd", x.out(0), x.in(0), x.in(1), x.in(0), true) },
})

// groups are the fields of the struct ChannelGroups.
type groups struct {
	x, dy, w, b, rstd, mean, dw, db, y, rstdOut, meanOut *tensor.Tensor
	part                                                 uint64
	n, places, c, g, parts, wide                         int
}

func (g groups) fields(eps float64) []any {
	return []any{g.x, g.dy, g.w, g.b, g.rstd, g.mean, g.dw, g.db, g.y, g.rstdOut, g.meanOut, g.part, g.n, g.places,
		g.c, g.g, g.parts, g.wide, eps}
}

// groupsOf describes x [n, …, c] with statistics [n, g].
func groupsOf(x, stats *tensor.Tensor) groups {
	c := lastDim(x)
	return groups{n: x.Shape[0], places: tensor.Len(x.Shape[1 : len(x.Shape)-1]), c: c, g: stats.Shape[1]}
}

// byGroup launches a block for each group of each sample.
func (x *issue) byGroup(name string, a *tensor.Tensor, g groups) {
	if g.g > 0 {
		x.launch(typed(name, a), rowwise(g.n*g.g, g.places*(g.c/g.g)), g.fields(x.c.Attr.F[0])...)
	}
}

// sized launches a kernel between the places of big, which windows and sizes count from, and those of small; the
// result is the first output.
func (x *issue) sized(name string, from, to, a, dy *tensor.Tensor, windows bool) {
	y, rank := x.out(0), len(from.Shape)-2
	if from.Len() == 0 || to.Len() == 0 {
		if name == "pool" && y.Len() > 0 {
			x.absent = true // nothing but padding
		} else {
			x.clear(y, 0)
		}
		return
	}
	in, out, size := [3]int{1, 1, 1}, [3]int{1, 1, 1}, [3]int{1, 1, 1}
	win := [3]kernels.Window{}
	for i := range win {
		win[i] = kernels.Window{Stride: 1, Dilation: 1}
		if j := i - (3 - rank); j >= 0 {
			in[i], out[i] = from.Shape[1+j], to.Shape[1+j]
			if windows {
				win[i] = kernels.WindowOf(x.c.Attr.I[1+j])
				size[i] = win[i].Size
			}
		}
	}
	args := []any{a, dy, y, from.Shape[0], lastDim(from), x.c.Attr.I[0]}
	for _, l := range [][3]int{in, out, size, {win[0].Stride, win[1].Stride, win[2].Stride},
		{win[0].Dilation, win[1].Dilation, win[2].Dilation}, {win[0].Before, win[1].Before, win[2].Before}} {
		args = append(args, l[0], l[1], l[2])
	}
	x.launch(typed(name, y), each(y.Len()), args...)
}
