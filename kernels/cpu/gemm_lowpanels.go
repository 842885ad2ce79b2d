package cpu

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// lowForm is a form in which the panels of an operand that does not change lie in fewer bytes than float32
// has, where its numbers allow it: what is read is less, and every number the same to the bit.
type lowForm byte

const (
	lowNone  lowForm = iota // float32
	lowHalf                 // float16
	lowBrain                // bfloat16
	lowCodes                // whole numbers of eight bits times the scale of codeGroup of them along the sum
)

// lowTile is few for panels of a form: groups of the sum have a scale for each column, where there are any.
type lowTile = func(a []float32, aStep int, b []byte, scales []float32, group int, c []float32,
	ldc, k, acc, far, farStep int)

const (
	codeGroup = 32
	codeMost  = 128
	// scales below are none: what they are multiplied with might be subnormal
	scaleLeast = 0x1p-100
)

// lowPanels are the packed columns of a block in a form.
type lowPanels struct {
	form   lowForm
	raw    []byte
	next   int       // bytes from one panel to the next
	scales []float32 // of panels, one behind the other
	groups int       // of a panel
}

// lowOf says in which form the panels of an operand lie, and the scales of its rows.
type lowOf struct {
	form   lowForm
	scales []float32 // [n][k/codeGroup]
}

// size is the bytes of a number.
func (f lowForm) size() int {
	if f == lowCodes {
		return 1
	}
	return 2
}

// lowFormOf is the form of a right operand that is kept.
func (b *Backend) lowFormOf(y matrix, n, k int) lowForm { return b.lowOf(y, n, k).form }

func (b *Backend) lowOf(y matrix, n, k int) lowOf {
	if b.k.low == nil || y.trans || !b.keeps(y) {
		return lowOf{}
	}
	switch y.v.d {
	case tensor.BF16:
		return lowOf{form: lowBrain}
	case tensor.F16:
		return lowOf{form: lowHalf}
	}
	of := panelsOf{at: y.v.at(), ld: y.ld, n: n, k: k}
	l, known := b.kept.low[of]
	if !known {
		l = b.findLow(y, n, k)
		b.kept.low[of] = l
	}
	return l
}

// findLow looks at all numbers of a matrix in float32.
func (b *Backend) findLow(y matrix, n, k int) lowOf {
	row := func(i int) []float32 { return y.v.f[i*y.ld : i*y.ld+k] }
	if sumPart(k)%codeGroup == 0 && k%codeGroup == 0 {
		groups := k / codeGroup
		scales := make([]float32, n*groups)
		if b.allRows(n, k, func(_ *worker, i int) bool {
			return scalesOf(scales[i*groups:(i+1)*groups], row(i))
		}) {
			return lowOf{lowCodes, scales}
		}
	}
	if b.allRows(n, k, func(_ *worker, i int) bool {
		for _, x := range row(i) {
			if math.Float32bits(x)&0xffff != 0 {
				return false
			}
		}
		return true
	}) {
		return lowOf{form: lowBrain}
	}
	if b.allRows(n, k, func(w *worker, i int) bool {
		defer w.arena.release(w.arena.mark())
		h, back := w.arena.u16(k), w.arena.f32(k)
		w.k.toF16(h, row(i))
		w.k.fromF16(back, h)
		for p, x := range row(i) {
			if math.Float32bits(x) != math.Float32bits(back[p]) {
				return false
			}
		}
		return true
	}) {
		return lowOf{form: lowHalf}
	}
	return lowOf{}
}

// allRows tells whether all of n rows of k numbers are as f says; it ends at one that is not.
func (b *Backend) allRows(n, k int, f func(w *worker, i int) bool) bool {
	if n > 0 && !f(b.team.workers[0], 0) {
		return false
	}
	var no atomic.Bool
	b.rows(n, k*elementCost, func(w *worker, from, to int) {
		for i := from; i < to && !no.Load(); i++ {
			if !f(w, i) {
				no.Store(true)
			}
		}
	})
	return !no.Load()
}

// scalesOf sets scales to those with which groups of a row are whole numbers of eight bits, if there are.
func scalesOf(scales, row []float32) bool {
	for g := range scales {
		v := row[g*codeGroup : (g+1)*codeGroup]
		most := float32(0)
		for _, x := range v {
			most = max(most, x, -x)
		}
		found := false
		for n := codeMost; n > 0 && !found; n-- {
			if scales[g] = most / float32(n); scales[g] < scaleLeast && most != 0 || scales[g] != scales[g] {
				return false
			}
			found = allCodes(v, scales[g])
		}
		if !found {
			return false
		}
	}
	return true
}

// allCodes tells whether numbers are whole ones of eight bits times a scale.
func allCodes(v []float32, scale float32) bool {
	for _, x := range v {
		c := codeOf(x, scale)
		if c < -codeMost || c >= codeMost || math.Float32bits(float32(c)*scale) != math.Float32bits(x) {
			return false
		}
	}
	return true
}

// codeOf is the whole number nearest to x/scale.
func codeOf(x, scale float32) int {
	if scale == 0 {
		return 0
	}
	return int(math.RoundToEven(float64(x / scale)))
}

// lowFor gives the packed columns of a block in its form.
func (b *Backend) lowFor(y matrix, g *gemmPlan, j0, p0, n, kc int) *lowPanels {
	at := panelAt{panelsOf{at: y.v.at(), ld: y.ld, n: g.n, k: g.k, nb: g.nb, trans: y.trans}, j0, p0}
	if l := b.kept.lowPanels[at]; l != nil {
		return l
	}
	nr, panels := b.k.nr, ceilDiv(n, b.k.nr)
	l := &lowPanels{form: g.low.form, next: roundUp(kc*nr*g.low.form.size(), 64)}
	l.raw = make([]byte, panels*l.next)
	if l.form == lowCodes {
		l.groups = kc / codeGroup
		l.scales = make([]float32, panels*l.groups*nr)
	}
	b.shareWork(panels, n*kc*16, func(w *worker, i int) {
		defer w.arena.release(w.arena.mark())
		v := w.arena.f32(panelLen(nr, kc))
		w.panel(v, nr, y, j0+i*nr, g.n, p0, kc)
		raw := l.raw[i*l.next : (i+1)*l.next]
		if l.form == lowCodes {
			l.encode(raw, v[:kc*nr], i, nr, g, j0+i*nr, p0)
			return
		}
		h := w.arena.u16(kc * nr)
		if l.form == lowBrain {
			w.k.toBF16(h, v[:kc*nr])
		} else {
			w.k.toF16(h, v[:kc*nr])
		}
		for j, x := range h {
			binary.LittleEndian.PutUint16(raw[2*j:], x)
		}
	})
	b.kept.lowPanels[at] = l
	return l
}

// encode sets a panel to codes of the numbers in v, the first of row j of the operand and place p0 of the sum.
func (l *lowPanels) encode(raw []byte, v []float32, panel, nr int, g *gemmPlan, j, p0 int) {
	all := g.k / codeGroup
	for q := range l.groups {
		s := l.scales[(panel*l.groups+q)*nr:][:nr]
		for c := range min(nr, g.n-j) {
			s[c] = g.low.scales[(j+c)*all+p0/codeGroup+q]
		}
		for p := q * codeGroup; p < (q+1)*codeGroup; p++ {
			for c, scale := range s {
				raw[p*nr+c] = byte(int8(codeOf(v[p*nr+c], scale)))
			}
		}
	}
}

// lowRows is product for packed columns in a form: fewRows with tiles that widen what they read. Sums are
// those of product, in the same order.
func (w *worker) lowRows(c []float32, ldc, m, n, k int, x operand, y columns, acc int) {
	mr, nr, l := w.k.mr, w.k.nr, y.low
	tiles := ceilDiv(m, mr)
	step, group := ceilDiv(nr*l.form.size(), tiles), k
	if l.form == lowCodes {
		group = codeGroup
	}
	for j := 0; j < n; j += nr {
		at, cols := y.first+j/nr, min(nr, n-j)
		raw, scales := l.raw[at*l.next:], l.scales[at*l.groups*nr:]
		for t := range tiles {
			rows, far := min(mr, m-t*mr), (l.next+t*step*k)/4
			tile := w.k.low[l.form][(rows+1)/2-1]
			left, d := x.v[t*x.next:], c[t*mr*ldc+j:]
			if rows%2 == 0 && cols == nr {
				tile(left, x.step, raw, scales, group, d, ldc, k, acc, far, step)
				continue
			}
			mark := w.arena.mark()
			part := w.arena.f32((rows + 1) * nr)
			tile(left, x.step, raw, scales, group, part, nr, k, 0, far, step)
			for r := range rows {
				if to := d[r*ldc:][:cols]; acc == 1 {
					w.k.add(to, to, part[r*nr:][:cols])
				} else {
					copy(to, part[r*nr:])
				}
			}
			w.arena.release(mark)
		}
	}
}
