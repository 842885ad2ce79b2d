package cpu

// amxBlocks computes blocks of 32 by 32; see amxArgs. It uses up args.n and args.dst.
//
//go:noescape
func amxBlocks(args *amxArgs)

// amxPeak multiplies tiles in registers 4n times: the yardstick of the benchmarks.
//
//go:noescape
func amxPeak(cfg *tileConfig, n int)

// dotBlocks does what amxBlocks does with vectors of pairs (AVX512_BF16).
//
//go:noescape
func dotBlocks(args *amxArgs)

// dotInRows is dotBlocks for the modes amxF32 and amxAdd without tiles in between: c and acc are not used.
//
//go:noescape
func dotInRows(args *amxArgs)

// dotPeak multiplies pairs in registers 16n times.
//
//go:noescape
func dotPeak(n int)
