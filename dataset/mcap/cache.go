package mcap

import (
	"slices"
	"sync"
)

// Cache holds expanded chunks of files that were read lately, at most so many bytes of them beside the last
// ones. It is safe for concurrent use, and files may share it.
type Cache struct {
	mu    sync.Mutex
	most  int64
	bytes int64
	held  []expanded // the one that was read last first
}

// expanded are the records of a chunk.
type expanded struct {
	file   *File
	number int64
	raw    []byte
}

// heldLeast is how many chunks are held however large they are: topics of one time may lie in several.
const heldLeast = 4

// NewCache makes a cache of so many bytes.
func NewCache(bytes int64) *Cache { return &Cache{most: bytes} }

// get are the records of a chunk, nil where it is not held.
func (c *Cache) get(f *File, number int64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.IndexFunc(c.held, func(h expanded) bool { return h.file == f && h.number == number })
	if at < 0 {
		return nil
	}
	h := c.held[at]
	copy(c.held[1:], c.held[:at])
	c.held[0] = h
	return h.raw
}

// put holds the records of a chunk, and drops those that were not read for longest.
func (c *Cache) put(f *File, number int64, raw []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = slices.Insert(c.held, 0, expanded{f, number, raw})
	c.bytes += int64(len(raw))
	for n := len(c.held) - 1; n >= heldLeast && c.bytes > c.most; n-- {
		c.bytes -= int64(len(c.held[n].raw))
		c.held = slices.Delete(c.held, n, n+1)
	}
}
