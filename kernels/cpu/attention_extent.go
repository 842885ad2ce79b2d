package cpu

// extent is a range of columns of a block of scores: what some query of a tile of rows may see, in whole
// tiles. Other tiles are neither computed nor read.
type extent struct{ lo, hi int }

// extents are those of the tiles of one block of queries, from its first query on.
type extents []extent

// tileSide is the rows, and the columns, that extents are rounded to: a tile is a left operand of products,
// and turned round one of those of the gradients of keys.
func (w *worker) tileSide(a *attn) int {
	if a.amx {
		return amxSide
	}
	return w.k.mr
}

// extents appends the extents of queries [from, from+n) of a task in the block of keys at k0.
func (a *attn) extents(l extents, t *attnTask, side, from, n, k0, keys int, rows *maskRows) extents {
	for i := 0; i < n; i += side {
		lo, hi := a.visible(t, from+i, min(side, n-i))
		if a.mask != nil {
			lo, hi = rows.bounds(from+i, from+min(i+side, n), k0)
		}
		if lo, hi = max(lo-k0, 0), min(hi-k0, keys); lo >= hi {
			l = append(l, extent{})
		} else {
			l = append(l, extent{lo / side * side, roundUp(hi, side)})
		}
	}
	return l
}

// seenBy gives the columns [l, h) of a query's row of scores, within the extent of its tile, that it may
// see. Between them it sets the scores that a mask hides to -Inf, which exponentials make exactly 0.
func (a *attn) seenBy(t *attnTask, query int, e extent, k0, keys int, rows *maskRows, row []float32) (l, h int) {
	l, h = a.visible(t, query, 1)
	l, h = max(l-k0, e.lo), min(h-k0, keys)
	if a.mask != nil {
		l, h = rows.hide(query, row)
	}
	if l >= h {
		return e.hi, e.hi
	}
	return l, h
}

// of is the extent of row i.
func (l extents) of(i, side int) extent { return l[i/side] }

// empty tells whether no query of the rows sees any key.
func (l extents) empty() bool {
	for _, e := range l {
		if e.lo < e.hi {
			return false
		}
	}
	return true
}

// end is the first column that no tile has.
func (l extents) end() int {
	n := 0
	for _, e := range l {
		n = max(n, e.hi)
	}
	return n
}

// alike calls f for the longest runs of tiles [i0, i1) with the same extent.
func (l extents) alike(f func(i0, i1 int, e extent)) {
	for i := 0; i < len(l); {
		j := i + 1
		for j < len(l) && l[j] == l[i] {
			j++
		}
		if l[i].lo < l[i].hi {
			f(i, j, l[i])
		}
		i = j
	}
}

// seeing is the first run of tiles [i0, i1) from tile i on that have some of columns [c, d).
func (l extents) seeing(i, c, d int) (i0, i1 int) {
	for i0 = i; i0 < len(l) && (l[i0].lo >= d || l[i0].hi <= c); i0++ {
	}
	for i1 = i0; i1 < len(l) && l[i1].lo < d && l[i1].hi > c; i1++ {
	}
	return i0, i1
}

// byColumns calls f for columns [c0, c1), whole steps, and the tiles [i0, i1) that have some of each of their steps.
func (l extents) byColumns(step int, f func(c0, c1, i0, i1 int)) {
	end := l.end()
	for c := 0; c < end; c += step {
		i0, i1 := l.seeing(0, c, c+step)
		if i1 == len(l) || i0 == i1 { // one run: take what follows along
			d := c + step
			for ; d < end; d += step {
				if j0, j1 := l.seeing(0, d, d+step); j0 != i0 || j1 != i1 {
					break
				}
			}
			if i0 < i1 {
				f(c, d, i0, i1)
			}
			c = d - step
			continue
		}
		for ; i0 < i1; i0, i1 = l.seeing(i1, c, c+step) {
			f(c, c+step, i0, i1)
		}
	}
}

// rowScores computes the products of tiles of queries with the columns they have. An extent may reach over
// the last panel of columns, which ends at no multiple of the tile's side.
func (w *worker) rowScores(s []float32, q operand, l extents, width int, k columns) {
	mr, nr := w.k.mr, w.k.nr
	packed := roundUp(k.width, nr)
	l.byColumns(nr, func(c0, c1, i0, i1 int) {
		if c1 = min(c1, packed); c0 >= c1 {
			return
		}
		x, y := q, k
		x.v, y.v = x.v[i0*x.next:], y.v[c0/nr*y.next:]
		w.product(s[i0*mr*scoreWidth+c0:], scoreWidth, (i1-i0)*mr, c1-c0, width, x, y, false)
	})
}

// rowValues adds the products of rows of scores with rows of v, over the columns that the rows have.
func (w *worker) rowValues(acc []float32, ld int, s []float32, l extents, v columns) {
	mr := w.k.mr
	l.alike(func(i0, i1 int, e extent) {
		x := operand{v: s[i0*mr*scoreWidth+e.lo:], row: scoreWidth, step: 1, next: mr * scoreWidth}
		y := v
		y.v = y.v[e.lo*y.step:]
		w.product(acc[i0*mr*ld:], ld, (i1-i0)*mr, roundUp(v.width, w.k.nr), min(e.hi, v.rows)-e.lo, x, y, true)
	})
}

// columnValues adds the products of columns of n rows of scores with those rows of v, over the rows that
// have the columns.
func (w *worker) columnValues(acc []float32, ld int, s []float32, n int, l extents, v columns) {
	mr := w.k.mr
	l.byColumns(mr, func(c0, c1, i0, i1 int) {
		x := operand{v: s[i0*mr*scoreWidth+c0:], row: 1, step: scoreWidth, next: mr}
		y := v
		y.v = y.v[i0*mr*y.step:]
		w.product(acc[c0*ld:], ld, c1-c0, roundUp(v.width, w.k.nr), min(i1*mr, n)-i0*mr, x, y, true)
	})
}
