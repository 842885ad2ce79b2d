package tensor

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Align is the alignment of every buffer in bytes: one cache line and one AVX-512 register.
const Align = 64

// Buffer is counted storage. The owner of the last reference returns it to its pool.
type Buffer struct {
	data   []byte // the requested length
	class  int
	refs   atomic.Int32
	pool   *Pool
	handle any     // of storage that is not the host's, as its memory knows it
	in     *region // where a large one lies, from at on
	at     int
	by     *holder // where the pool notes who holds what
}

// Retain adds a reference.
func (b *Buffer) Retain() {
	if b.refs.Add(1) <= 1 {
		panic("tensor: Retain of a buffer that was released")
	}
}

// Release drops a reference; the last one returns the storage to the pool.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0 && b.pool != nil:
		b.pool.put(b)
	case n < 0:
		panic("tensor: buffer released twice")
	}
}

// BudgetError says which tensor did not fit into a rank's memory, and what would help.
type BudgetError struct {
	Pool               string // the rank
	Tensor             string
	Need, Live, Budget int64 // bytes
}

// Error names the tensor, the sizes and the remedy.
func (e *BudgetError) Error() string {
	return fmt.Sprintf("%s: tensor %s needs %s but %s of the budget of %s are live; raise plan.memory, or lower "+
		"train.micro_batch, or set plan.recompute=full, or raise plan.pp, plan.tp or plan.zero", e.Pool, e.Tensor,
		Bytes(e.Need), Bytes(e.Live), Bytes(e.Budget))
}

// Bytes prints a size in binary units.
func Bytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// Pool hands out buffers of one rank. Freed buffers are kept by size class and reused; what is live and what is kept
// together never exceed the budget. Safe for concurrent use: receivers of a message release from their own goroutine.
type Pool struct {
	name       string
	budget     int64 // bytes; 0 is unlimited
	poison     bool
	mu         sync.Mutex
	live, peak int64
	kept       int64
	free       map[int][][]byte // small buffers by class
	large      arena
	idle       int64 // bytes given back to it that may still be backed by memory
	count      int
	memory     Memory // nil for the host's
	noted      atomic.Pointer[ledger]
}

// Memory is storage that the host cannot read, owned by a backend.
type Memory interface {
	// Space names it in messages.
	Space() string
	// Alloc takes n bytes.
	Alloc(n int) (handle any, err error)
	// Free gives them back when every call that was issued so far has finished.
	Free(handle any)
}

// In lets the pool take its storage from memory that the host cannot read; nil changes nothing. It is called
// before the first New.
func (p *Pool) In(m Memory) *Pool { p.memory = m; return p }

// NewPool returns a pool; budget is in bytes, 0 for no limit.
func NewPool(name string, budget int64) *Pool {
	return &Pool{name: name, budget: budget, free: map[int][][]byte{}}
}

// Poison makes freed storage unreadable garbage (all bits set: NaN), so that a use after release shows in tests.
func (p *Pool) Poison() *Pool { p.poison = true; return p }

// class rounds up to 1/32 of a power of two: at most 3.2 % of a buffer is waste.
func class(n int64) int64 {
	if n <= 4096 {
		return (n + Align - 1) / Align * Align
	}
	step := int64(1) << (bits.Len64(uint64(n-1)) - 6)
	return (n + step - 1) / step * step
}

// New returns a tensor with one reference; its contents are undefined. It fails with a *BudgetError.
func (p *Pool) New(name string, d DType, shape ...int) (*Tensor, error) {
	n := int64(d.Size())
	for _, s := range shape {
		if s < 0 || s > 0 && n > (1<<50)/int64(s) {
			panic(fmt.Sprintf("tensor: %s has shape %v", name, shape))
		}
		n *= int64(s)
	}
	b, err := p.buffer(name, n)
	if err != nil {
		return nil, err
	}
	return &Tensor{Shape: append([]int(nil), shape...), DType: d, Buf: b, data: b.data}, nil
}

func (p *Pool) buffer(name string, n int64) (*Buffer, error) {
	c := class(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.budget > 0 && p.live+c > p.budget {
		return nil, &BudgetError{Pool: p.name, Tensor: name, Need: n, Live: p.live, Budget: p.budget}
	}
	b := &Buffer{class: int(c), pool: p}
	if p.memory != nil {
		return b, p.foreign(b, name)
	}
	var raw []byte
	if c >= arenaLeast {
		if p.budget > 0 && p.live+p.kept+p.idle+c > p.budget {
			p.large.forget()
			p.idle = 0
		}
		var err error
		if b.in, b.at, err = p.large.place(int(c)); err != nil {
			return nil, fmt.Errorf("%s: tensor %s: %w", p.name, name, err)
		}
	}
	if b.in != nil {
		// aligned, since regions begin with a page and classes divide by Align
		raw = b.in.mem[b.at : b.at+int(c) : b.at+int(c)]
		p.idle = max(0, p.idle-c)
	} else if l := p.free[int(c)]; len(l) > 0 {
		raw, p.free[int(c)] = l[len(l)-1], l[:len(l)-1]
		p.kept -= c
	} else {
		if p.budget > 0 && p.live+p.kept+c > p.budget {
			clear(p.free) // give back what is kept before going over the budget
			p.kept = 0
		}
		raw = aligned(int(c))
	}
	p.live += c
	p.peak = max(p.peak, p.live)
	p.count++
	if l := p.noted.Load(); l != nil {
		l.took(b, name, p.live)
	}
	b.data = raw[:n]
	b.refs.Store(1)
	return b, nil
}

// foreign takes a buffer from memory that is not the host's.
func (p *Pool) foreign(b *Buffer, name string) error {
	h, err := p.memory.Alloc(b.class)
	if err != nil {
		return fmt.Errorf("%s: tensor %s: %w", p.name, name, err)
	}
	b.handle = h
	p.live += int64(b.class)
	p.peak = max(p.peak, p.live)
	p.count++
	if l := p.noted.Load(); l != nil {
		l.took(b, name, p.live)
	}
	b.refs.Store(1)
	return nil
}

// Discard lets the system have the memory of what is free.
func (p *Pool) Discard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.large.forget()
	p.idle = 0
}

func aligned(n int) []byte {
	raw := make([]byte, n+Align)
	off := int(-addressOf(raw) & (Align - 1))
	return raw[off : off+n : off+n]
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (p *Pool) put(b *Buffer) {
	if b.handle != nil {
		p.memory.Free(b.handle)
		p.mu.Lock()
		p.left(b)
		p.mu.Unlock()
		return
	}
	raw := b.data[:b.class]
	if p.poison {
		for i := range raw {
			raw[i] = 0xff
		}
	}
	b.data = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left(b)
	if b.in == nil {
		p.kept += int64(b.class)
		p.free[b.class] = append(p.free[b.class], raw)
	} else {
		p.idle += int64(b.class)
		b.in.give(b.at, b.class)
	}
	if p.live == 0 {
		p.large.leave()
		p.idle = 0
	}
}

// left counts a buffer out; the pool is locked.
func (p *Pool) left(b *Buffer) {
	if l := p.noted.Load(); l != nil && b.by != nil {
		l.gave(b)
	}
	p.live -= int64(b.class)
	p.count--
}

// Live, Peak are bytes in use now and at most so far, rounded up to size classes.
func (p *Pool) Live() int64 { p.mu.Lock(); defer p.mu.Unlock(); return p.live }

// Peak is the most bytes that were live at once.
func (p *Pool) Peak() int64 { p.mu.Lock(); defer p.mu.Unlock(); return p.peak }

// Buffers is the number of live buffers; a test ends with 0.
func (p *Pool) Buffers() int { p.mu.Lock(); defer p.mu.Unlock(); return p.count }

// Budget is the limit in bytes, 0 for none.
func (p *Pool) Budget() int64 { return p.budget }

// ClassBytes is what New would account for a tensor of n bytes: planners use it to predict Peak.
func ClassBytes(n int64) int64 { return class(n) }
