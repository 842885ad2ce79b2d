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
}

// Keep implements kernels.Keeper. Panels of a kept operand are made where a product first needs them; they
// take as much memory as the operand has in float32. Products of one row, and those on tiles, read it where
// it lies.
func (b *Backend) Keep(t *tensor.Tensor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept.may == nil {
		b.kept = kept{map[unsafe.Pointer]bool{}, map[panelAt][]float32{}}
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
}

// Forget implements kernels.Keeper.
func (b *Backend) Forget(t *tensor.Tensor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := viewOf(t)
	if v.len() == 0 || !b.kept.may[v.at()] {
		return
	}
	delete(b.kept.may, v.at())
	for k := range b.kept.panels { // in no order: each by itself
		if k.of.at == v.at() {
			delete(b.kept.panels, k)
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
	at := panelAt{panelsOf{y.v.at(), y.ld, g.n, g.k, g.nb, y.trans}, j0, p0}
	if pb, packed = b.kept.panels[at]; !packed {
		pb = make([]float32, g.nb/b.k.nr*g.bNext)
		b.kept.panels[at] = pb
	}
	return pb, packed
}
