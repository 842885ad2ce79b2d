package accel

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/tensor"
)

const (
	blockBytes = 256 << 20 // of device memory taken at once, or as much as one buffer needs
	alignBytes = 256
)

// block is device memory that the driver gave.
type block struct {
	addr uint64
	size int
	*tensor.Holes
}

// region is a part of a block.
type region struct {
	b    *block
	from int
	size int
}

func (r region) addr() uint64 { return r.b.addr + uint64(r.from) }

// span is the handle of a tensor's storage.
type span struct {
	region
	fresh   bool // nothing has used it
	landing bool // it came for a copy back
	busy    Mark // a copy away that reads it, beside the device's calls
	awaits  Mark // a copy back that fills it, likewise
}

// memory hands out parts of blocks.
type memory struct {
	drv    Driver
	blocks []*block
	more   func() (bool, error) // gives something back before blocks are taken; false if there is nothing
}

// take finds n free bytes. If no block has them, it takes a further block from the driver.
func (m *memory) take(n int) (*span, error) {
	n = (max(n, 1) + alignBytes - 1) / alignBytes * alignBytes
	b, at := m.best(n)
	for b == nil && m.more != nil {
		if any, err := m.more(); err != nil {
			return nil, err
		} else if !any {
			break
		}
		b, at = m.best(n)
	}
	if b == nil {
		var err error
		if b, err = m.grow(n); err != nil {
			return nil, err
		}
		at, _ = b.Best(n)
	}
	return &span{region: region{b, b.Take(at, n), n}, fresh: true}, nil
}

func (m *memory) best(n int) (b *block, at int) {
	size := 0
	for _, x := range m.blocks {
		if i, s := x.Best(n); i >= 0 && (b == nil || s < size) {
			b, at, size = x, i, s
		}
	}
	return b, at
}

// grow takes a block of at least n bytes: a large one where the device has it.
func (m *memory) grow(n int) (*block, error) {
	var err error
	for _, size := range []int{max(n, blockBytes), n} {
		var addr uint64
		if addr, err = m.drv.Alloc(size); err == nil {
			b := &block{addr, size, tensor.NewHoles(size)}
			m.blocks = append(m.blocks, b)
			return b, nil
		}
		m.shrink()
	}
	used, have := 0, 0
	for _, b := range m.blocks {
		used, have = used+b.Used(), have+b.size
	}
	return nil, fmt.Errorf("%w; %s of the %s that this rank took are in use: lower train.micro_batch, "+
		"set plan.recompute=full, or end what else uses the device", err, tensor.Bytes(int64(used)),
		tensor.Bytes(int64(have)))
}

// shrink gives back blocks that nothing uses.
func (m *memory) shrink() {
	var keep []*block
	for _, b := range m.blocks {
		if b.Used() > 0 {
			keep = append(keep, b)
			continue
		}
		m.drv.Free(b.addr)
	}
	m.blocks = keep
}

func (m *memory) give(r region) { r.b.Give(r.from, r.size) }
