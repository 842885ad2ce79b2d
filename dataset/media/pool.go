package media

import (
	"math/bits"
	"sync"
)

// buffers lends buffers, as those of one image fit the next. Their content is anything.
var buffers pool

// pool keeps buffers by the power of two that they hold.
type pool [pooledBits + 1]sync.Pool

// pooledBits is the power of two of the largest buffer that is kept: 32 MiB.
const pooledBits = 25

// take returns n bytes of any content.
func (p *pool) take(n int) []byte {
	class := bits.Len(uint(max(n, 2) - 1))
	if class > pooledBits {
		return make([]byte, n)
	}
	if b, ok := p[class].Get().(*[]byte); ok {
		return (*b)[:n]
	}
	return make([]byte, n, 1<<class)
}

// give takes back what take lent; other buffers are left to the garbage collector.
func (p *pool) give(b []byte) {
	if class := bits.Len(uint(cap(b))) - 1; class > 0 && class <= pooledBits && cap(b) == 1<<class {
		p[class].Put(&b)
	}
}
