package dataset

import "math/bits"

// Draw returns the random bits of one place: it depends on its arguments only, never on what was drawn before, so that
// a draw is the same on any rank, plan and resumption. block separates uses (dropout of layer 3, noise of the input);
// element counts within the use. The generator is Philox4x64-10 (Salmon et al., SC 2011) with the counter (element,
// sample, block, pass) and the key (seed, 0); the first of its four words is returned.
func Draw(seed uint64, pass, sample, block, element int64) uint64 {
	return philox([4]uint64{uint64(element), uint64(sample), uint64(block), uint64(pass)}, [2]uint64{seed, 0})[0]
}

// Blocks of Draw that this package takes for itself. Callers use numbers from 0 up.
const (
	blockOrder   = -1 // keys of the permutation of a source
	blockShuffle = -2 // keys of the permutation of a block of windows
	blockSplit   = -3 // keys of the permutation that parts a source
	// keys of the permutation within a window of an order; the window's number times 256 is added
	blockWindow = -4
)

// philox is one block of Philox4x64 with ten rounds.
func philox(c [4]uint64, k [2]uint64) [4]uint64 {
	const m0, m1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
	const w0, w1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
	for range 10 {
		hi0, lo0 := bits.Mul64(m0, c[0])
		hi1, lo1 := bits.Mul64(m1, c[2])
		c = [4]uint64{hi1 ^ c[1] ^ k[0], lo1, hi0 ^ c[3] ^ k[1], lo0}
		k[0] += w0
		k[1] += w1
	}
	return c
}
