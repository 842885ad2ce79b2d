package cpu

import (
	"github.com/lfactor/lfactor/kernels/tensor"
)

// matrix is an operand of a product: element (i, p), where p runs along the sum, is v[i*ld+p], or v[p*ld+i]
// if trans. Where its rows lie in few bits, v has a dtype only, and they are unpacked into panels.
type matrix struct {
	v     view
	ld    int
	trans bool
	few   *fewBits
}

// read sets dst to the numbers from place p of row i of the tensor on.
func (x matrix) read(w *worker, dst []float32, i, p int) {
	if x.few != nil {
		x.few.read(w, dst, i, p)
		return
	}
	w.k.read(dst, x.v, i*x.ld+p)
}

// result is where a product goes: c[m,n] (+)= a·bᵀ + bias. bias is nil or n float32s; acc only with float32.
type result struct {
	v    view
	ld   int
	acc  bool
	bias []float32
	then *epilogue // nil for none
	// rowBias says that bias has a number for each row, not for each column; of products on tiles alone
	rowBias bool
}

// Blocks of the float32 product. The sum over k is cut into equal parts of at most kcMax: the only block
// size on which bits depend.
const (
	kcMax = 512
	nbMax = 2048 // columns of b packed at a time
	mbMax = 4096 // rows of a packed at a time
	// Products smaller than this many multiplications run on the caller alone: sharing costs some microseconds.
	aloneMax = 1 << 20
	// Products of fewer rows take about as long as of these many: the right operand comes from memory.
	fewCost = 8
)

// gemmPlan is the cutting of one product into blocks.
type gemmPlan struct {
	m, n, k    int
	mb, nb, kc int // sizes of the blocks packed at a time
	pa, pb     []float32
	keeps      bool // panels of b are kept from one product to the next
	low        lowOf
	lowPanels  *lowPanels // of the block, nil for float32
	inPlace    bool       // rows of a are multiplied where they lie
	own        ownSide    // the operand of which each task packs what it multiplies
	aNext      int        // from one packed panel of a to the next
	bNext      int
}

// gemm computes r = a·bᵀ over k. The order of sums does not depend on m.
func (b *Backend) gemm(r result, x, y matrix, m, n, k int) {
	if isOneRow(r, x, y, m, n) && (b.k.pairsOf(x, y) || b.lowFormOf(y, n, k) == lowNone) {
		b.singleRow(r, x, y, n, k)
		return
	}
	if b.skinny(r, x, y, m, n, k) {
		return
	}
	b.blocked(r, x, y, m, n, k)
}

// blocked is gemm that packs both operands.
func (b *Backend) blocked(r result, x, y matrix, m, n, k int) {
	if m == 0 || n == 0 {
		return
	}
	if b.k.amx && x.v.d == tensor.BF16 && y.v.d == tensor.BF16 {
		b.amxGemm(r, x, y, m, n, k)
		return
	}
	defer b.shared.release(b.shared.mark())
	g := b.plan(r, x, y, m, n, k)
	for i0 := 0; i0 < m; i0 += g.mb {
		for j0 := 0; j0 < n; j0 += g.nb {
			b.block(r, x, y, g, i0, j0)
		}
	}
}

// cut is a plan without storage.
func (b *Backend) cut(r result, m, n, k int) *gemmPlan {
	g := &gemmPlan{m: m, n: n, k: k}
	nMax, mMax := nbMax, mbMax
	if r.v.d != tensor.F32 { // the block of c is held in float32 until it is rounded
		nMax, mMax = 1024, 1024
	}
	g.mb = roundUp(ceilDiv(m, ceilDiv(m, mMax)), b.k.mr)
	g.nb = roundUp(ceilDiv(n, ceilDiv(n, nMax)), b.k.nr)
	g.kc = max(1, ceilDiv(k, max(1, ceilDiv(k, kcMax))))
	g.aNext, g.bNext = panelLen(b.k.mr, g.kc), panelLen(b.k.nr, g.kc)
	return g
}

// plan cuts a product into blocks and makes room for the packed parts of both operands.
func (b *Backend) plan(r result, x, y matrix, m, n, k int) *gemmPlan {
	g := b.cut(r, m, n, k)
	g.low = b.lowOf(y, n, k)
	g.inPlace, g.keeps = liesWell(x, m), b.keeps(y)
	if g.low.form != lowNone { // whose tiles read one row where it lies, and several packed
		g.inPlace = m == 1 && !x.trans && x.v.d == tensor.F32 && x.few == nil
	}
	if g.own = g.ownOf(r.then != nil, len(b.team.workers)); !g.inPlace && g.own != ownLeft {
		g.pa = b.shared.f32(g.mb / b.k.mr * g.aNext)
	}
	if !g.keeps && g.own != ownRight {
		g.pb = b.shared.f32(g.nb / b.k.nr * g.bNext)
	}
	return g
}

// panelLen is the storage of a packed panel: transpose writes blocks of 16 rows and 16 columns.
func panelLen(width, kc int) int { return roundUp(roundUp(kc, 16)*width+16, line) }

// block computes one block of at most mb rows and nb columns of the result.
func (b *Backend) block(r result, x, y matrix, g *gemmPlan, i0, j0 int) {
	m, n := min(g.mb, g.m-i0), min(g.nb, g.n-j0)
	defer b.shared.release(b.shared.mark())
	c, ldc := b.target(r, i0, j0, m, n)
	var bias []float32
	if r.bias != nil && !r.acc {
		bias = r.bias[j0 : j0+n]
	}
	if g.k == 0 && !r.acc {
		for i := range m {
			clear(c[i*ldc : i*ldc+n])
			copy(c[i*ldc:], bias)
		}
	}
	for p0 := 0; p0 < g.k; p0 += g.kc {
		kc := min(g.kc, g.k-p0)
		packed := g.low.form != lowNone
		if packed {
			g.lowPanels = b.lowFor(y, g, j0, p0, n, kc)
		} else {
			g.pb, packed = b.panelsFor(y, g, j0, p0)
		}
		b.pack(x, y, g, i0, j0, p0, m, n, kc, j0 == 0 || g.kc < g.k, packed)
		var then func(w *worker, i, j, m, n int)
		if r.then != nil && r.v.d == tensor.F32 && p0+kc == g.k {
			then = func(w *worker, i, j, m, n int) { r.then.rows(w, r.ld, i0+i, i0+i+m, j0+j, j0+j+n) }
		}
		t := multiplied{c: c, ldc: ldc, m: m, n: n, kc: kc, acc: r.acc || p0 > 0, bias: bias, then: then,
			x: x, y: y, i0: i0, j0: j0, p0: p0}
		bias = nil
		b.multiply(g, &t)
	}
	b.round(r, c, ldc, i0, j0, m, n)
}

// target is the float32 block to compute: the result's own or one in scratch.
func (b *Backend) target(r result, i0, j0, m, n int) ([]float32, int) {
	if r.v.d == tensor.F32 {
		return r.v.f[i0*r.ld+j0:], r.ld
	}
	return b.shared.f32(m * n), n
}

// round writes a block that was computed in scratch.
func (b *Backend) round(r result, c []float32, ldc, i0, j0, m, n int) {
	if r.v.d == tensor.F32 {
		return
	}
	b.rows(m, n, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			w.k.write(r.v, (i0+i)*r.ld+j0, c[i*ldc:i*ldc+n])
		}
		if r.then != nil {
			r.then.rows(w, r.ld, i0+from, i0+to, j0, j0+n)
		}
	})
}

const panelsATask = 8

// pack brings a block of both operands into panels. The panels of a are kept while only columns change, and
// those of b where they are packed already.
func (b *Backend) pack(x, y matrix, g *gemmPlan, i0, j0, p0, m, n, kc int, both, packed bool) {
	na, nb := ceilDiv(m, b.k.mr), ceilDiv(n, b.k.nr)
	if packed || g.own == ownRight {
		n, nb = 0, 0
	}
	if !both || g.inPlace || g.own == ownLeft {
		na = 0
	}
	ta := ceilDiv(na, panelsATask)
	b.shareWork(ta+ceilDiv(nb, panelsATask), (m+n)*kc*16, func(w *worker, i int) {
		if p := i * panelsATask; i < ta {
			w.panels(g.pa[p*g.aNext:], g.aNext, b.k.mr, min(panelsATask, na-p), x, i0+p*b.k.mr, g.m, p0, kc)
		} else {
			p = (i - ta) * panelsATask
			w.panels(g.pb[p*g.bNext:], g.bNext, b.k.nr, min(panelsATask, nb-p), y, j0+p*b.k.nr, g.n, p0, kc)
		}
	})
}

// panels packs rows i0 and on of x, which has total rows, into n panels of the given width; missing rows become 0.
func (w *worker) panels(dst []float32, next, width, n int, x matrix, i0, total, p0, kc int) {
	if x.trans {
		w.panelsOfColumns(dst, next, width, n, x, i0, total, p0, kc)
		return
	}
	for p := range n {
		w.panel(dst[p*next:], width, x, i0+p*width, total, p0, kc)
	}
}

// stageRows is how many rows of a half-width operand are widened at a time.
const stageRows = 32

// panelsOfColumns reads whole rows of the tensor, so that each is touched once for all panels.
func (w *worker) panelsOfColumns(dst []float32, next, width, n int, x matrix, i0, total, p0, kc int) {
	valid := min(n*width, total-i0)
	if x.v.d == tensor.F32 && x.few == nil && valid == n*width {
		w.k.spread(dst, next, width, n, x.v.f[p0*x.ld+i0:], x.ld, kc)
		return
	}
	defer w.arena.release(w.arena.mark())
	s := w.arena.zero(stageRows * n * width)
	for p := 0; p < kc; p += stageRows {
		rows := min(stageRows, kc-p)
		for r := range rows {
			x.read(w, s[r*n*width:][:valid], p0+p+r, i0)
		}
		w.k.spread(dst[p*width:], next, width, n, s, n*width, rows)
	}
}

// panel packs rows i0..i0+width of a row-major x into a panel of that width.
func (w *worker) panel(dst []float32, width int, x matrix, i0, total, p0, kc int) {
	valid := min(width, total-i0)
	defer w.arena.release(w.arena.mark())
	for h := 0; h < width; h += 16 {
		direct := 0
		if x.v.d == tensor.F32 && x.few == nil && i0+h+16 <= total && kc >= 16 {
			direct = kc / 16 * 16
			w.k.transpose(dst[h:], width, x.v.f[(i0+h)*x.ld+p0:], x.ld, direct/16)
		}
		if direct < kc {
			w.staged(dst[direct*width+h:], width, x, i0+h, max(0, min(16, valid-h)), p0+direct, kc-direct)
		}
	}
}

// staged transposes rows that are fewer than 16, of another dtype or no multiple of 16 long, through a copy.
func (w *worker) staged(dst []float32, width int, x matrix, i0, rows, p0, kc int) {
	ld := roundUp(kc, 16)
	s := w.arena.f32(16 * ld)
	for i := range rows {
		x.read(w, s[i*ld:i*ld+kc], i0+i, p0)
		clear(s[i*ld+kc : (i+1)*ld])
	}
	clear(s[rows*ld : 16*ld])
	w.k.transpose(dst, width, s, ld, ld/16)
}

// multiplied is what multiply computes: a block of c that is m by n, over kc of the sum.
type multiplied struct {
	c        []float32
	ldc      int
	m, n, kc int
	acc      bool
	bias     []float32 // what rows of c begin with, or nil
	// the operands where they lie; the block begins at row i0, column j0 and place p0 of the sum
	x, y       matrix
	i0, j0, p0 int
	// then, if not nil, sees each part of the block when it is done
	then func(w *worker, i, j, m, n int)
}

// multiply computes a block of c from the packed panels, and those that its tasks pack.
func (b *Backend) multiply(g *gemmPlan, t *multiplied) {
	if g.own != ownNone {
		b.multiplyOwn(g, t)
		return
	}
	mc, nc := b.grid(t.m, t.n, t.then != nil)
	ni, nj := ceilDiv(t.m, mc), ceilDiv(t.n, nc)
	b.shareWork(ni*nj, max(t.m, fewCost)*t.n*t.kc, func(w *worker, at int) {
		i, j := at%ni*mc, at/ni*nc
		m, n := min(mc, t.m-i), min(nc, t.n-j)
		w.part(t, w.left(g, t, i, m), w.panelsFrom(g, j), i, j, m, n)
	})
}

// part computes m by n elements of the block, from row i and column j on.
func (w *worker) part(t *multiplied, x operand, y columns, i, j, m, n int) {
	c, acc := t.c[i*t.ldc+j:], t.acc
	if t.bias != nil {
		for r := range m {
			copy(c[r*t.ldc:][:n], t.bias[j:])
		}
		acc = true
	}
	w.product(c, t.ldc, m, n, t.kc, x, y, acc)
	if t.then != nil {
		t.then(w, i, j, m, n)
	}
}

// left is rows [i, i+m) of the block's left operand.
func (w *worker) left(g *gemmPlan, t *multiplied, i, m int) operand {
	mr := w.k.mr
	if !g.inPlace {
		return operand{v: g.pa[i/mr*g.aNext:], row: 1, step: mr, next: g.aNext}
	}
	o := operand{v: t.x.v.f[(t.i0+i)*t.x.ld+t.p0:], row: t.x.ld, step: 1, next: mr * t.x.ld}
	if full := m / mr; full*mr < m && g.low.form == lowNone {
		o.full, o.rest = full, w.arena.f32(panelLen(mr, t.kc))
		w.panel(o.rest, mr, t.x, t.i0+i+full*mr, g.m, t.p0, t.kc)
	}
	return o
}

// leftLeast is the rows from which packing them costs more than what a task packs of its last ones.
const leftLeast = 256

// liesWell tells whether tiles read the m rows of x where they lie. Rows whose distance is a high power of
// two share the few lines of first-level cache that a tile's rows would need at once.
func liesWell(x matrix, m int) bool {
	return x.v.d == tensor.F32 && !x.trans && m >= leftLeast && x.ld%256 != 0
}

// A task's part of the result that an epilogue follows has rows as long as can be, so that the epilogue
// reads and writes long pieces of its operands (pieces of 1 KiB cost it twice the time of a pass of its
// own), and as many as stay in second-level cache.
const (
	partSize = 192 << 10 // elements
	partMost = 1536      // columns
)

// partCols is the columns of such a part: multiples of tiles and of most heads.
func partCols(n, tile int) int {
	if n <= partMost {
		return roundUp(n, tile)
	}
	return roundUp(ceilDiv(n, ceilDiv(n, partMost)), max(tile, 128))
}

// grid cuts a block into tasks: a few for each thread, so that none waits long for another.
func (b *Backend) grid(m, n int, then bool) (mc, nc int) {
	mr, nr := b.k.mr, b.k.nr
	mc, nc = roundUp(ceilDiv(m, ceilDiv(m, mcMax)), mr), min(8*nr, roundUp(n, nr))
	want := 4 * len(b.team.workers)
	if then {
		nc = partCols(n, nr)
		most := roundUp(max(4*mr, min(ceilDiv(m, want), partSize/nc)), mr)
		return min(mc, taskRows(m, mr, most, len(b.team.workers))), nc
	}
	for ceilDiv(m, mc)*ceilDiv(n, nc) < want && (mc > 4*mr || nc > nr) {
		if mc > 4*mr && mc >= nc {
			mc = roundUp(mc/2, mr)
		} else {
			nc = max(nr, nc/2/nr*nr)
		}
	}
	return mc, nc
}

// taskRows is how many of m rows, in whole groups of unit and at most that many, a task takes, so that
// threads that take tasks one by one have about as many rows.
func taskRows(m, unit, most, threads int) int {
	longest := func(rows int) int { // what the busiest thread has
		before := (m - 1) / rows // whole tasks before the last one
		if before%threads == 0 {
			return before/threads*rows + m - before*rows
		}
		return ceilDiv(before, threads) * rows
	}
	best := most
	for rows := most - unit; rows >= 2*unit && m > most; rows -= unit {
		if longest(rows)*50 < longest(best)*49 { // for 2 % tasks may be smaller
			best = rows
		}
	}
	return best
}

// operand is the left side of a product: element (i, p) at v[i*row+p*step] within groups of mr rows that are
// next apart. row or step is 1.
type operand struct {
	v               []float32
	row, step, next int
	rest            []float32 // the packed group number full, of rows that lie in place and do not fill it; or nil
	full            int
}

// group is the operand from group i on.
func (x operand) group(i, mr int) operand {
	if x.rest != nil && i == x.full {
		return operand{v: x.rest, row: 1, step: mr}
	}
	x.v, x.full = x.v[i*x.next:], x.full-i
	return x
}

// columns is the right side of a product: element (p, j) at v[p*step+j] within groups of nr columns that
// are next apart.
type columns struct {
	v          []float32
	step, next int
	width      int        // columns that matter
	rows       int        // of rowColumns
	low        *lowPanels // in place of v, from a panel on
	first      int
}

// callMax bounds the multiplications of one call of a primitive, so that it takes less than 100 microseconds
// and never holds up a stop of the world.
const callMax = 4 << 20

// product computes c[m,n] (+)= x·y over k on this worker. It reads whole groups of x and y, and writes m by n elements.
func (w *worker) product(c []float32, ldc, m, n, k int, x operand, y columns, acc bool) {
	a := 0
	if acc {
		a = 1
	}
	mr, nr := w.k.mr, w.k.nr
	if y.low != nil {
		w.lowRows(c, ldc, m, n, k, x, y, a)
		return
	}
	if m <= fewMost && w.k.few != nil && x.row == 1 && x.step == mr && y.step == nr && mr*nr*k < callMax {
		w.fewRows(c, ldc, m, n, k, x, y, a)
		return
	}
	atOnce := max(1, callMax/(mr*nr*max(k, 1)))
	for j := 0; j < n; j += nr {
		yj := y.v[j/nr*y.next:]
		if n-j < nr {
			w.edge(c[j:], ldc, m, n-j, k, x, yj, y.step, a)
			continue
		}
		full := m / mr
		for i := 0; i < full; i += atOnce {
			w.tiles(x.v[i*x.next:], x, yj, y.step, c[i*mr*ldc+j:], ldc, k, min(atOnce, full-i), a)
		}
		if i := full * mr; i < m {
			w.lastRows(c[i*ldc+j:], ldc, m-i, k, x.group(full, mr), yj, y.step, a)
		}
	}
}

// lastRows computes a tile of fewer rows than it has: with one that has as many, where there is.
func (w *worker) lastRows(c []float32, ldc, m, k int, x operand, y []float32, step, acc int) {
	if w.k.few != nil && m%2 == 0 && x.row == 1 && x.step == w.k.mr && w.k.mr*w.k.nr*k < callMax {
		w.k.few[m/2-1](x.v, x.step, y, step, c, ldc, k, acc, 0, 0)
		return
	}
	w.edge(c, ldc, m, w.k.nr, k, x, y, step, acc)
}

// tiles multiplies a column of tiles by a panel. Operands that lie by rows have a kernel that needs no packing.
func (w *worker) tiles(v []float32, x operand, y []float32, step int, c []float32, ldc, k, n, acc int) {
	if x.row == 1 {
		w.k.tile(v, x.step, x.next, y, step, c, ldc, w.k.mr*ldc, k, n, acc)
	} else {
		w.k.tileRows(v, x.row, x.next, y, step, c, ldc, w.k.mr*ldc, k, n, acc)
	}
}

// edge computes tiles that reach over the border of c.
func (w *worker) edge(c []float32, ldc, m, n, k int, x operand, y []float32, step, acc int) {
	mr, nr := w.k.mr, w.k.nr
	defer w.arena.release(w.arena.mark())
	t := w.arena.f32(mr * nr)
	for i := 0; i < m; i += mr {
		xi := x.group(i/mr, mr)
		w.tiles(xi.v, xi, y, step, t, nr, k, 1, 0)
		w.place(c[i*ldc:], ldc, min(mr, m-i), n, t, nr, acc)
	}
}

// place sets or adds to m rows of n elements of c those of a tile, whose rows are step apart.
func (w *worker) place(c []float32, ldc, m, n int, t []float32, step, acc int) {
	for r := range m {
		if d := c[r*ldc:][:n]; acc == 1 {
			w.k.add(d, d, t[r*step:r*step+n])
		} else {
			copy(d, t[r*step:])
		}
	}
}
