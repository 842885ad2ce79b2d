package cpu

import processor "github.com/klauspost/cpuid/v2"

// cacheRows is how many rows of sums of kcMax elements fill a share of the second-level cache, in sixteenths,
// but from least to most. A cache of which the processor does not tell has 1 MiB.
func cacheRows(size, sixteenths, least, most int) int {
	if size <= 0 {
		size = 1 << 20
	}
	return max(least, min(most, size/16*sixteenths/(4*kcMax)))
}

// Rows of the left operand in a block, by the size of the L2 cache. A task of a worker pool reads blocks of mcMax rows,
// which the pool has packed together; a task that packs alone takes ownRows. Both leave room in the cache for columns of
// the right operand. No bit of a result depends on them.
var (
	mcMax   = cacheRows(processor.CPU.Cache.L2, 15, 96, 480)
	ownRows = cacheRows(processor.CPU.Cache.L2, 8, 96, 256)
)
