package cpu

import (
	"encoding/binary"
	"math"
	"slices"
	"sync/atomic"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// lowForm is a form in which the panels of an operand that does not change lie in fewer bytes than float32
// has, where its numbers allow it: what is read is less, and every number the same to the bit. Codes are whole
// numbers; groups of them along the sum have a scale for each column, and an offset where the form has one.
type lowForm byte

const (
	lowNone    lowForm = iota // float32
	lowHalf                   // float16
	lowBrain                  // bfloat16
	lowCodes                  // codes of eight bits with a sign, times the scale
	lowMoved                  // codes of five bits, in a byte each, times the scale and less the offset
	lowNibbles                // codes of four bits, likewise
)

// lowForms are the bits of a number of each form, the numbers of a group beside its columns (scale and
// offset) and the greatest code of those with an offset.
var lowForms = [...]struct{ bits, scales, most int }{
	lowHalf: {bits: 16}, lowBrain: {bits: 16}, lowCodes: {bits: 8, scales: 1},
	lowMoved: {bits: 8, scales: 2, most: 31}, lowNibbles: {bits: 4, scales: 2, most: 15},
}

// lowTries are the forms with codes and the length of their groups, in the order in which they are tried:
// those of GGUF's Q4_0, Q4_1 and Q4_K; of Q8_0 and Q5_0; of Q5_1 and Q5_K; of Q2_K and Q3_K; of Q6_K.
var lowTries = []lowOf{{form: lowNibbles, group: 32}, {form: lowCodes, group: 32}, {form: lowMoved, group: 32},
	{form: lowNibbles, group: 16}, {form: lowCodes, group: 16}}

// lowTile is few for panels of a form. Those of a form are of 1, 2, 4, 6, ... rows.
type lowTile = func(a []float32, aStep int, b []byte, scales []float32, group int, c []float32,
	ldc, k, acc, far, farStep int)

const (
	codeMost = 128
	// scales below are none: what they are multiplied with might be subnormal
	scaleLeast = 0x1p-90
)

// lowPanels are the packed columns of a block in a form.
type lowPanels struct {
	form   lowForm
	raw    []byte
	next   int       // bytes from one panel to the next
	scales []float32 // of panels, one behind the other; of each group those of all columns, then the offsets
	groups int       // of a panel
	group  int       // numbers of one along the sum
}

// lowOf says in which form the panels of an operand lie, and the scales of its rows.
type lowOf struct {
	form   lowForm
	group  int
	scales []float32 // [n][k/group][scales of the form]
}

// size is the bytes of so many numbers.
func (f lowForm) size(n int) int { return n * lowForms[f].bits / 8 }

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
	for _, l := range lowTries {
		if sumPart(k)%l.group != 0 || k%l.group != 0 {
			continue
		}
		each := k / l.group * lowForms[l.form].scales
		l.scales = make([]float32, n*each)
		if b.allRows(n, k, func(_ *worker, i int) bool { return l.scalesOf(l.scales[i*each:(i+1)*each], row(i)) }) {
			return l
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

// scalesOf sets scales to those with which groups of a row have codes, if there are.
func (l *lowOf) scalesOf(scales, row []float32) bool {
	f := lowForms[l.form]
	for v := range slices.Chunk(row, l.group) {
		ok := false
		if f.scales == 1 {
			scales[0], ok = scaleOf(v)
		} else {
			scales[0], scales[1], ok = movedOf(v, f.most)
		}
		if !ok {
			return false
		}
		scales = scales[f.scales:]
	}
	return true
}

// scaleOf is the scale with which numbers are codes of eight bits, a negative one where zeros have a sign, as in
// blocks of Q5_0 whose greatest number is positive.
func scaleOf(v []float32) (scale float32, ok bool) {
	most := float32(0)
	for _, x := range v {
		most = max(most, x, -x)
	}
	for _, most := range []float32{most, -most} {
		for n := codeMost; n > 0; n-- {
			if scale = most / float32(n); most != 0 && scale < scaleLeast && scale > -scaleLeast || scale != scale {
				break
			}
			if allCodes(v, scale) {
				return scale, true
			}
		}
	}
	return 0, false
}

// movedOf is the scale and the offset with which numbers are codes up to most. Both have at most 17 bits, a
// float16 times a whole number of six, so that they follow from the least and the greatest number.
func movedOf(v []float32, most int) (scale, offset float32, ok bool) {
	low, high := slices.Min(v), slices.Max(v)
	if low == high {
		return 0, -low, allMoved(v, 0, -low, most)
	}
	for least := range most {
		for n := most - least; n > 0; n-- {
			scale = bits17((float64(high) - float64(low)) / float64(n))
			if offset = -low; least > 0 {
				offset = bits17(float64(scale)*float64(least) - float64(low))
			}
			if scale >= scaleLeast && allMoved(v, scale, offset, most) {
				return scale, offset, true
			}
		}
	}
	return 0, 0, false
}

// bits17 rounds to 17 bits.
func bits17(x float64) float32 {
	const cut = 52 - 16
	return float32(math.Float64frombits((math.Float64bits(x) + 1<<(cut-1)) &^ (1<<cut - 1)))
}

// allMoved tells whether numbers are codes times a scale less an offset, rounded once.
func allMoved(v []float32, scale, offset float32, most int) bool {
	o := float64(offset)
	for _, x := range v {
		c := codeOf(x+offset, scale)
		p := float64(c) * float64(scale) // exact: 24 bits and five
		d := p - o
		if rest := d - p; c < 0 || c > most || (p-(d-rest))-(o+rest) != 0 { // float64 rounds too
			return false
		}
		if math.Float32bits(float32(d)) != math.Float32bits(x) {
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
	l := &lowPanels{form: g.low.form, group: max(g.low.group, 1), next: roundUp(g.low.form.size(kc*nr), 64)}
	l.raw = make([]byte, panels*l.next)
	each := lowForms[l.form].scales
	if each > 0 {
		l.groups = kc / l.group
		l.scales = make([]float32, panels*l.groups*nr*each)
	}
	b.shareWork(panels, n*kc*16, func(w *worker, i int) {
		defer w.arena.release(w.arena.mark())
		v := w.arena.f32(panelLen(nr, kc))
		w.panel(v, nr, y, j0+i*nr, g.n, p0, kc)
		raw := l.raw[i*l.next : (i+1)*l.next]
		if each > 0 {
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
	each, all := lowForms[l.form].scales, g.k/l.group
	offsets := make([]float32, nr)
	for q := range l.groups {
		s := l.scales[(panel*l.groups+q)*nr*each:][:nr*each]
		for c := range min(nr, g.n-j) {
			for i, x := range g.low.scales[((j+c)*all+p0/l.group+q)*each:][:each] {
				s[i*nr+c] = x
			}
		}
		if each == 2 {
			offsets = s[nr:]
		}
		for p := q * l.group; p < (q+1)*l.group; p++ {
			for c, scale := range s[:nr] {
				code := byte(int8(codeOf(v[p*nr+c]+offsets[c], scale)))
				if l.form == lowNibbles { // the second half of the columns in the upper bits
					raw[(p*nr+c*2%nr)/2] |= code << (c * 2 / nr * 4)
					continue
				}
				raw[p*nr+c] = code
			}
		}
	}
}

// lowRows is product for packed columns in a form: fewRows with tiles that widen what they read. Sums are
// those of product, in the same order.
func (w *worker) lowRows(c []float32, ldc, m, n, k int, x operand, y columns, acc int) {
	mr, nr, l := w.k.mr, w.k.nr, y.low
	tiles, each := ceilDiv(m, mr), l.groups*nr*lowForms[l.form].scales
	step, group := ceilDiv(l.form.size(nr), tiles), k
	if each > 0 {
		group = l.group
	}
	for j := 0; j < n; j += nr {
		at, cols := y.first+j/nr, min(nr, n-j)
		raw, scales := l.raw[at*l.next:], l.scales[at*each:]
		for t := range tiles {
			rows, far := min(mr, m-t*mr), (l.next+t*step*k)/4
			whole := rows // of the tile
			if rows > 1 {
				whole = roundUp(rows, 2)
			}
			tile := w.k.low[l.form][whole/2]
			left, d := x.v[t*x.next:], c[t*mr*ldc+j:]
			if rows == whole && cols == nr {
				tile(left, x.step, raw, scales, group, d, ldc, k, acc, far, step)
				continue
			}
			mark := w.arena.mark()
			part := w.arena.f32(whole * nr)
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
