package cpu

import "github.com/lfactor/lfactor/kernels/tensor"

// oneRow is the rows of a product that is computed without packing the right operand: one, as when a text is
// drawn token by token. It takes the sums of blocked in the same order, so that a row has the same bits
// alone and among others.
const oneRow = 1

// isOneRow tells whether a product is one of one row that reads the right operand where it lies.
func isOneRow(r result, x, y matrix, m, n int) bool {
	return m == oneRow && n > 0 && !x.trans && !y.trans && !r.acc
}

// pairsOf tells whether the products of two operands are those of pairs of bfloat16.
func (k *isa) pairsOf(x, y matrix) bool {
	return k.amx && x.v.d == tensor.BF16 && y.v.d == tensor.BF16
}

// singleRow is gemm for one row of x.
func (b *Backend) singleRow(r result, x, y matrix, n, k int) {
	if b.k.pairsOf(x, y) && b.k.rowTimesHalf == nil { // tiles, whose left operand needs no packing
		r.ld, r.rowBias = 1, true
		b.amxGemm(r, y, x, n, oneRow, k)
		return
	}
	defer b.shared.release(b.shared.mark())
	s := rowSum{r: r, y: y, n: n, k: k, pairs: b.k.pairsOf(x, y)}
	if s.pairs {
		s.h = b.shared.u16(roundUp(k, amxSide))
		clear(s.h[copy(s.h, x.v.h[:k]):])
	} else {
		s.x = b.shared.zero(roundUp(k, b.k.lanes))
		b.k.read(s.x[:k], x.v, 0)
	}
	lanes := b.k.lanes
	b.rows(ceilDiv(n, lanes), lanes*k/4, func(w *worker, from, to int) {
		defer w.arena.release(w.arena.mark())
		s := s
		s.w, s.c, s.t = w, w.arena.f32(lanes), w.arena.f32(lanes)
		for j := from * lanes; j < min(to*lanes, n); j += lanes {
			// the last group shares columns with the one before, where the matrix has as many
			at := max(0, min(j, n-lanes))
			s.group(at)
			w.k.write(r.v, j, s.c[j-at:min(n-at, lanes)])
		}
	})
}

// rowSum is one row times groups of rows of y, on one worker.
type rowSum struct {
	w     *worker
	r     result
	y     matrix
	n, k  int
	x     []float32 // filled up with zeros to whole vectors
	h     []uint16  // in place of x, for pairs of bfloat16
	c, t  []float32 // results of a group, and a part of the sum
	pairs bool
	// of a part of a sum: how far its columns are behind the first ones, and whether another part follows
	behind  int
	follows bool
}

// group sets c to the results of rows j to j+lanes of y, or as many as there are.
func (s *rowSum) group(j int) {
	lanes := s.w.k.lanes
	rows := min(lanes, s.n-j)
	clear(s.c)
	if s.r.bias != nil {
		copy(s.c, s.r.bias[j:j+rows])
	}
	if s.pairs {
		s.pairSum(j, rows)
		return
	}
	kc := sumPart(s.k)
	for p0 := 0; p0 < s.k; p0 += kc {
		t := s.c
		if p0 > 0 || s.r.bias != nil {
			t = s.t
			clear(t)
		}
		s.part(t, j, rows, p0, min(kc, s.k-p0))
		if p0 > 0 || s.r.bias != nil {
			s.w.k.add(s.c, s.c, t)
		}
	}
}

// rowPart is the bytes of each row that are read at a time while the same of what comes next is asked for, and
// widenedMost the columns of half-width rows that are widened at a time: those of all rows stay in first-level cache.
const (
	rowPart     = 2048
	widenedMost = 256
)

// ahead says where what is read after columns [p, p+n) of a group lies: the next group at once where rows
// follow each other and are short, else the same rows further on, or the next group's first columns.
func (s *rowSum) ahead(p, n, size int) (far, row, block int) {
	lanes, ld := s.w.k.lanes, s.y.ld
	line := 64 / size
	switch {
	case ld == s.k && ld*size <= 2*rowPart:
		return lanes*ld + p*lanes - p, line, lanes * line
	case p+n < s.k || s.follows:
		return n, ld, line
	}
	return lanes*ld - p - s.behind, ld, line
}

// part adds columns [p0, p0+kn) to t: whole vectors of float32 where they lie, others through a copy.
func (s *rowSum) part(t []float32, j, rows, p0, kn int) {
	w, ld, lanes := s.w, s.y.ld, s.w.k.lanes
	whole := 0
	if s.y.v.d == tensor.F32 && rows == lanes {
		whole = kn / lanes * lanes
		far, row, block := s.ahead(p0, kn, 4)
		w.k.rowTimes(t, s.x[p0:], s.y.v.f[j*ld+p0:], ld, whole/lanes, far, row, block)
	}
	for at := whole; at < kn; at += widenedMost {
		n := min(widenedMost, kn-at)
		wide := roundUp(n, lanes)
		mark := w.arena.mark()
		y, x := w.arena.zero(lanes*wide), s.x[p0+at:]
		for i := range rows {
			w.k.read(y[i*wide:i*wide+n], s.y.v, (j+i)*ld+p0+at)
		}
		if n < wide { // what follows belongs to the next part
			x = w.arena.zero(wide)
			copy(x, s.x[p0+at:p0+at+n])
		}
		w.k.rowTimes(t, x, y, wide, wide/lanes, 0, 0, 0)
		w.arena.release(mark)
	}
}

// pairSum adds pairs of bfloat16 to c.
func (s *rowSum) pairSum(j, rows int) {
	w, ld, lanes := s.w, s.y.ld, s.w.k.lanes
	whole := 0
	if rows == lanes {
		whole = s.k / amxSide * amxSide
		const most = rowPart / 2
		for p := 0; p < whole; p += most {
			n := min(most, whole-p)
			far, row, block := s.ahead(p, n, 2)
			w.k.rowTimesHalf(s.c, s.h[p:], s.y.v.h[j*ld+p:], ld, n/amxSide, far, row, block)
		}
	}
	for at := whole; at < s.k; at += widenedMost {
		n := min(widenedMost, s.k-at)
		wide := roundUp(n, amxSide)
		mark := w.arena.mark()
		y := w.arena.u16(lanes * wide)
		clear(y)
		for i := range rows {
			copy(y[i*wide:i*wide+n], s.y.v.h[(j+i)*ld+at:])
		}
		w.k.rowTimesHalf(s.c, s.h[at:], y, wide, wide/amxSide, 0, 0, 0)
		w.arena.release(mark)
	}
}
