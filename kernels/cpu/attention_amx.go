package cpu

import "runtime"

// Attention on tiles: scores and gradients of scores are made in float32 and rounded to bfloat16 as operands of the next
// product, as flash attention does on GPUs.

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
	s := w.arena.u16(panels * ks * 2 * tileHalf)
	w.amxRight(s, panels, matrix{v: r.v, ld: r.ld}, 0, rows, r.width)
	return rightTiles{s, ks}
}

// tilesOf packs rows of r as rows: the sum runs over them.
func (w *worker) tilesOf(r rowsOf, rows int) rightTiles {
	ks, panels := ceilDiv(rows, amxSide), ceilDiv(r.width, amxSide)
	s := w.arena.u16(panels * ks * 2 * tileHalf)
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
	return leftTiles{v, 2 * ld, 32 * ld, 64, 64 * ld}
}

// tileProduct computes c (+)= x·y for blocks by panels of 32, over the first ks tiles of the sum.
func (w *worker) tileProduct(c []float32, ldc, blocks, panels, ks int, x leftTiles, y rightTiles, acc bool) {
	defer w.arena.release(w.arena.mark())
	t := w.arena.f32(1024)
	args := amxArgs{cfg: allTiles, ks: ks, a: address(x.v), aStride: x.stride, aHalf: x.half, aStep: x.step, aNext: x.next,
		bHalf: y.ks * 1024, c: address(t), mode: amxF32, ldd: ldc * 4}
	if acc {
		args.mode = amxAdd
	}
	for p := range panels {
		args.n, args.b, args.dst = blocks, address(y.v)+uintptr(p*y.ks*2048), address(c[p*amxSide:])
		args.next = args.b + uintptr(y.ks*2048)
		w.k.blocks(&args)
	}
	runtime.KeepAlive(x.v)
	runtime.KeepAlive(y.v)
}

// tileScores computes the products of n rows of r with the first end columns of y.
func (w *worker) tileScores(s []float32, r rowsOf, n, end int, y rightTiles) {
	defer w.arena.release(w.arena.mark())
	w.tileProduct(s, scoreWidth, ceilDiv(n, amxSide), end/amxSide, y.ks, w.tileRows(r, n), y, false)
}

// halfRows rounds n rows of scores to bfloat16, with zero rows up to a multiple of 32.
func (w *worker) halfRows(s []float32, n, end int) []uint16 {
	h := w.arena.u16(roundUp(n, amxSide) * scoreWidth)
	for i := range n {
		w.k.toBF16(h[i*scoreWidth:][:end], s[i*scoreWidth:])
	}
	clear(h[n*scoreWidth:])
	return h
}

func scoreRows(h []uint16) leftTiles {
	return leftTiles{h, 2 * scoreWidth, 32 * scoreWidth, 64, 64 * scoreWidth}
}

// tileValues adds the values weighted with probabilities.
func (w *worker) tileValues(acc []float32, ldc int, p []float32, n, end int, v rightTiles, begun bool) {
	x := scoreRows(w.halfRows(p, n, end))
	w.tileProduct(acc, ldc, ceilDiv(n, amxSide), len(v.v)/(v.ks*2*tileHalf), end/amxSide, x, v, begun)
}

// tileGrads adds the gradients through one block. Those of keys and values are summed transposed, so that probabilities
// are a right operand: interleaving pairs of rows is cheaper than turning them.
func (w *worker) tileGrads(g *gradState, q, do rowsOf, dq []float32, n, end int) {
	p, ds := w.halfRows(g.p, n, end), w.halfRows(g.dp, n, end)
	if g.t.queries {
		w.tileProduct(dq, g.dWide, ceilDiv(n, amxSide), g.dWide/amxSide, end/amxSide, scoreRows(ds), g.tiles.k, true)
	}
	if !g.t.keys {
		return
	}
	for _, x := range []struct {
		h    []uint16
		r    rowsOf
		c    []float32
		wide int
	}{{p, do, g.dv, g.eWide}, {ds, q, g.dk, g.dWide}} {
		m := w.arena.mark()
		ks, panels := ceilDiv(n, amxSide), end/amxSide
		y := rightTiles{w.arena.u16(panels * ks * 2 * tileHalf), ks}
		w.k.vnni(y.v, y.v[ks*tileHalf:], 2*ks*tileHalf, panels, x.h, scoreWidth, ks*16)
		left := w.arena.u16(x.wide * ks * amxSide)
		w.amxLeft(left, x.wide/amxSide, matrix{v: x.r.v, ld: x.r.ld, trans: true}, 0, x.r.width, n)
		w.tileProduct(x.c, keyBlock, x.wide/amxSide, panels, ks, leftTiles{left, 64, ks * 1024, 1024, ks * 2048}, y, true)
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
