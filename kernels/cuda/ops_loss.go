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
					top: x.q.Addr(x.out(3)) + uint64(from*b.blocks*4)}
			}
			x.lse(b, from, rows, e, x.q.Addr(x.out(0)), x.q.Addr(x.out(1)))
		}
	},
	kernels.LSEJoin: func(x *issue) {
		l, y := x.in(0), x.out(0)
		x.launch("lse_join", each(y.Len()), l, nil, nil, nil, nil, y, nil, nil, y.Len(), lastDim(l), 0, 0, 0,
			0, 0.0, 0.0)
	},
	kernels.NLL: func(x *issue) { x.nll(x.q.Addr(x.in(0)), x.q.Addr(x.in(1)), x.in(2), x.in(3)) },
	kernels.LinearCEDX: func(x *issue) {
		x.gradients(x.out(0), nil)
	},
	kernels.LinearCEDW:  func(x *issue) { x.gradients(nil, x.out(0)) },
	kernels.LinearCEBwd: func(x *issue) { x.gradients(x.out(0), x.out(1)) },
	kernels.LinearCE:    (*issue).lossAndGradients,
})

// lossBytes is what logits of a chunk of rows may take in float32; lossLeast are the fewest rows.
const (
	lossBytes = 512 << 20
	lossLeast = 256
	lossMost  = 8192
	// lossKept is what numerators of a group of chunks may take: gradients of activations and of weights are products
	// of a group, since those of one chunk are too small to keep a device busy, and read and write all of dw.
	lossKept = 2 << 30
)

// losses is a shard of a vocabulary and the rows that go with it.
type losses struct {
	x, w, target    *tensor.Tensor
	t, d, v, blocks int
	size            int    // bytes of an activation
	z               uint64 // logits of a chunk of rows, float32
	max, sum        uint64 // of rows and blocks of columns
	// step is the rows of a chunk, and row the elements from row to row of logits, a multiple of 8: the same
	// in all operations of the loss, so that a library has the same products in all of them.
	step, row int
	// group is the rows of a group: whole chunks, but for the last.
	group int
}

func (x *issue) losses(a, w, target *tensor.Tensor) losses {
	b := losses{x: a, w: w, target: target, t: a.Rows(), d: lastDim(a), v: w.Shape[0], size: a.DType.Size()}
	b.blocks = parts(b.v, kernels.LSEBlock)
	b.row = parts(b.v, 8) * 8
	b.step = max(lossLeast, min(lossMost, lossBytes/(4*max(b.row, 1))/lossLeast*lossLeast))
	most := max(1, lossKept/(b.size*max(b.row, 1))/b.step)
	chunks := parts(b.t, b.step)
	b.group = parts(chunks, max(1, parts(chunks, most))) * b.step
	rows := min(b.t, b.step)
	b.z = x.work(rows*b.row, 4)
	b.max, b.sum = x.work(rows*b.blocks, 4), x.work(rows*b.blocks, 4)
	return b
}

// xAt is where rows of activations begin.
func (x *issue) xAt(b losses, row int) uint64 { return x.q.Addr(b.x) + uint64(row*b.d*b.size) }

// numerators is where exponentials go, or lie: rows are row elements apart; at = 0 for none.
type numerators struct {
	at, top uint64
	row     int
}

// chunks calls f for the chunks of a group, with the numerators of each.
func (b losses) chunks(from, rows int, e numerators, f func(from, rows int, e numerators)) {
	for at := 0; at < rows; at += b.step {
		own := e
		if e.at != 0 {
			own.at, own.top = e.at+uint64(at*e.row*b.size), e.top+uint64(at*b.blocks*4)
		}
		f(from+at, min(b.step, rows-at), own)
	}
}

// fields are e and top of a launch.
func (e numerators) fields() (at, top any) {
	if e.at == 0 {
		return nil, nil
	}
	return e.at, e.top
}

// exponentials computes logits of a chunk of rows, and of each block of columns a maximum, a sum, and
// numerators where there is room for them.
func (x *issue) exponentials(b losses, from, rows int, e numerators, hit uint64) {
	less := 0.0
	if b.x.DType == tensor.F16 {
		less = 8
	}
	if b.blocks == 0 { // a vocabulary of nothing
		x.absent = true
		return
	}
	x.product(b.x.DType, product{a: x.xAt(b, from), b: b.w, y: b.z, m: rows, n: b.v, k: b.d,
		aRow: b.d, aCol: 1, bRow: b.d, bCol: 1, yRow: b.row, wide: true})
	at, top := e.fields()
	x.launch(typed("lse_block", b.x), x.columnBlocks(b, rows), b.z, x.q.Addr(b.target)+uint64(4*from), b.max,
		b.sum, hit, nil, at, top, rows, b.row, e.row, b.blocks, x.c.Attr.I[0], b.v, x.c.Attr.F[0], less)
}

// columnBlocks is a grid of a block for each row and block of columns.
func (x *issue) columnBlocks(b losses, rows int) grid {
	g := rowwise(rows, parts(min(b.v, kernels.LSEBlock), 8))
	g.y = b.blocks
	return g
}

// lse computes the sums of exponentials of rows from on, and the logits of their targets; lse and hit are
// those of row 0.
func (x *issue) lse(b losses, from, rows int, e numerators, lse, hit uint64) {
	at := uint64(4 * from)
	x.exponentials(b, from, rows, e, hit+at)
	if !x.absent {
		x.launch("lse_blocks", each(rows), nil, nil, b.max, b.sum, nil, lse+at, nil, nil, rows, 0, 0,
			b.blocks, 0, 0, 0.0, 0.0)
	}
}

func (x *issue) nll(lse, hit uint64, target, weight *tensor.Tensor) {
	x.launch("nll", single(256), lse, hit, weight, target, x.out(0), target.Len())
}

// backward carries chunks of rows back: dz of a chunk from numerators, and its products with weights
// and with activations.
type backward struct {
	lse, dz      uint64 // dz has rows as logits have
	weight, seed *tensor.Tensor
	dx, dw       *tensor.Tensor // nil where nobody wants them
	add          bool           // dw is added into
}

// back adds a chunk's share of both gradients.
func (x *issue) back(b losses, from, rows int, e numerators, g backward) {
	at := uint64(4 * from)
	x.launch(typed("logits_bwd", b.x), x.columnBlocks(b, rows), x.xAt(b, from), b.w, e.at, e.top, g.lse+at,
		x.q.Addr(g.weight)+at, g.seed, x.q.Addr(b.target)+at, g.dz, b.v, b.d, e.row, b.row, b.blocks,
		x.c.Attr.I[0], x.c.Attr.F[0])
	if g.dx != nil {
		x.product(b.x.DType, product{a: g.dz, b: b.w, y: x.q.Addr(g.dx) + uint64(from*b.d*b.size), m: rows,
			n: b.d, k: b.v, aRow: b.row, aCol: 1, bRow: 1, bCol: b.d, yRow: b.d})
	}
	if g.dw != nil {
		x.product(b.x.DType, product{a: g.dz, b: x.xAt(b, from), y: g.dw, m: b.v, n: b.d, k: rows, aRow: 1,
			aCol: b.row, bRow: 1, bCol: b.d, yRow: b.d, wide: true, add: g.add || from > 0})
	}
}

// gradients are those of linear_ce_bwd, whichever are wanted. Numerators that were not kept are computed again.
func (x *issue) gradients(dx, dw *tensor.Tensor) {
	b := x.losses(x.in(0), x.in(1), x.in(2))
	rows := min(b.t, b.group)
	g := backward{lse: x.q.Addr(x.in(3)), weight: x.in(4), seed: x.in(5), dx: dx, dw: dw,
		add: x.accumulates(1), dz: x.work(rows*b.row, b.size)}
	if b.t == 0 && dw != nil && !g.add {
		x.clear(dw, 0)
	}
	again := numerators{row: b.row, at: g.dz}
	if x.in(6) == nil {
		again.top = x.work(rows*b.blocks, 4)
	}
	hit := x.work(min(b.t, b.step), 4)
	for from := 0; from < b.t; from += b.group {
		rows, e := min(b.group, b.t-from), again
		if x.in(6) != nil {
			e = numerators{at: x.q.Addr(x.in(6)) + uint64(from*b.v*b.size), row: b.v,
				top: x.q.Addr(x.in(7)) + uint64(from*b.blocks*4)}
		} else {
			b.chunks(from, rows, e, func(from, rows int, e numerators) {
				if !x.absent {
					x.exponentials(b, from, rows, e, hit)
				}
			})
		}
		if x.absent {
			return
		}
		x.back(b, from, rows, e, g)
	}
}

// lossAndGradients is linear_ce: numerators of a chunk of rows stay until its gradients have been made of
// them. The operand work, which is the processor's, is too short for a device's chunks and is not used.
func (x *issue) lossAndGradients() {
	b := x.losses(x.in(0), x.in(1), x.in(2))
	weight, rows := x.in(3), min(b.t, b.group)
	lse, hit := x.work(b.t, 4), x.work(b.t, 4)
	if len(x.c.Out) > 4 {
		lse, hit = x.q.Addr(x.out(4)), x.q.Addr(x.out(5))
	}
	e := numerators{at: x.work(rows*b.row, b.size), row: b.row, top: x.work(rows*b.blocks, 4)}
	g := backward{lse: lse, weight: weight, seed: x.in(4), dx: x.out(2), dw: x.out(3), add: x.accumulates(1), dz: e.at}
	if b.t == 0 && !g.add {
		x.clear(g.dw, 0)
	}
	for from := 0; from < b.t; from += b.group {
		rows := min(b.group, b.t-from)
		b.chunks(from, rows, e, func(from, rows int, e numerators) {
			if !x.absent {
				x.lse(b, from, rows, e, lse, hit)
			}
		})
		if x.absent {
			return
		}
		x.back(b, from, rows, e, g)
	}
	x.nll(lse, hit, b.target, weight)
}
