package kernels

import (
	"math"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// StochasticRound16 rounds x to bf16, up in as many of all cases as it is near to the upper neighbour, so that what is added up
// in bf16 is right in the mean where each summand is too small to change the sum. What decides is a hash of x's bits
// and of salt: an update that is made again, and one on another number of ranks, has the same bits.
// In the words of the field: stochastic rounding.
func StochasticRound16(x float32, salt uint32) uint16 {
	u := math.Float32bits(x)
	up := u + hashed(u, salt)&0xffff
	if up&0x7f800000 == 0x7f800000 { // no number becomes an infinity
		return tensor.BF16Bits(x)
	}
	return uint16(up >> 16)
}
