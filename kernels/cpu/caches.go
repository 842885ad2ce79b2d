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

// Blocks of rows of the left operand: mcMax that a task reads of what all have packed, ownRows that it packs
// for itself, which leave room for columns of the other operand, and are few enough that what is read again
// of that is little. No bit depends on them.
var (
	mcMax   = cacheRows(processor.CPU.Cache.L2, 15, 96, 480)
	ownRows = cacheRows(processor.CPU.Cache.L2, 8, 96, 256)
)
