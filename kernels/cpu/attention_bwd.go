package cpu

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// attnGrad is what the tasks of one backward pass share.
type attnGrad struct {
	attn
	do, o, dq, dk, dv *tensor.Tensor
	lse               []float32
	delta             []float32 // Σ do·o of every query and head
}

// gradTask is a part of one sequence and key head: blocks of keys [k0, k1) with all its blocks of queries,
// of which there are blocks with heads counted through. wave is nil where the task has all keys.
type gradTask struct {
	*attnTask
	k0, k1, blocks int
	wave           *gradWave
}

// gradWave is what the tasks of one sequence and key head share whose keys are shared out: the gradients of
// queries, which blocks of keys add to in the order of keys, as a task that has all keys does.
type gradWave struct {
	dq   []float32
	done []atomic.Int64 // by block of keys, how many blocks of queries have its part
}

// await returns when the block of keys before k has added its part to block j of queries. Whoever computes
// that one began earlier and waits for nobody who comes later.
func (g *gradWave) await(k, j int) {
	if g == nil || k == 0 {
		return
	}
	for s := newSpin(spinTime); g.done[k-1].Load() <= int64(j); {
		if !s.more() {
			time.Sleep(spinTime)
		}
	}
}

// pass tells that block k of keys, and all before it, have added their parts to n blocks of queries.
func (g *gradWave) pass(k, n int) {
	if g != nil {
		g.done[k].Store(int64(n))
	}
}

// attentionBwd sums over blocks of keys, heads and blocks of queries in that order, whatever the number of threads.
// A task is a sequence and key head, or a block of keys of those that would leave some threads without work.
func attentionBwd(b *Backend, c *kernels.Call) {
	b.attendBwd(b.attn(c.In[1], c.In[2], c.In[3], c, 8), c)
}

// attendBwd runs the backward for any kind of attention. delta is the dot product of do and o per
// row, which stands for the sum over all keys in the softmax's gradient.
func (b *Backend) attendBwd(at attn, c *kernels.Call) {
	cuQ, cuK := c.In[6].I32(), c.In[7].I32()
	a := &attnGrad{do: c.In[0], o: c.In[4], lse: c.In[5].F32(), dq: c.Out[0], dk: c.Out[1], dv: c.Out[2]}
	a.attn = at
	a.fit(cuQ)
	a.plan(cuQ, cuK, math.MaxInt32/a.block)
	a.delta = b.rowDots(a.do, a.o)
	clearBeyond(a.dq, cuQ)
	clearBeyond(a.dk, cuK)
	clearBeyond(a.dv, cuK)
	a.clearUnqueried(cuQ, cuK)
	tasks := a.gradTasks(b)
	b.shareWork(len(tasks), 3*a.total(), func(w *worker, i int) { w.attendBwd(a, &tasks[i]) })
}

// gradTasks cuts by keys the tasks that would leave threads without work: those with more than a thread's
// share of all work, and the smallest, where they do not go round.
func (a *attnGrad) gradTasks(b *Backend) []gradTask {
	whole := len(a.tasks) / len(b.team.workers) * len(b.team.workers)
	var l []gradTask
	for i := range a.tasks {
		t := &a.tasks[i]
		keys := ceilDiv(t.k1-t.k0, a.step)
		task := gradTask{attnTask: t, k0: 0, k1: keys, blocks: (t.h1 - t.h0) * ceilDiv(t.to-t.from, a.block), wave: nil}
		if keys < 2 || i < whole && a.work(t)*len(b.team.workers) <= a.total() {
			l = append(l, task)
			continue
		}
		task.wave = &gradWave{dq: b.shared.zero(task.blocks * a.block * b.k.wide(a.q)),
			done: make([]atomic.Int64, keys)}
		for k := range keys {
			task.k0, task.k1 = k, k+1
			l = append(l, task)
		}
	}
	return l
}

// clearUnqueried sets the gradients of keys whose sequence has no query to 0: no task does.
func (a *attnGrad) clearUnqueried(cuQ, cuK []int32) {
	for s := range len(cuQ) - 1 {
		if cuQ[s] == cuQ[s+1] {
			for _, t := range []*tensor.Tensor{a.dk, a.dv} {
				row := tensor.Len(t.Shape[1:]) * t.DType.Size()
				clear(t.Bytes()[int(cuK[s])*row : int(cuK[s+1])*row])
			}
		}
	}
}

// gradState is the state of one task of the backward pass.
type gradState struct {
	*attnGrad
	t            *gradTask
	dWide, eWide int
	dq           []float32 // all queries and heads of the task, or of its wave
	dk, dv       []float32 // one block of keys; transposed on tiles
	p, dp        []float32 // one block of probabilities and their gradient
	ph, dsh      []uint16  // the same as operands on tiles
	ext          extents
	rows         maskRows
	k0, keys     int
	kT, vT       columns
	keyRows      columns
	tiles        keyTiles // instead of these
}

// attendBwd computes the gradients of one run of keys. Several such runs add to the same queries:
// they pass them on in the order of the keys, so that the sums have the same bits whatever the threads.
func (w *worker) attendBwd(a *attnGrad, t *gradTask) {
	g := &gradState{attnGrad: a, t: t, dWide: w.k.wide(a.q), eWide: w.k.wide(a.v)}
	if t.wave == nil {
		g.dq = w.arena.zero(t.blocks * a.block * g.dWide)
	} else {
		g.dq = t.wave.dq
		defer t.wave.pass(t.k0, math.MaxInt) // after a panic nobody waits for this one
	}
	g.p, g.dp = w.arena.f32(a.block*scoreWidth), w.arena.f32(a.block*scoreWidth)
	if g.amx {
		g.ph, g.dsh = w.arena.u16(a.block*scoreWidth), w.arena.u16(a.block*scoreWidth)
	}
	tall := roundUp(keyBlock, w.k.mr)
	g.dk, g.dv = w.arena.f32(tall*g.dWide), w.arena.f32(tall*g.eWide)
	for k := t.k0; k < t.k1; k++ {
		m := w.arena.mark()
		w.gradKeys(g, k*a.step)
		w.arena.release(m)
	}
	t.wave.await(t.k0, t.blocks-1)
	if t.k1*a.step < t.attnTask.k1-t.attnTask.k0 {
		return
	}
	for j := range t.blocks {
		head, from, n := a.part(t.attnTask, j)
		w.writeRows(headOf(a.dq, t.h0+head).at(t.q0+from), g.dq[j*a.block*g.dWide:], g.dWide, n)
	}
}

// gradKeys adds the gradients through the block of keys that begins at k0.
func (w *worker) gradKeys(g *gradState, k0 int) {
	t := g.t
	g.k0, g.keys = k0, min(g.step, t.attnTask.k1-t.attnTask.k0-k0)
	at := t.attnTask.k0 + k0
	key, value := headOf(g.k, t.g).at(at), headOf(g.v, t.g).at(at)
	if g.amx { // turned: all columns of a row
		clear(g.dk)
		clear(g.dv)
	} else {
		clear(g.dk[:roundUp(g.keys, w.k.mr)*g.dWide])
		clear(g.dv[:roundUp(g.keys, w.k.mr)*g.eWide])
	}
	if g.mask == nil || g.rows.fill(&g.attn, t.attnTask, 0, t.to, k0, g.keys, nil) {
		if g.amx {
			g.tiles = keyTiles{kT: w.tilesT(key, g.keys), vT: w.tilesT(value, g.keys), k: w.tilesOf(key, g.keys)}
		} else {
			g.kT, g.vT, g.keyRows = w.packColumns(key, g.keys), w.packColumns(value, g.keys),
				w.rowColumns(key, g.keys, (t.h1-t.h0)*t.to)
		}
		for j := range t.blocks {
			w.gradBlock(g, j, g.dq[j*g.block*g.dWide:])
			t.wave.await(t.k0, j)
			t.wave.pass(t.k0, j+1)
		}
	}
	w.writeKeys(g, headOf(g.attnGrad.dk, t.g).at(at), g.dk, g.dWide)
	w.writeKeys(g, headOf(g.attnGrad.dv, t.g).at(at), g.dv, g.eWide)
}

// writeKeys writes the gradient of a block of keys.
func (w *worker) writeKeys(g *gradState, r rowsOf, s []float32, wide int) {
	if g.amx {
		s = w.turn(s, wide, g.keys)
	}
	w.writeRows(r, s, wide, g.keys)
}

// writeRows stores rows of float32, which lie wide apart, into rows of a head.
func (w *worker) writeRows(r rowsOf, s []float32, wide, rows int) {
	for i := range rows {
		w.k.write(r.v, i*r.ld, s[i*wide:i*wide+r.width])
	}
}

// rowDots is Σ do·o of every query and head.
func (b *Backend) rowDots(do, o *tensor.Tensor) []float32 {
	x, y, h, e := viewOf(do), viewOf(o), do.Shape[1], do.Shape[2]
	s := b.shared.f32(do.Shape[0] * h)
	b.rows(do.Shape[0], h*e, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			if k := w.k.half; k != nil && x.d == tensor.BF16 {
				for j := i * h; j < (i+1)*h; j++ {
					s[j] = k.dot(x.h[j*e:(j+1)*e], y.h[j*e:(j+1)*e])
				}
				continue
			}
			m := w.arena.mark()
			p, q := w.in(x, i*h*e, h*e), w.in(y, i*h*e, h*e)
			for j := range h {
				s[i*h+j] = w.k.dot(p[j*e:(j+1)*e], q[j*e:(j+1)*e])
			}
			w.arena.release(m)
		}
	})
	return s
}

// gradBlock adds the gradients through block j of queries and the current block of keys.
func (w *worker) gradBlock(g *gradState, j int, dq []float32) {
	head, from, n := g.part(g.t.attnTask, j)
	g.ext = g.extents(g.ext[:0], g.t.attnTask, w.tileSide(&g.attn), from, n, g.k0, g.keys, &g.rows)
	if g.ext.empty() {
		return
	}
	defer w.arena.release(w.arena.mark())
	at := g.t.q0 + from
	q, do := headOf(g.q, g.t.h0+head).at(at), headOf(g.do, g.t.h0+head).at(at)
	if g.amx {
		w.tileScores(g.p, w.tileRows(q, n), g.ext, g.tiles.kT)
		w.tileScores(g.dp, w.tileRows(do, n), g.ext, g.tiles.vT)
		w.gradRows(g, head, from, n)
		w.tileGrads(g, q, do, n)
		g.t.wave.await(g.t.k0, j)
		w.tileValues(dq, g.dWide, g.dsh, g.ext, g.tiles.k)
		return
	}
	w.rowScores(g.p, w.operandRows(q, n), g.ext, q.width, g.kT)
	w.rowScores(g.dp, w.operandRows(do, n), g.ext, do.width, g.vT)
	w.gradRows(g, head, from, n)
	w.columnValues(g.dv, g.eWide, g.p, n, g.ext, w.rowColumns(do, n, g.keys))
	w.columnValues(g.dk, g.dWide, g.dp, n, g.ext, w.rowColumns(q, n, g.keys))
	g.t.wave.await(g.t.k0, j)
	w.rowValues(dq, g.dWide, g.dp, g.ext, g.keyRows)
}

// gradRows turns scores into probabilities p, and their gradient dp into that of the scores. What a query
// may not see is exactly 0 in both, as far as its tile's columns go.
func (w *worker) gradRows(g *gradState, head, from, n int) {
	side := w.tileSide(&g.attn)
	for i := range n {
		e := g.ext.of(i, side)
		at := (g.t.q0+from+i)*g.q.Shape[1] + g.t.h0 + head
		lse, p := g.lse[at], i*scoreWidth
		mark := w.arena.mark()
		var slope []float32
		if g.cap > 0 {
			slope = w.arena.f32(scoreWidth)
			w.cappedSlope(g.p[p+e.lo:p+e.hi], slope[e.lo:e.hi], &g.attn)
		}
		l, h := g.seenBy(g.t.attnTask, from+i, e, g.k0, g.keys, &g.rows, g.p[p:])
		if math.IsInf(float64(lse), -1) {
			l, h = e.hi, e.hi
		}
		if g.amx {
			clearAround(g.ph[p:], e, l, h)
			clearAround(g.dsh[p:], e, l, h)
		} else {
			clearAround(g.p[p:], e, l, h)
			clearAround(g.dp[p:], e, l, h)
		}
		switch x, y := g.p[p+l:p+h], g.dp[p+l:p+h]; {
		case l == h:
		case g.bias != nil:
			w.biasedGrad(g, i, p, l, h, g.t.h0+head, g.k0+l-(from+i), lse, g.delta[at])
		case g.cap > 0:
			w.cappedGrad(g, p, l, h, lse, g.delta[at], slope)
		case g.amx:
			w.k.softGradHalf(g.ph[p+l:p+h], g.dsh[p+l:p+h], x, y, g.scale*log2e, lse*log2e, g.delta[at], g.scale)
		default:
			w.k.softGrad(x, y, x, y, g.scale*log2e, lse*log2e, g.delta[at], g.scale)
		}
		w.arena.release(mark)
	}
}

// cappedSlope sets x to the sigmoids s of scores under a soft cap, and slope to s - s²: a quarter of 1 - tanh².
func (w *worker) cappedSlope(x, slope []float32, a *attn) {
	w.k.gate(x, x, 2*a.scale/a.cap, 0)
	w.k.mul(slope, x, x)
	w.k.scale(slope, slope, -1)
	w.k.add(slope, slope, x)
}

// cappedGrad is the same for one row, at p, of scores under a soft cap: their gradient goes through its slope.
func (w *worker) cappedGrad(g *gradState, p, l, h int, lse, delta float32, slope []float32) {
	x, y := g.p[p+l:p+h], g.dp[p+l:p+h]
	w.k.softGrad(x, y, x, y, g.cappedScale(), (lse+g.cap)*log2e, delta, 4*g.scale)
	w.k.mul(y, y, slope[l:h])
	if g.amx {
		w.k.toBF16(g.ph[p+l:p+h], x)
		w.k.toBF16(g.dsh[p+l:p+h], y)
	}
}

// clearAround clears what lies inside an extent but outside of [l, h).
func clearAround[T float32 | uint16](row []T, e extent, l, h int) {
	clear(row[e.lo:l])
	clear(row[h:e.hi])
}
