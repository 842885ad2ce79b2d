package cpu

import (
	"unsafe"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var _ kernels.Keeper = (*Backend)(nil)

// panelsOf is a right operand of products by where it lies and how it is cut: what decides its panels.
type panelsOf struct {
	at           unsafe.Pointer
	ld, n, k, nb int
	trans        bool
}

// panelAt is a block of packed columns of a right operand.
type panelAt struct {
	of     panelsOf
	j0, p0 int
}

// kept are the panels of operands that do not change.
type kept struct {
	may    map[unsafe.Pointer]bool // where such operands lie
	panels map[panelAt][]float32
	packed map[packedOf][]float32
	// columns are the places within an operand from which products read it in parts
	columns map[unsafe.Pointer][]unsafe.Pointer
	// low are the forms of operands, and lowPanels the panels of those that lie in one of fewer bytes
	low       map[panelsOf]lowOf
	lowPanels map[panelAt]*lowPanels
}

// packedOf is what else is made of such an operand: where that lies, of which kind, and the numbers that decide it.
type packedOf struct {
	w    unsafe.Pointer
	kind byte
	n    [8]int
}

// lasting gives room for n words that are made of an operand, and whether they are there already: of one
// that is kept. Of others the room is there until the operation ends.
func (b *Backend) lasting(of packedOf, n int) (room []float32, made bool) {
	if !b.kept.may[of.w] {
		return b.shared.f32(n), false
	}
	if room, made = b.kept.packed[of]; !made {
		room = make([]float32, n)
		b.kept.packed[of] = room
	}
	return room, made
}

// Keep implements kernels.Keeper. Panels of a kept operand are made where a product first needs them; they
// take as much memory as the operand has in float32, or less where its numbers have fewer bits (lowForm).
// Products of one row of others, and those on tiles, read it where it lies.
func (b *Backend) Keep(t *tensor.Tensor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept.may == nil {
		b.kept = kept{may: map[unsafe.Pointer]bool{}, panels: map[panelAt][]float32{},
			packed: map[packedOf][]float32{}, columns: map[unsafe.Pointer][]unsafe.Pointer{},
			low: map[panelsOf]lowOf{}, lowPanels: map[panelAt]*lowPanels{}}
	}
	if v := viewOf(t); v.len() > 0 {
		b.kept.may[v.at()] = true
	}
}

// Changed implements kernels.Keeper.
func (b *Backend) Changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.kept.panels)
	clear(b.kept.low)
	clear(b.kept.lowPanels)
	for _, v := range b.kept.packed { // in no order: each by itself
		delete(b.kept.may, view{f: v}.at())
	}
	clear(b.kept.packed)
}

// Forget implements kernels.Keeper.
func (b *Backend) Forget(t *tensor.Tensor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := viewOf(t)
	if v.len() == 0 || !b.kept.may[v.at()] {
		return
	}
	b.kept.forget(v.at())
}

// forget drops an operand, its panels, and what is made of it.
func (k *kept) forget(at unsafe.Pointer) {
	delete(k.may, at)
	for _, part := range k.columns[at] {
		k.forget(part)
	}
	delete(k.columns, at)
	for p := range k.panels { // in no order: each by itself
		if p.of.at == at {
			delete(k.panels, p)
		}
	}
	for p := range k.low { // likewise
		if p.at == at {
			delete(k.low, p)
		}
	}
	for p := range k.lowPanels { // likewise
		if p.of.at == at {
			delete(k.lowPanels, p)
		}
	}
	for of, v := range k.packed { // likewise
		if of.w != at {
			continue
		}
		if delete(k.packed, of); k.may[view{f: v}.at()] {
			k.forget(view{f: v}.at())
		}
	}
}

func (v view) len() int { return len(v.f) + len(v.h) }

// at is where the numbers lie.
func (v view) at() unsafe.Pointer {
	if v.h != nil {
		return unsafe.Pointer(unsafe.SliceData(v.h))
	}
	return unsafe.Pointer(unsafe.SliceData(v.f))
}

// keeps tells whether the panels of a right operand are kept.
func (b *Backend) keeps(y matrix) bool { return b.kept.may[y.v.at()] }

// panelsFor gives the packed columns of a block, if they are kept, or room for them.
func (b *Backend) panelsFor(y matrix, g *gemmPlan, j0, p0 int) (pb []float32, packed bool) {
	if !g.keeps {
		return g.pb, false
	}
	at := panelAt{panelsOf{at: y.v.at(), ld: y.ld, n: g.n, k: g.k, nb: g.nb, trans: y.trans}, j0, p0}
	if pb, packed = b.kept.panels[at]; !packed {
		pb = make([]float32, g.nb/b.k.nr*g.bNext)
		b.kept.panels[at] = pb
	}
	return pb, packed
}
