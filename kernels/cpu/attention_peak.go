package cpu

import (
	"sync"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() { table[kernels.AttentionPeak], table[kernels.PeakClip] = attentionPeak, peakClip }

// attentionPeak computes the scores of attention by the same blocks, and keeps the greatest of each head: a
// maximum, which no order of tasks changes.
func attentionPeak(b *Backend, c *kernels.Call) {
	a := b.attn(c.In[0], c.In[1], c.In[1], c, len(c.In))
	cuQ, cuK := c.In[2].I32(), c.In[3].I32()
	a.plan(cuQ, cuK, b.queryBlocks(&a, cuQ))
	e := c.Out[0].F32()
	clear(e)
	var mu sync.Mutex
	b.shareWork(len(a.tasks), a.total(), func(w *worker, i int) {
		defer w.arena.release(w.arena.mark())
		t := &a.tasks[i]
		most := w.arena.zero(t.h1 - t.h0)
		w.peaks(&a, t, most)
		mu.Lock()
		defer mu.Unlock()
		for j, x := range most {
			if at := c.Attr.I[2] + t.h0 + j; x > e[at] || x != x {
				e[at] = x
			}
		}
	})
}

// peaks raises most to the greatest score of each head of a task.
func (w *worker) peaks(a *attn, t *attnTask, most []float32) {
	n, heads := t.to-t.from, t.h1-t.h0
	s := &attnState{attn: a, t: t}
	blocks := ceilDiv(n, a.block)
	s.scores = w.arena.f32(a.block * scoreWidth)
	lo, hi := a.visible(t, t.from, n)
	for s.k0 = lo / a.step * a.step; s.k0 < hi; s.k0 += a.step {
		m := w.arena.mark()
		s.keys = min(a.step, hi-s.k0)
		k := headOf(a.k, t.g).at(t.k0 + s.k0)
		if a.amx {
			s.tiles = keyTiles{kT: w.tilesT(k, s.keys)}
		} else {
			s.kT = w.packColumns(k, s.keys)
		}
		for j := range heads * blocks {
			head, from, n := s.part(t, j)
			most[head] = w.peakBlock(s, head, from, n, most[head])
		}
		w.arena.release(m)
	}
}

// peakBlock is the greatest of most and the scores of the current keys with n queries of a head.
func (w *worker) peakBlock(s *attnState, head, from, n int, most float32) float32 {
	t := s.t
	s.ext = s.extents(s.ext[:0], t, w.tileSide(s.attn), t.from+from, n, s.k0, s.keys, &s.rows)
	if s.ext.empty() {
		return most
	}
	defer w.arena.release(w.arena.mark())
	q := headOf(s.q, t.h0+head).at(t.q0 + t.from + from)
	if s.amx {
		w.tileScores(s.scores, w.tileRows(q, n), s.ext, s.tiles.kT)
	} else {
		w.rowScores(s.scores, w.operandRows(q, n), s.ext, q.width, s.kT)
	}
	for i := range n {
		row := s.scores[i*scoreWidth:]
		l, h := s.seenBy(t, t.from+from+i, s.ext.of(i, w.tileSide(s.attn)), s.k0, s.keys, &s.rows, row)
		for _, x := range row[l:h] {
			if x *= s.scale; x > most || x != x { // a NaN stays
				most = x
			}
		}
	}
	return most
}

// peakClip multiplies rows of a parameter with what their group's peak says, as ref does.
func peakClip(_ *Backend, c *kernels.Call) {
	if c.In[1].F64()[kernels.ClipOverflow] != 0 {
		return
	}
	p, peak := c.Out[0], c.In[0].F32()
	width := p.Len() / max(1, p.Shape[0])
	for i := range p.Shape[0] {
		f, row := kernels.ShrinkOf(c, peak, i), p.F32()[i*width:(i+1)*width]
		if f != 1 {
			for j := range row {
				row[j] *= f
			}
		}
		if len(c.Out) > 1 && c.Out[1] != nil {
			narrow(c.Out[1], i*width, row)
		}
	}
}

// narrow writes float32 numbers into a tensor of any type from a place on.
func narrow(t *tensor.Tensor, at int, v []float32) {
	size := t.DType.Size()
	tensor.Narrow(t.DType, v, t.Bytes()[at*size:(at+len(v))*size])
}
