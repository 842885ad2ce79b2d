package cpu

// ownSide is an operand whose panels each task packs for itself, into its second-level cache. What all tasks
// share is written to memory and read again by other cores; with two threads that took twice the time of
// packing alone, 8 % of a step's products.
type ownSide byte

const (
	ownNone ownSide = iota
	ownLeft
	ownRight
)

// ownTail is the rows or columns of the smallest tasks.
const ownTail = 48

// ownLeast is the rows from which it is not felt that a task's first tile of a panel waits for it.
const ownLeast = 128

// ownOf is the larger of the operands that are packed for this product alone: each of its panels is then
// packed once, by the task that multiplies it with all of the other operand. Epilogues want long rows, so
// that columns are not dealt out before them.
func (g *gemmPlan) ownOf(then bool, threads int) ownSide {
	left, right := !g.inPlace && g.low.form == lowNone, !g.keeps && g.low.form == lowNone
	switch {
	case left && (then || !right || g.m >= g.n && (threads == 1 || g.m >= 4*threads*ownLeast)):
		return ownLeft
	case right && !then && g.n > g.m:
		return ownRight
	}
	return ownNone
}

// multiplyOwn is multiply where each task packs its part of one operand.
func (b *Backend) multiplyOwn(g *gemmPlan, t *multiplied) {
	_, nc := b.grid(t.m, t.n, t.then != nil)
	if g.own == ownLeft {
		cuts := b.cuts(t.m, b.k.mr, min(ownRows, partSize/nc))
		if t.then == nil {
			nc = t.n
		}
		b.shareWork(len(cuts)-1, t.m*t.n*t.kc, func(w *worker, at int) {
			w.ownLeft(g, t, cuts[at], cuts[at+1], nc)
		})
		return
	}
	mc := roundUp(ceilDiv(t.m, ceilDiv(t.m, ownRows)), b.k.mr)
	cuts := b.cuts(t.n, b.k.nr, panelsATask*b.k.nr)
	b.shareWork(len(cuts)-1, t.m*t.n*t.kc, func(w *worker, at int) {
		w.ownRight(g, t, cuts[at], cuts[at+1], mc)
	})
}

// cuts deals n rows or columns out to tasks of whole units, at most that many each. With several threads
// tasks become smaller towards the end, so that no thread has long to wait for another's last one.
func (b *Backend) cuts(n, unit, most int) []int {
	threads, least := len(b.team.workers), roundUp(ownTail, unit)
	most = max(least, most/unit*unit)
	l := []int{0}
	for at := 0; at < n; {
		size := most
		if threads > 1 {
			size = max(least, min(most, roundUp((n-at)/(2*threads), unit)))
		}
		at = min(n, at+size)
		l = append(l, at)
	}
	return l
}

// ownLeft packs rows i to end of the block's left operand, and multiplies them with all columns, nc at a time.
func (w *worker) ownLeft(g *gemmPlan, t *multiplied, i, end, nc int) {
	m, mr := end-i, w.k.mr
	v := w.arena.f32(ceilDiv(m, mr) * g.aNext)
	w.panels(v, g.aNext, mr, ceilDiv(m, mr), t.x, t.i0+i, g.m, t.p0, t.kc)
	x := operand{v: v, row: 1, step: mr, next: g.aNext}
	for j := 0; j < t.n; j += nc {
		w.part(t, x, w.panelsFrom(g, j), i, j, m, min(nc, t.n-j))
	}
}

// ownRight packs columns j to end of the block's right operand, and multiplies them with all rows, mc at a time.
func (w *worker) ownRight(g *gemmPlan, t *multiplied, j, end, mc int) {
	n, nr := end-j, w.k.nr
	v := w.arena.f32(ceilDiv(n, nr) * g.bNext)
	w.panels(v, g.bNext, nr, ceilDiv(n, nr), t.y, t.j0+j, g.n, t.p0, t.kc)
	y := columns{v: v, step: nr, next: g.bNext}
	for i := 0; i < t.m; i += mc {
		m := min(mc, t.m-i)
		mark := w.arena.mark()
		w.part(t, w.left(g, t, i, m), y, i, j, m, n)
		w.arena.release(mark)
	}
}

// panelsFrom is the block's packed columns from j on.
func (w *worker) panelsFrom(g *gemmPlan, j int) columns {
	if g.lowPanels != nil {
		return columns{low: g.lowPanels, first: j / w.k.nr}
	}
	return columns{v: g.pb[j/w.k.nr*g.bNext:], step: w.k.nr, next: g.bNext}
}
