package tensor

import (
	"slices"
	"sync"
)

// Storage of large buffers lies outside the Go heap, in regions of the address space that the system backs
// with memory where they are used: the collector neither counts nor scans it, and what is given back joins
// its neighbours, so that buffers of other sizes can use it.
const (
	arenaLeast = 64 << 10 // smaller buffers come from the Go heap
	regionSize = 1 << 30  // of address space, or as much as one buffer needs
	// stagger keeps buffers of sizes that are powers of two from lying a whole number of pages apart.
	stagger = 5 * Align
)

// region is one mapping.
type region struct {
	mem []byte
	*Holes
}

// arena is the regions of a pool.
type arena struct {
	regions []*region
	folder  string // of files that the regions lie in, "" for memory
}

// spare are regions that no pool uses: a pool without buffers leaves its own here.
var spare struct {
	sync.Mutex
	regions []*region
}

// place finds n bytes, in the smallest hole that has them; nil where the system gives no memory, an error
// where it makes no file.
func (a *arena) place(n int) (r *region, at int, err error) {
	n += stagger
	if r, at = a.best(n); r == nil {
		if a.folder != "" {
			r, err = a.file(n)
		} else {
			r = newRegion(n)
		}
		if r == nil {
			return nil, 0, err
		}
		a.regions = append(a.regions, r)
		r, at = a.best(n)
	}
	return r, r.Take(at, n), nil
}

// best is the smallest hole of at least n bytes.
func (a *arena) best(n int) (r *region, at int) {
	size := 0
	for _, x := range a.regions {
		if i, s := x.Best(n); i >= 0 && (r == nil || s < size) {
			r, at, size = x, i, s
		}
	}
	return
}

// give takes n bytes back.
func (r *region) give(from, n int) { r.Give(from, n+stagger) }

// leave hands all regions on; nothing of them may be in use.
func (a *arena) leave() {
	if len(a.regions) == 0 {
		return
	}
	if a.folder != "" {
		for _, r := range a.regions {
			unmap(r.mem)
		}
		a.regions = nil
		return
	}
	spare.Lock()
	defer spare.Unlock()
	spare.regions = append(spare.regions, a.regions...)
	a.regions = nil
}

// newRegion is one of at least n bytes, nil if the system has no address space left.
func newRegion(n int) *region {
	spare.Lock()
	defer spare.Unlock()
	for i, r := range spare.regions {
		if len(r.mem) >= n {
			spare.regions = slices.Delete(spare.regions, i, i+1)
			return r
		}
	}
	for _, size := range []int{max(regionSize, n), n} {
		size = (size + 1<<16 - 1) >> 16 << 16
		if mem := reserve(size); mem != nil {
			return &region{mem: mem, Holes: NewHoles(len(mem))}
		}
	}
	return nil
}

// forget lets the system take back the memory behind what is free.
func (a *arena) forget() {
	for _, r := range a.regions {
		for _, h := range r.free {
			discard(r.mem[h.from:h.to])
		}
	}
}
