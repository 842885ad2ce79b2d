package cpu

// amxBlocks computes blocks of 32 by 32; see amxArgs. It uses up args.n and args.dst.
//
//go:noescape
func amxBlocks(args *amxArgs)

// amxPeak multiplies tiles in registers 4n times: the yardstick of the benchmarks.
//
//go:noescape
func amxPeak(cfg *tileConfig, n int)

func amxRun(args *amxArgs) { amxBlocks(args) }

func amxSpin(n int) { amxPeak(allTiles, n) }
