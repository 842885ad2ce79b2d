//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// The loss over a vocabulary.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.LinearLSE: func(x *issue) {
		a, w := x.in(0), x.in(1)
		b := x.losses(a, w, x.in(2))
		for from := 0; from < b.t; from += b.step {
			rows := min(b.step, b.t-from)
			e := numerators{}
			if x.out(2) != nil {
				e = numerators{at: x.q.Addr(x.out(2)) + uint64(from*b.v*b.size), row: b.v,
					top: x.q.Addr(x.out(3)) + uint64(from*b.blocks*4), block: kernels.LSEBlock}
			}
			x.lse(b, from, rows, e, x.q.Addr(x.out(0)), x.q.Addr(x.out(1)))
		}
	},
	kernels.LSEJoin: func(x *issue) {
		l, y := x.in(0), x.out(0)
		x.launch("lse_join", each(y.Len()), l, nil, nil, nil, nil, y, nil, nil, y.Len(), lastDim(l), 0, 0, 0,
			0, 0, 0.0, 0.0)
	},
	kernels.NLL: func(x *issue) { x.nll(x.q.Addr(x.in(0)), x.q.Addr(x.in(1)), x.in(2), x.in(3)) },
	kernels.LinearCEDX: func(x *issue) {
		x.gradients(x.out(0), nil)
	},
	kernels.LinearCEDW:  func(x *issue) { x.gradients(nil, x.out(0)) },
	kernels.LinearCEBwd: func(x *issue) { x.gradients(x.out(0), x.out(1)) },
	kernels.LinearCE:    (*issue).lossAndGradients,
})

// losses is a shard of a vocabulary and the rows that go with it.
type losses struct {
	x, w, target    *tensor.Tensor
	t, d, v, blocks int
	size            int    // bytes of an activation
	z               uint64 // logits of a block, float32
	max, sum        uint64 // of rows and blocks
	rows            int    // that these have room for
	// step is the rows of a chunk, and dzRow the elements from row to row of gradients of logits: the
	// same in all operations of the loss, so that a library has the same products in all of them.
	step, dzRow int
}

func (x *issue) losses(a, w, target *tensor.Tensor) losses {
	b := losses{x: a, w: w, target: target, t: a.Rows(), d: lastDim(a), v: w.Shape[0], size: a.DType.Size()}
	b.blocks = parts(b.v, kernels.LSEBlock)
	b.step = kernels.LossRows(a.DType, b.v)
	b.rows = min(b.t, b.step)
	_, _, b.dzRow = kernels.LossWork(a.DType, b.t, b.v)
	b.z = x.work(b.rows*min(b.v, kernels.LSEBlock), 4)
	b.max, b.sum = x.work(b.rows*b.blocks, 4), x.work(b.rows*b.blocks, 4)
	return b
}

func (b losses) columns(block int) int { return min(kernels.LSEBlock, b.v-block*kernels.LSEBlock) }

// xAt, wAt are where rows of the operands begin.
func (x *issue) xAt(b losses, row int) uint64 { return x.q.Addr(b.x) + uint64(row*b.d*b.size) }
func (x *issue) wAt(b losses, block int) uint64 {
	return x.q.Addr(b.w) + uint64(block*kernels.LSEBlock*b.d*b.size)
}

// numerators is where exponentials go, or lie: rows are row elements apart and blocks of columns block
// elements; at = 0 for none.
type numerators struct {
	at, top    uint64
	row, block int
}

func (e numerators) of(b losses, block int) any {
	if e.at == 0 {
		return nil
	}
	return e.at + uint64(block*e.block*b.size)
}

// logits computes a block of them.
func (x *issue) logits(b losses, from, rows, block int) {
	cols := b.columns(block)
	x.product(b.x.DType, product{a: x.xAt(b, from), b: x.wAt(b, block), y: b.z, m: rows, n: cols, k: b.d,
		aRow: b.d, aCol: 1, bRow: b.d, bCol: 1, yRow: cols, wide: true})
}

// lseBlock reduces a block of logits, and keeps numerators where there is room for them.
func (x *issue) lseBlock(b losses, from, rows, block int, e numerators, hit uint64) {
	less := 0.0
	if b.x.DType == tensor.F16 {
		less = 8
	}
	var top any
	if e.at != 0 {
		top = e.top
	}
	cols := b.columns(block)
	x.logits(b, from, rows, block)
	x.launch(typed("lse_block", b.x), rowwise(rows, cols), b.z, x.q.Addr(b.target)+uint64(4*from), b.max,
		b.sum, hit, nil, e.of(b, block), top,
		rows, cols, e.row, block, b.blocks, x.c.Attr.I[0], b.v, x.c.Attr.F[0], less)
}

// lse computes the sums of exponentials of rows from on, and the logits of their targets; lse and hit are
// those of row 0.
func (x *issue) lse(b losses, from, rows int, e numerators, lse, hit uint64) {
	at := uint64(4 * from)
	for block := range b.blocks {
		x.lseBlock(b, from, rows, block, e, hit+at)
	}
	if b.blocks == 0 { // a vocabulary of nothing
		x.absent = true
		return
	}
	x.launch("lse_blocks", each(rows), nil, nil, b.max, b.sum, nil, lse+at, nil, nil, rows, 0, 0, 0,
		b.blocks, 0, 0, 0.0, 0.0)
}

func (x *issue) nll(lse, hit uint64, target, weight *tensor.Tensor) {
	x.launch("nll", single(256), lse, hit, weight, target, x.out(0), target.Len())
}

// backward carries a chunk of rows back: dz of a block at a time from numerators, into sums over blocks
// and over chunks.
type backward struct {
	lse, dz, dx  uint64 // dx is float32 sums of a chunk, 0 if nobody wants them
	dzRow        int
	weight, seed *tensor.Tensor
	dxOut, dw    *tensor.Tensor
	first, add   bool // the first chunk; dw is added into
	dzBlock      int  // elements from block to block of dz
}

// block adds a block's share of both gradients.
func (x *issue) backBlock(b losses, from, rows, block int, e numerators, g backward) {
	cols, at := b.columns(block), uint64(4*from)
	dz := g.dz + uint64(block*g.dzBlock*b.size)
	x.launch(typed("logits_bwd", b.x), rowwise(rows, cols), x.xAt(b, from), b.w, e.of(b, block), e.top,
		g.lse+at, x.q.Addr(g.weight)+at, g.seed,
		x.q.Addr(b.target)+at, dz, cols, b.d, e.row, g.dzRow, block, b.blocks, x.c.Attr.I[0], x.c.Attr.F[0])
	if g.dx != 0 {
		x.product(b.x.DType, product{a: dz, b: x.wAt(b, block), y: g.dx, m: rows, n: b.d, k: cols,
			aRow: g.dzRow, aCol: 1, bRow: 1, bCol: b.d, yRow: b.d, wide: true, add: block > 0})
	}
	if g.dw != nil {
		x.product(b.x.DType, product{a: dz, b: x.xAt(b, from), y: x.q.Addr(g.dw) +
			uint64(4*block*kernels.LSEBlock*b.d), m: cols, n: b.d, k: rows,
			aRow: 1, aCol: g.dzRow, bRow: 1, bCol: b.d, yRow: b.d, wide: true, add: g.add || !g.first})
	}
}

// finish rounds a chunk's sums to the gradient of activations.
func (x *issue) finish(b losses, from, rows int, g backward) {
	if g.dx != 0 {
		x.launch(typed("narrow_all", b.x), each(rows*b.d), g.dx,
			x.q.Addr(g.dxOut)+uint64(from*b.d*b.size), rows*b.d, 0, 0, 0.0)
	}
}

// gradients are those of linear_ce_bwd, whichever are wanted. Numerators that were not kept are computed
// again.
func (x *issue) gradients(dx, dw *tensor.Tensor) {
	b := x.losses(x.in(0), x.in(1), x.in(2))
	step := b.step
	rows := min(b.t, step)
	g := backward{lse: x.q.Addr(x.in(3)), weight: x.in(4), seed: x.in(5), dxOut: dx, dw: dw,
		add: x.accumulates(1), dzRow: b.dzRow}
	g.dz = x.work(rows*g.dzRow, b.size)
	if dx != nil {
		g.dx = x.work(rows*b.d, 4)
	}
	if b.t == 0 && dw != nil && !g.add {
		x.clear(dw, 0)
	}
	again := numerators{row: g.dzRow, at: g.dz}
	if x.in(6) == nil {
		again.top = x.work(rows*b.blocks, 4)
	}
	hit := x.work(rows, 4)
	for from := 0; from < b.t; from += step {
		rows := min(step, b.t-from)
		g.first = from == 0
		e := again
		if x.in(6) != nil {
			e = numerators{at: x.q.Addr(x.in(6)) + uint64(from*b.v*b.size), row: b.v,
				top: x.q.Addr(x.in(7)) + uint64(from*b.blocks*4), block: kernels.LSEBlock}
		}
		for block := range b.blocks {
			if x.in(6) == nil {
				x.lseBlock(b, from, rows, block, e, hit)
			}
			x.backBlock(b, from, rows, block, e, g)
		}
		x.finish(b, from, rows, g)
	}
}

// lossAndGradients is linear_ce: numerators of a chunk of rows stay in the operand work until its
// gradients have been made of them.
func (x *issue) lossAndGradients() {
	b := x.losses(x.in(0), x.in(1), x.in(2))
	work, weight := x.out(1), x.in(3)
	step := b.step
	lse, hit := x.work(b.t, 4), x.work(b.t, 4)
	e := numerators{at: x.q.Addr(work), row: work.Shape[2], block: work.Shape[1] * work.Shape[2],
		top: x.work(min(b.t, step)*b.blocks, 4)}
	g := backward{lse: lse, weight: weight, seed: x.in(4), dxOut: x.out(2), dw: x.out(3),
		add: x.accumulates(1), dz: e.at, dzRow: e.row, dzBlock: e.block,
		dx: x.work(min(b.t, step)*b.d, 4)}
	if b.t == 0 && !g.add {
		x.clear(g.dw, 0)
	}
	for from := 0; from < b.t; from += step {
		rows := min(step, b.t-from)
		g.first = from == 0
		x.lse(b, from, rows, e, lse, hit)
		for block := range b.blocks {
			x.backBlock(b, from, rows, block, e, g)
		}
		x.finish(b, from, rows, g)
	}
	x.nll(lse, hit, b.target, weight)
}
