package cpu

// Attention of few queries, as of a text that is drawn token by token: the queries of all heads that share keys are the
// rows of one tile, which is as high as they are many. Sums are those of other queries, in the same order.

// fewQueries tells whether the queries of a task are such.
func (w *worker) fewQueries(a *attn, t *attnTask) bool {
	return !a.amx && a.mask == nil && a.bias == nil && w.k.few != nil && t.to-t.from <= a.block &&
		(t.to-t.from)*(t.h1-t.h0) <= w.k.mr
}

// packQueries lays the queries of a task out as a packed left operand, the heads one behind the other.
func (w *worker) packQueries(s *attnState) {
	mr, n := w.k.mr, s.t.to-s.t.from
	s.packed = w.arena.zero(panelLen(mr, s.q.Shape[2]))
	defer w.arena.release(w.arena.mark())
	row := w.arena.f32(s.q.Shape[2])
	for h := s.t.h0; h < s.t.h1; h++ {
		q := headOf(s.q, h).at(s.t.q0 + s.t.from)
		for i := range n {
			w.k.read(row, q.v, i*q.ld)
			for p, x := range row {
				s.packed[p*mr+(h-s.t.h0)*n+i] = x
			}
		}
	}
}

// attendFew adds the current keys to the queries of packQueries.
func (w *worker) attendFew(s *attnState) {
	t, mr, nr := s.t, w.k.mr, w.k.nr
	n := t.to - t.from
	s.ext = s.extents(s.ext[:0], t, mr, t.from, n, s.k0, s.keys, &s.rows)
	if s.ext.empty() {
		return
	}
	defer w.arena.release(w.arena.mark())
	e, rows := s.ext[0], n*(t.h1-t.h0)
	tile := w.k.few[(rows+1)/2-1] // a row more than there are has room, and is not read
	for j := e.lo / nr * nr; j < e.hi; j += nr {
		tile(s.packed, mr, s.kT.v[j/nr*s.kT.next:], nr, s.scores[j:], scoreWidth, s.q.Shape[2], 0, 0, 0)
	}
	for r := range rows {
		w.softmaxRow(s, r, t.from+r%n, &s.top[r], &s.sum[r], s.acc[r*s.eWide:][:s.eWide])
	}
	k := min(e.hi, s.v.rows) - e.lo
	left := w.arena.f32(panelLen(mr, k))
	w.panel(left, mr, matrix{v: view{f: s.scores}, ld: scoreWidth}, 0, rows, e.lo, k)
	for j := 0; j < roundUp(s.v.width, nr); j += nr {
		tile(left, mr, s.v.v[j/nr*s.v.next+e.lo*s.v.step:], s.v.step, s.acc[j:], s.eWide, k, 1, 0, 0)
	}
}
