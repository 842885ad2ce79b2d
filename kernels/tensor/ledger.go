package tensor

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// Holding is what tensors of one name hold of a pool.
type Holding struct {
	// Name is the name that they were made by.
	Name string `json:"name"`
	// Block is the model's whose operation made them, -1 for none.
	Block int `json:"block"`
	// Tensors is how many there are, Bytes what they take, rounded up to size classes.
	Tensors int   `json:"tensors"`
	Bytes   int64 `json:"bytes"`
}

// holder is what holdings are added up by.
type holder struct {
	name  string
	block int
}

// ledger knows who holds what now, and who did when most was live. Taking a copy is put off until something
// is given back: as long as a pool only grows its peak is now.
type ledger struct {
	block   atomic.Int64
	now     map[holder]Holding
	most    int64
	atMost  []Holding
	growing bool // most is live now, and atMost is to be taken
}

// Note makes the pool remember who holds what when most is live, of what is made from now on; a pool that
// was not told to spends one load of a pointer a tensor.
func (p *Pool) Note() *Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noted.Load() == nil {
		l := &ledger{now: map[holder]Holding{}}
		l.block.Store(-1)
		p.noted.Store(l)
	}
	return p
}

// Block tells whose work the tensors are that are made next; -1 is nobody's.
func (p *Pool) Block(i int) {
	if l := p.noted.Load(); l != nil {
		l.block.Store(int64(i))
	}
}

// took notes a buffer; the pool is locked.
func (l *ledger) took(b *Buffer, name string, live int64) {
	b.by = &holder{name, int(l.block.Load())}
	h := l.now[*b.by]
	l.now[*b.by] = Holding{name, b.by.block, h.Tensors + 1, h.Bytes + int64(b.class)}
	if live > l.most {
		l.most, l.growing = live, true
	}
}

// gave notes that a buffer is about to go; the pool is locked.
func (l *ledger) gave(b *Buffer) {
	l.settle()
	h := l.now[*b.by]
	if h.Tensors, h.Bytes = h.Tensors-1, h.Bytes-int64(b.class); h.Tensors == 0 {
		delete(l.now, *b.by)
		return
	}
	l.now[*b.by] = h
}

// settle takes the copy that was put off.
func (l *ledger) settle() {
	if !l.growing {
		return
	}
	l.growing, l.atMost = false, l.atMost[:0]
	for _, h := range l.now {
		l.atMost = append(l.atMost, h)
	}
}

// AtPeak is who held what when most was live since Note, the most first; nil without.
func (p *Pool) AtPeak() []Holding {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.noted.Load()
	if l == nil {
		return nil
	}
	l.settle()
	all := slices.Clone(l.atMost)
	slices.SortFunc(all, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Block, b.Block))
	})
	return all
}
