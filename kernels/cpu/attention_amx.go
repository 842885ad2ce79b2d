package cpu

import "runtime"

// Attention on tiles: scores and gradients of scores are made in float32 and rounded to bfloat16 as operands
// of the next product, as flash attention does on GPUs.

// rightTiles is a packed right operand: panels of 32 columns, ks tiles along the sum in each half.
type rightTiles struct {
	v  []uint16
	ks int
}

// keyTiles holds a block of keys and values as right operands.
type keyTiles struct {
	kT, vT rightTiles // sums over the width
	k, v   rightTiles // sums over keys
}

// tilesT packs rows of r as columns: the sum runs over their width.
func (w *worker) tilesT(r rowsOf, rows int) rightTiles {
	ks, panels := ceilDiv(r.width, amxSide), ceilDiv(rows, amxSide)
	s := w.arena.u16(panels * 2 * halfLen(ks))
	w.amxRight(s, panels, matrix{v: r.v, ld: r.ld}, 0, rows, r.width)
	return rightTiles{s, ks}
}

// tilesOf packs rows of r as rows: the sum runs over them.
func (w *worker) tilesOf(r rowsOf, rows int) rightTiles {
	ks, panels := ceilDiv(rows, amxSide), ceilDiv(r.width, amxSide)
	s := w.arena.u16(panels * 2 * halfLen(ks))
	w.amxRight(s, panels, matrix{v: r.v, ld: r.ld, trans: true}, 0, r.width, rows)
	return rightTiles{s, ks}
}

// leftTiles is a left operand: an address and strides in bytes as amxArgs has them.
type leftTiles struct {
	v                        []uint16
	stride, half, step, next int
}

// tileRows gives rows of r as a left operand: in place if whole tiles fit, else copied and filled up with zeros.
func (w *worker) tileRows(r rowsOf, rows int) leftTiles {
	v, ld := r.v.h, r.ld
	if rows%amxSide != 0 || r.width%amxSide != 0 {
		ld = roundUp(r.width, amxSide)
		v = w.arena.u16(roundUp(rows, amxSide) * ld)
		clear(v)
		for i := range rows {
			copy(v[i*ld:i*ld+r.width], r.v.h[i*r.ld:])
		}
	}
	return leftTiles{v: v, stride: 2 * ld, half: 32 * ld, step: 64, next: 64 * ld}
}

// tileSpan computes c (+)= x·y for blocks [i0, i1) of 32 rows and panel p of 32 columns, over tiles [k0, k1)
// of the sum.
func (w *worker) tileSpan(c []float32, ldc, i0, i1, p, k0, k1 int, x leftTiles, y rightTiles, acc bool) {
	mark := w.arena.mark()
	t := w.arena.f32(1024)
	args := amxArgs{cfg: allTiles, n: i1 - i0, ks: k1 - k0, a: address(x.v) + uintptr(i0*x.next+k0*x.step),
		aStride: x.stride, aHalf: x.half, aStep: x.step, aNext: x.next,
		b: address(y.v) + uintptr(4*p*halfLen(y.ks)+k0*1024), bHalf: 2 * halfLen(y.ks), c: address(t), mode: amxF32,
		dst: address(c[i0*amxSide*ldc+p*amxSide:]), ldd: ldc * 4}
	args.next = args.b + uintptr(4*halfLen(y.ks))
	if acc {
		args.mode = amxAdd
	}
	if w.k.rowBlocks != nil {
		w.k.rowBlocks(&args)
	} else {
		w.k.blocks(&args)
	}
	runtime.KeepAlive(x.v)
	runtime.KeepAlive(y.v)
	w.arena.release(mark)
}

// tileScores computes the products of tiles of queries with the columns they have.
func (w *worker) tileScores(s []float32, q leftTiles, l extents, k rightTiles) {
	l.byColumns(amxSide, func(c0, c1, i0, i1 int) {
		for p := c0 / amxSide; p < c1/amxSide; p++ {
			w.tileSpan(s, scoreWidth, i0, i1, p, 0, k.ks, q, k, false)
		}
	})
}

func scoreRows(h []uint16) leftTiles {
	return leftTiles{v: h, stride: 2 * scoreWidth, half: 32 * scoreWidth, step: 64, next: 64 * scoreWidth}
}

// tileValues adds the products of rows of scores with rows of v, over the columns that the rows have.
func (w *worker) tileValues(acc []float32, ldc int, s []uint16, l extents, v rightTiles) {
	l.alike(func(i0, i1 int, e extent) {
		for p := range len(v.v) / (2 * halfLen(v.ks)) {
			w.tileSpan(acc, ldc, i0, i1, p, e.lo/amxSide, e.hi/amxSide, scoreRows(s), v, true)
		}
	})
}

// tileGrads adds the gradients of keys and values through one block. They are summed transposed, so that
// probabilities are a right operand: interleaving pairs of rows is cheaper than turning them.
func (w *worker) tileGrads(g *gradState, q, do rowsOf, n int) {
	ks, panels := ceilDiv(n, amxSide), g.ext.end()/amxSide
	for _, x := range []struct {
		h    []uint16
		r    rowsOf
		c    []float32
		wide int
	}{{g.ph, do, g.dv, g.eWide}, {g.dsh, q, g.dk, g.dWide}} {
		m := w.arena.mark()
		clear(x.h[n*scoreWidth : ks*amxSide*scoreWidth])
		y := rightTiles{w.arena.u16(panels * 2 * halfLen(ks)), ks}
		w.k.vnni(y.v, y.v[halfLen(ks):], 2*halfLen(ks), panels, x.h, scoreWidth, ks*16)
		left := w.arena.u16(x.wide / amxSide * 2 * halfLen(ks))
		w.amxLeft(left, x.wide/amxSide, matrix{v: x.r.v, ld: x.r.ld, trans: true}, 0, x.r.width, n)
		g.ext.byColumns(amxSide, func(c0, c1, i0, i1 int) {
			for p := c0 / amxSide; p < c1/amxSide; p++ {
				w.tileSpan(x.c, keyBlock, 0, x.wide/amxSide, p, i0, i1,
					leftTiles{v: left, stride: 64, half: 2 * halfLen(ks), step: 1024, next: 4 * halfLen(ks)}, y, true)
			}
		})
		w.arena.release(m)
	}
}

// turn gives rows of keys from a transposed gradient.
func (w *worker) turn(s []float32, wide, keys int) []float32 {
	t := w.arena.f32(roundUp(keys, 16) * wide)
	for i := 0; i < wide; i += 16 {
		w.k.transpose(t[i:], wide, s[i*keyBlock:], keyBlock, ceilDiv(keys, 16))
	}
	return t
}
