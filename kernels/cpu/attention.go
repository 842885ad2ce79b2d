package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Blocks of attention: scores are computed for some queries by keyBlock keys at a time.
const (
	qBlock    = 120 // a multiple of every level's tile
	qBlockAMX = 128
	qTile     = 24 // of shorter ones, and of those on tiles
	qTileAMX  = 32
	keyBlock  = 512
	// row length of a block of scores; no power of two, to spread over the cache
	scoreWidth = keyBlock + 2*line
	// rangeMax is the most blocks of queries that share one packing of the keys.
	rangeMax = 16
)

// rowsOf is a [rows, heads, width] tensor seen as one head: row i is width elements from v[i*ld].
type rowsOf struct {
	v         view
	ld, width int
}

func headOf(t *tensor.Tensor, h int) rowsOf {
	return rowsOf{viewOf(t).from(min(h*t.Shape[2], t.Len())), t.Shape[1] * t.Shape[2], t.Shape[2]}
}

func (r rowsOf) at(i int) rowsOf { r.v = r.v.from(i * r.ld); return r }

// attn is what the tasks of one call share.
type attn struct {
	q, k, v        *tensor.Tensor
	scale, cap     float32 // cap is 0 for none
	causal, window int
	block          int  // queries of a block of scores
	amx            bool // products on tiles
	step           int  // keys of a block of scores
	mask           *attnMask
	bias           *attnBias // nil for none
	// of each sequence's first query among its keys; nil puts the last query at the last key
	place []int32
	tasks []attnTask
}

// attn of a call whose masks are the operands from mask on.
func (b *Backend) attn(q, k, v *tensor.Tensor, c *kernels.Call, mask int) attn {
	a := attn{q: q, k: k, v: v, scale: float32(c.Attr.F[0]), cap: float32(c.Attr.F[1]), causal: c.Attr.I[0],
		window: c.Attr.I[1], block: qBlock, step: keyBlock}
	if a.mask = newMask(c, mask); a.mask != nil {
		a.step = maskStep
	}
	if b.k.amx && q.DType == tensor.BF16 {
		a.block, a.amx = qBlockAMX, true
	}
	return a
}

// fit makes blocks no longer than the longest sequence takes: what a task clears counts where it has few queries.
func (a *attn) fit(cuQ []int32) {
	longest, tile := 1, qTile
	for i := range max(0, len(cuQ)-1) {
		longest = max(longest, int(cuQ[i+1]-cuQ[i]))
	}
	if a.amx {
		tile = qTileAMX
	}
	a.block = min(a.block, roundUp(longest, tile))
}

// attnTask is a range of queries of one sequence and the heads from h0 to h1, which share the key head g.
type attnTask struct {
	seq            int // the sequence
	q0, q1, k0, k1 int // its rows of queries and keys
	place          int // of its first query among its keys
	from, to       int // queries of the task, counted from q0
	g, h0, h1      int
}

// wide is the width of t's heads, [rows, heads, width], rounded up to whole columns of tiles.
func (k *isa) wide(t *tensor.Tensor) int { return roundUp(t.Shape[2], max(k.nr, amxSide)) }

// visible gives the keys [lo, hi) that queries [i, i+n) of the task's sequence may see, counted from k0.
func (a *attn) visible(t *attnTask, i, n int) (lo, hi int) {
	hi = t.k1 - t.k0
	if a.causal == 1 {
		hi = min(hi, max(0, i+n+t.place))
	}
	if a.window > 0 {
		lo = min(max(0, i+t.place-a.window+1), hi)
	}
	return lo, hi
}

// plan cuts all sequences into tasks of at most that many blocks of queries, those with the most work first.
func (a *attn) plan(cuQ, cuK []int32, blocks int) {
	g := a.k.Shape[1]
	group := a.q.Shape[1] / g
	for s := range len(cuQ) - 1 {
		t := attnTask{seq: s, q0: int(cuQ[s]), q1: int(cuQ[s+1]), k0: int(cuK[s]), k1: int(cuK[s+1])}
		if t.place = (t.k1 - t.k0) - (t.q1 - t.q0); a.place != nil {
			t.place = int(a.place[s])
		}
		for from := 0; from < t.q1-t.q0; from += blocks * a.block {
			t.from, t.to = from, min(from+blocks*a.block, t.q1-t.q0)
			for t.g = range g {
				t.h0, t.h1 = t.g*group, (t.g+1)*group
				a.tasks = append(a.tasks, t)
			}
		}
	}
	slices.SortStableFunc(a.tasks, func(x, y attnTask) int { return cmp.Compare(a.work(&y), a.work(&x)) })
}

// work is the number of multiplications of a task, counting the keys from the first to the last
// that any of its queries sees.
func (a *attn) work(t *attnTask) int {
	lo, hi := a.visible(t, t.from, t.to-t.from)
	return (t.to - t.from) * (hi - lo) * (t.h1 - t.h0) * (a.q.Shape[2] + a.v.Shape[2])
}

// total is the work of all tasks, by which it is decided how many workers are worth waking.
func (a *attn) total() int {
	n := 0
	for i := range a.tasks {
		n += a.work(&a.tasks[i])
	}
	return n
}

// attention is attention over packed sequences: q [t,h,d], k and v [s,g,d], bounds of the sequences
// as running sums. The outputs are o and the logarithm of each row's sum.
func attention(b *Backend, c *kernels.Call) {
	a := b.attn(c.In[0], c.In[1], c.In[2], c, 5)
	b.attend(&a, c)
}

// attend runs the forward for any kind of attention that a holds. Rows beyond the last sequence are
// cleared, as no task has them.
func (b *Backend) attend(a *attn, c *kernels.Call) {
	o, lse := c.Out[0], c.Out[1].F32()
	cuQ, cuK := c.In[3].I32(), c.In[4].I32()
	a.fit(cuQ)
	a.plan(cuQ, cuK, b.queryBlocks(a, cuQ))
	clearBeyond(o, cuQ)
	clearBeyond(c.Out[1], cuQ)
	b.shareWork(len(a.tasks), a.total(), func(w *worker, i int) { w.attend(a, &a.tasks[i], o, lse) })
}

// queryBlocks is how many blocks of queries a task takes: as many as leave several tasks for each thread.
// Blocks do not see each other, so no bit depends on it.
func (b *Backend) queryBlocks(a *attn, cuQ []int32) int {
	if len(b.team.workers) == 1 || len(cuQ) < 2 {
		return rangeMax
	}
	rows := int(cuQ[len(cuQ)-1]-cuQ[0]) * a.k.Shape[1]
	return min(rangeMax, max(1, rows/a.block/(4*len(b.team.workers))))
}

// clearBeyond sets the rows before the first and after the last offset to 0.
func clearBeyond(t *tensor.Tensor, cu []int32) {
	n := len(t.Bytes())
	if t.Shape[0] == 0 || n == 0 {
		return
	}
	row := n / t.Shape[0]
	clear(t.Bytes()[:int(cu[0])*row])
	clear(t.Bytes()[int(cu[len(cu)-1])*row:])
}

// attnState is the state of one task of the forward pass: a running maximum and sum for each query (online
// softmax), in powers of two.
type attnState struct {
	*attn
	t             *attnTask
	eWide         int
	acc, top, sum []float32 // of all queries and heads
	scores        []float32
	half          []uint16 // exponentials as operands on tiles
	ext           extents
	rows          maskRows
	seen          []bool // whether a mask lets a query see any key
	head          int    // of the block of queries
	k0, keys      int    // the block of keys
	kT, v         columns
	tiles         keyTiles  // instead of kT and v
	apart         int       // rows of acc from one block to the next
	packed        []float32 // of few queries: all of them, as a left operand
}

// attend computes the queries of one task against all keys that they see, block by block of keys,
// with a running maximum and sum per row (FlashAttention, arXiv:2205.14135).
func (w *worker) attend(a *attn, t *attnTask, o *tensor.Tensor, lse []float32) {
	n, heads := t.to-t.from, t.h1-t.h0
	s := &attnState{attn: a, t: t, eWide: w.k.wide(a.v)}
	blocks := ceilDiv(n, a.block)
	few := w.fewQueries(a, t)
	if s.apart = a.block; few {
		s.apart = n
		w.packQueries(s)
	}
	s.acc = w.arena.zero((heads*blocks*s.apart + 1) * s.eWide)
	s.top, s.sum = w.arena.f32(heads*n), w.arena.zero(heads*n)
	for i := range s.top {
		s.top[i] = float32(math.Inf(-1))
	}
	// not cleared: each row sets what it may not see to 0, and other rows reach no result
	s.scores = w.arena.f32(a.block * scoreWidth)
	if a.amx {
		s.half = w.arena.u16(a.block * scoreWidth)
	}
	if a.mask != nil {
		s.seen = make([]bool, n)
	}
	lo, hi := a.visible(t, t.from, n)
	// blocks begin at the same keys in every task
	for s.k0 = lo / a.step * a.step; s.k0 < hi; s.k0 += a.step {
		m := w.arena.mark()
		s.keys = min(a.step, hi-s.k0)
		if a.mask != nil && !s.rows.fill(a, t, t.from, t.to, s.k0, s.keys, s.seen) {
			continue
		}
		k, v := headOf(a.k, t.g).at(t.k0+s.k0), headOf(a.v, t.g).at(t.k0+s.k0)
		if a.amx {
			s.tiles = keyTiles{kT: w.tilesT(k, s.keys), v: w.tilesOf(v, s.keys)}
		} else {
			s.kT, s.v = w.packColumns(k, s.keys), w.rowColumns(v, s.keys, heads*n)
		}
		if few {
			w.attendFew(s)
		}
		for j := 0; !few && j < heads*blocks; j++ {
			w.attendBlock(s, j)
		}
		w.arena.release(m)
	}
	for j := range heads * blocks {
		w.finishBlock(s, j, headOf(o, t.h0+j/blocks), lse)
	}
}

// part is the head and the range of queries of block j of a task, counted from the task's start.
func (a *attn) part(t *attnTask, j int) (head, from, n int) {
	blocks := ceilDiv(t.to-t.from, a.block)
	from = j % blocks * a.block
	return j / blocks, from, min(a.block, t.to-t.from-from)
}

// attendBlock adds the current keys to block j of queries.
func (w *worker) attendBlock(s *attnState, j int) {
	t := s.t
	head, from, n := s.part(t, j)
	s.ext = s.extents(s.ext[:0], t, w.tileSide(s.attn), t.from+from, n, s.k0, s.keys, &s.rows)
	if s.ext.empty() {
		return
	}
	defer w.arena.release(w.arena.mark())
	acc := s.acc[j*s.block*s.eWide:]
	q := headOf(s.q, t.h0+head).at(t.q0 + t.from + from)
	if s.amx {
		w.tileScores(s.scores, w.tileRows(q, n), s.ext, s.tiles.kT)
	} else {
		w.rowScores(s.scores, w.operandRows(q, n), s.ext, q.width, s.kT)
	}
	first := head*(t.to-t.from) + from
	s.head = t.h0 + head
	for i := range n {
		w.softmaxRow(s, i, t.from+from+i, &s.top[first+i], &s.sum[first+i], acc[i*s.eWide:][:s.eWide])
	}
	if s.amx {
		w.tileValues(acc, s.eWide, s.half, s.ext, s.tiles.v)
	} else {
		w.rowValues(acc, s.eWide, s.scores, s.ext, s.v)
	}
}

// softmaxRow turns row i of scores, of the given query, into exponentials below a running maximum; what the
// query may not see is exactly 0 as far as its tile's columns go.
func (w *worker) softmaxRow(s *attnState, i, query int, top, sum *float32, acc []float32) {
	e, row := s.ext.of(i, w.tileSide(s.attn)), s.scores[i*scoreWidth:]
	scale := s.scale * log2e
	if s.cap > 0 { // sigmoids in place of scores: see cappedScale
		w.k.gate(row[e.lo:e.hi], row[e.lo:e.hi], 2*s.scale/s.cap, 0)
		scale = s.cappedScale()
	}
	l, h := s.seenBy(s.t, query, e, s.k0, s.keys, &s.rows, row)
	if s.bias != nil {
		scale = log2e
		w.addBias(s.attn, row[l:h], s.head, s.k0+l-query)
	}
	var most, part float32
	if s.amx {
		half := s.half[i*scoreWidth:]
		clearAround(half, e, l, h)
		most, part = w.k.softHalf(half[l:h], row[l:h], scale, *top)
	} else {
		clearAround(row, e, l, h)
		most, part = w.k.soft(row[l:h], row[l:h], scale, *top)
	}
	if most != *top && !math.IsInf(float64(*top), -1) {
		f := exp2(*top - most)
		*sum *= f
		w.k.scale(acc, acc, f)
	}
	*top = most
	*sum += part
}

// cappedScale is the power of two that a sigmoid counts: scores under a soft cap are cap·tanh(u) =
// 2·cap·sigmoid(2u) - cap, of which the constant cancels but in lse.
func (a *attn) cappedScale() float32 { return 2 * a.cap * log2e }

// softCap sets x = most·tanh(scale·x/most), and slope, unless it is nil, to the derivative by x without the
// scale: 1 - tanh².
func (w *worker) softCap(x, slope []float32, scale, most float32) {
	w.k.gate(x, x, 2*scale/most, 0) // tanh u = 2·sigmoid(2u) - 1
	w.k.scale(x, x, 2)
	w.k.shift(x, x, -1)
	if slope != nil {
		w.k.mul(slope, x, x)
		w.k.scale(slope, slope, -1)
		w.k.shift(slope, slope, 1)
	}
	w.k.scale(x, x, most)
}

// finishBlock divides by the sums and writes the block; a query that sees no key has sum 0, so that its lse is -Inf.
func (w *worker) finishBlock(s *attnState, j int, o rowsOf, lse []float32) {
	t := s.t
	head, from, n := s.part(t, j)
	for i := range n {
		r := head*(t.to-t.from) + from + i
		at := t.q0 + t.from + from + i
		row := s.acc[(j*s.apart+i)*s.eWide:][:o.width]
		out := row
		if o.v.d == tensor.F32 {
			out = o.v.f[at*o.ld:][:o.width]
		}
		if lo, hi := s.visible(t, t.from+from+i, 1); lo == hi || s.seen != nil && !s.seen[from+i] {
			clear(out)
		} else {
			w.k.scale(out, row, 1/s.sum[r])
		}
		lse[at*s.q.Shape[1]+t.h0+head] = float32((float64(s.top[r])+log2(s.sum[r]))*math.Ln2 - float64(s.cap))
		w.done(o.v, at*o.ld, out)
	}
}

// packColumns packs rows of r, transposed, as the right side of a product that sums over their width.
func (w *worker) packColumns(r rowsOf, rows int) columns {
	next := panelLen(w.k.nr, r.width)
	s := w.arena.f32(ceilDiv(rows, w.k.nr) * next)
	for j := 0; j < rows; j += w.k.nr {
		w.panel(s[j/w.k.nr*next:], w.k.nr, matrix{v: r.v, ld: r.ld}, j, rows, 0, r.width)
	}
	return columns{v: s, step: w.k.nr, next: next, width: rows}
}

// packFor is the rows of a product from which on it pays to pack its right side for them.
const packFor = 48

// rowColumns gives rows of r as the right side of a product that sums over them and is as high as said: in
// place if their width fits and a row of a tile's columns is longer than a line of cache, so that there is
// time to bring the next one, or where the product is low. Else they are packed: a head's rows are a power of
// two apart as a rule, and a first-level cache has room for few of them.
func (w *worker) rowColumns(r rowsOf, rows, high int) columns {
	nr := w.k.nr
	if r.v.d == tensor.F32 && r.width%nr == 0 && (nr > line || r.ld == nr || high < packFor) {
		return columns{v: r.v.f, step: r.ld, next: nr, width: r.width, rows: rows}
	}
	next, panels := panelLen(nr, rows), ceilDiv(r.width, nr)
	s := w.arena.f32(panels * next)
	w.panelsOfColumns(s, next, nr, panels, matrix{v: r.v, ld: r.ld, trans: true}, 0, r.width, 0, rows)
	return columns{v: s, step: nr, next: next, width: r.width, rows: rows}
}

// operandRows gives rows of r as the left side of a product: in place if their number fits.
func (w *worker) operandRows(r rowsOf, rows int) operand {
	if r.v.d == tensor.F32 && rows%w.k.mr == 0 {
		return operand{v: r.v.f, row: r.ld, step: 1, next: w.k.mr * r.ld}
	}
	return operand{v: w.copyRows(r, rows, roundUp(rows, w.k.mr), r.width), row: r.width, step: 1,
		next: w.k.mr * r.width}
}

// copyRows copies rows to float32, with zero rows and columns up to the sizes asked for.
func (w *worker) copyRows(r rowsOf, rows, tall, wide int) []float32 {
	s := w.arena.f32(tall * wide)
	for i := range rows {
		w.k.read(s[i*wide:i*wide+r.width], r.v, i*r.ld)
		clear(s[i*wide+r.width : (i+1)*wide])
	}
	clear(s[rows*wide:])
	return s
}
