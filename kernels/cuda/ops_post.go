//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Losses of single tokens and of a teacher's distribution, rows of pages, and tokens of a kind. Objectives
// on few numbers a row, and their gradients, are computed on the processor, where each is one file.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.TokenNLL: func(x *issue) {
		n := x.out(0).Len()
		x.launch("token_nll", each(n), x.in(0), x.in(1), x.in(2), x.out(0), n)
	},
	kernels.LogitsNLL: (*issue).logitsNLL,
	kernels.Divergence: func(x *issue) {
		rows := x.in(2).Len()
		part := x.work(rows, 8)
		x.teacher("divergence", rowwise(rows, lastDim(x.in(0))), part)
		x.teacher("divergence_sum", single(256), part)
	},
	kernels.DivergenceBwd: func(x *issue) {
		x.teacher("divergence_bwd", rowwise(x.in(2).Len(), lastDim(x.in(0))), 0)
	},
	kernels.PagedRows: func(x *issue) {
		pool, fresh, at, y := x.in(0), x.in(1), x.in(2), x.out(0)
		n := at.Len()
		if y.Len() == 0 {
			return
		}
		bytes := y.Size() / n
		name, word := "paged_rows_2", 2
		if (uint64(bytes)|x.q.Addr(y)|x.q.Addr(pool)|x.q.Addr(fresh))%8 == 0 {
			name, word = "paged_rows_8", 8
		}
		x.launch(name, each(y.Size()/word), pool, fresh, at, y, n, bytes, pool.Shape[0], fresh.Shape[0])
	},
	kernels.KindRows: func(x *issue) {
		y := x.out(0)
		x.launch(typed("kind_rows", y), each(y.Len()), x.in(0), x.in(1), y, y.Len(), max(1, lastDim(y)),
			x.c.Attr.I[0], false)
	},
	kernels.KindExperts: func(x *issue) {
		y := x.out(0)
		x.launch("kind_experts", each(y.Len()), x.in(0), x.in(1), y, y.Len(), max(1, lastDim(y)), x.c.Attr.I[0], false)
	},
	kernels.KindSurplus: func(x *issue) {
		own, y := x.in(0), x.out(0)
		x.launch("kind_surplus", rowwise(y.Len(), own.Len()), own, nil, y, own.Len(), y.Len(), 0, x.accumulates(0))
	},
})

// gkd is the one objective on two distributions that the device has; its number.
var gkd = objective.Lookup("gkd").Number()

// mixAt is the place of objective's parameter mix among those of a call.
const mixAt = 14

// teacher launches a kernel of the divergence of two distributions.
func (x *issue) teacher(name string, g grid, part uint64) {
	if x.c.Attr.I[0] != gkd {
		x.absent = true
		return
	}
	z := x.in(0)
	x.launch(name, g, z, x.in(1), x.in(2), x.in(3), x.in(4), part, x.out(0), x.in(2).Len(), lastDim(z), mixAt)
}

// logitsNLL is linear_lse of logits that are there, lse_join and token_nll.
func (x *issue) logitsNLL() {
	z, target, y := x.in(0), x.in(1), x.out(0)
	rows, v := y.Len(), lastDim(z)
	if v == 0 || x.c.Attr.I[1] > 1 {
		x.absent = true
		return
	}
	like := &tensor.Tensor{DType: kernels.NumberedActivation(x.c.Attr.I[0])}
	b := losses{x: like, v: v, blocks: parts(v, kernels.LSEBlock)}
	most, sum := x.work(rows*b.blocks, 4), x.work(rows*b.blocks, 4)
	lse, joined, hit := x.work(rows, 4), x.work(rows, 4), x.work(rows, 4)
	x.launch(typed("lse_block", like), x.columnBlocks(b, rows), z, target, most, sum, hit, nil, nil, nil, rows, v,
		0, b.blocks, 0, v, x.c.Attr.F[0], 0.0)
	x.launch("lse_blocks", each(rows), nil, nil, most, sum, nil, lse, nil, nil, rows, 0, 0, b.blocks, 0, 0, 0.0, 0.0)
	x.launch("lse_join", each(rows), lse, nil, nil, nil, nil, joined, nil, nil, rows, 1, 0, 0, 0, 0, 0.0, 0.0)
	x.launch("token_nll", each(rows), joined, hit, target, y, rows)
}
