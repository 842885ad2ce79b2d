package cpu

// fewMost is the rows of a product up to which each tile asks for a part of the panel that the next tiles
// multiply: with so few rows the right operand takes longer to come from memory than one tile takes.
const fewMost = 96

// fewRows is product for few packed rows and packed columns: tiles are as high as there are rows, and memory
// is read while they are computed. Sums are those of product, in the same order.
func (w *worker) fewRows(c []float32, ldc, m, n, k int, x operand, y columns, acc int) {
	mr, nr := w.k.mr, w.k.nr
	tiles := ceilDiv(m, mr)
	step := ceilDiv(4*nr, tiles)
	for j := 0; j < n; j += nr {
		panel := y.v[j/nr*y.next:]
		if n-j < nr {
			w.edge(c[j:], ldc, m, n-j, k, x, panel, y.step, acc)
			return
		}
		for t := range tiles {
			rows, far := min(mr, m-t*mr), y.next+t*step*k/4
			left, d := x.v[t*x.next:], c[t*mr*ldc+j:]
			if rows%2 == 0 {
				w.k.few[rows/2-1](left, x.step, panel, y.step, d, ldc, k, acc, far, step)
			} else {
				w.oddRows(d, ldc, rows, k, left, x.step, panel, acc, far, step)
			}
		}
	}
}

// oddRows is a tile of an odd number of rows: that of one more, which is dropped.
func (w *worker) oddRows(c []float32, ldc, rows, k int, x []float32, xStep int, y []float32, acc, far, step int) {
	nr := w.k.nr
	defer w.arena.release(w.arena.mark())
	t := w.arena.f32((rows + 1) * nr)
	w.k.few[rows/2](x, xStep, y, nr, t, nr, k, 0, far, step)
	for r := range rows {
		if d := c[r*ldc:][:nr]; acc == 1 {
			w.k.add(d, d, t[r*nr:(r+1)*nr])
		} else {
			copy(d, t[r*nr:])
		}
	}
}
