package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// maskStep is the keys of a block of scores under a mask: fewer than without, so that more of them are seen
// by nobody and skipped. maskChunk is the keys that share a box of positions.
const maskStep, maskChunk = 128, 32

// attnMask is the mask operands of attention, see its contract. Rows are counted over the whole operands.
type attnMask struct {
	blocks           []int32 // nil for none
	tile, words      int
	posQ, posK, near []int32 // nil for none
	boxes            []box   // of chunks of keys
}

// box is the least and greatest position of some keys on each axis.
type box struct{ lo, hi [3]int32 }

// newMask reads the operands from at on; nil if there are none.
func newMask(c *kernels.Call, at int) *attnMask {
	if len(c.In) <= at {
		return nil
	}
	m := &attnMask{tile: c.Attr.I[2]}
	for i, v := range []*[]int32{&m.blocks, &m.posQ, &m.posK, &m.near} {
		if i+at < len(c.In) && c.In[i+at] != nil {
			*v = c.In[i+at].I32()
		}
	}
	if c.In[at] != nil {
		m.words = c.In[at].Shape[1]
	}
	if m.near == nil && m.tile == 0 {
		return nil
	}
	for j := 0; j < len(m.posK); j += 3 * maskChunk {
		b := box{lo: [3]int32(m.posK[j:]), hi: [3]int32(m.posK[j:])}
		for i := j; i < min(j+3*maskChunk, len(m.posK)); i++ {
			b.lo[i%3], b.hi[i%3] = min(b.lo[i%3], m.posK[i]), max(b.hi[i%3], m.posK[i])
		}
		m.boxes = append(m.boxes, b)
	}
	return m
}

// runs appends the runs of keys in [lo, hi) that query q sees, as rows of the whole operand.
func (m *attnMask) runs(l []extent, q, lo, hi int) []extent {
	if m.tile == 0 {
		return m.nearRuns(l, len(l), q, lo, hi)
	}
	row, first := m.blocks[q/m.tile*m.words:], len(l)
	for j := lo; j < hi; {
		tile := j / m.tile
		end := min(hi, (tile+1)*m.tile)
		if uint32(row[tile/32])>>(tile%32)&1 != 0 {
			l = m.nearRuns(l, first, q, j, end)
		}
		j = end
	}
	return l
}

// nearRuns appends the runs in [lo, hi) that are near enough, joined to those from first on where they touch.
func (m *attnMask) nearRuns(l []extent, first, q, lo, hi int) []extent {
	push := func(a, b int) {
		if n := len(l); n > first && l[n-1].hi == a {
			l[n-1].hi = b
		} else {
			l = append(l, extent{a, b})
		}
	}
	if m.near == nil {
		push(lo, hi)
		return l
	}
	w := m.window(q)
	for j := lo; j < hi; {
		end := min(hi, (j/maskChunk+1)*maskChunk)
		switch some, all := w.meets(&m.boxes[j/maskChunk]); {
		case all:
			push(j, end)
		case some:
			for ; j < end; j++ {
				if w.has(m.posK[3*j:]) {
					push(j, j+1)
				}
			}
		}
		j = end
	}
	return l
}

// window is the positions that query q sees, a box.
func (m *attnMask) window(q int) (w box) {
	for a := range 3 {
		w.lo[a], w.hi[a] = math.MinInt32, math.MaxInt32
		at := int64(m.posQ[3*q+a])
		if back := m.near[2*a]; back >= 0 {
			w.lo[a] = int32(max(math.MinInt32, at-int64(back)))
		}
		if ahead := m.near[2*a+1]; ahead >= 0 {
			w.hi[a] = int32(min(math.MaxInt32, at+int64(ahead)))
		}
	}
	return w
}

// has tells whether a position of three coordinates lies within the box, borders included.
func (b *box) has(p []int32) bool {
	return p[0] >= b.lo[0] && p[0] <= b.hi[0] && p[1] >= b.lo[1] && p[1] <= b.hi[1] && p[2] >= b.lo[2] &&
		p[2] <= b.hi[2]
}

// meets tells whether some, and whether all of what lies in o may lie in b.
func (b *box) meets(o *box) (some, all bool) {
	some, all = true, true
	for a := range 3 {
		some = some && o.lo[a] <= b.hi[a] && o.hi[a] >= b.lo[a]
		all = all && o.lo[a] >= b.lo[a] && o.hi[a] <= b.hi[a]
	}
	return some, all
}

// maskRows is what each query of a range sees of one block of keys, for all heads. Runs are counted from the block.
type maskRows struct {
	from int
	at   []int // where the runs of each query begin, and one more
	runs []extent
}

// fill lists queries [from, to) of a task with the block of keys at k0, and reports whether any sees a key;
// seen notes which, nil for no notes.
func (r *maskRows) fill(a *attn, t *attnTask, from, to, k0, keys int, seen []bool) bool {
	r.from, r.at, r.runs = from, r.at[:0], r.runs[:0]
	for i := from; i < to; i++ {
		n := len(r.runs)
		r.at = append(r.at, n)
		lo, hi := a.visible(t, i, 1)
		if lo, hi = max(lo, k0), min(hi, k0+keys); lo < hi {
			r.runs = a.mask.runs(r.runs, t.q0+i, t.k0+lo, t.k0+hi)
		}
		for j := n; j < len(r.runs); j++ {
			r.runs[j].lo, r.runs[j].hi = r.runs[j].lo-t.k0-k0, r.runs[j].hi-t.k0-k0
		}
		if seen != nil && len(r.runs) > n {
			seen[i-from] = true
		}
	}
	r.at = append(r.at, len(r.runs))
	return len(r.runs) > 0
}

// of are the runs of keys that a query sees.
func (r *maskRows) of(query int) []extent {
	i := query - r.from
	return r.runs[r.at[i]:r.at[i+1]]
}

// bounds are the least and greatest keys, counted from the sequence's first, that some of queries [i, j) sees.
func (r *maskRows) bounds(i, j, k0 int) (lo, hi int) {
	lo = math.MaxInt
	for ; i < j; i++ {
		if l := r.of(i); len(l) > 0 {
			lo, hi = min(lo, k0+l[0].lo), max(hi, k0+l[len(l)-1].hi)
		}
	}
	return lo, hi
}

// hide sets what a query does not see between its first and last column to -Inf, and gives these.
func (r *maskRows) hide(query int, row []float32) (l, h int) {
	runs := r.of(query)
	if len(runs) == 0 {
		return 0, 0
	}
	for i, x := range runs[1:] {
		for j := runs[i].hi; j < x.lo; j++ {
			row[j] = float32(math.Inf(-1))
		}
	}
	return runs[0].lo, runs[len(runs)-1].hi
}
