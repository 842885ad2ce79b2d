package kernels

import (
	"math"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Golden is SplitMix64's increment.
const Golden = 0x9E3779B97F4A7C15

// SplitMix is the finaliser of SplitMix64.
func SplitMix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// NoiseAt are the random bits by which the number at a place, modulo 2³², is rounded up or down. They are counted from a
// seed and from the place: no bit of the number is part of them, so that a sum that ends otherwise in its last bit is
// rounded by what it would have been rounded by. It is the finalizer of MurmurHash3.
func NoiseAt(seed uint32, place int) uint32 {
	h := seed ^ uint32(place)*0x9e3779b1
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

// StochasticRound16 is stochastic rounding of x to bf16: up with a probability that grows with the distance from the lower
// neighbour, so that sums of many small numbers are right in the mean. The 16 lowest bits of noise decide.
func StochasticRound16(x float32, noise uint32) uint16 {
	up := math.Float32bits(x) + noise&0xffff
	if up&0x7f800000 == 0x7f800000 { // no number becomes an infinity
		return tensor.BF16Bits(x)
	}
	return uint16(up >> 16)
}

// HyperNoise is the noise of the i-th number of a call of the optimizer, whose place in the whole tensor hyper-parameters
// say; moments have 16 bits of it each, the first one the lowest.
func HyperNoise(h []float64, i int) uint32 {
	if run := int(h[HyperRun]); run > 0 {
		i = i/run*int(h[HyperPitch]) + i%run
	}
	return NoiseAt(uint32(h[HyperDraw]), int(h[HyperFirst])+i)
}

// Noise is what the numbers of the first operand of a product, dy, are rounded by that a grain rounds by chance. A number's
// place is its row among those of the microbatch and its column; of rows that went to experts it is among those that came to
// a rank, and of columns that are cut it is among the rank's, as those of blocks are.
type Noise struct {
	Draw  uint64 // of seed, step and microbatch; 0 where a call has none
	Site  uint64 // of tensor and product
	First int    // row of what is rounded
}

// NoiseOf is that of a product of a call without its draw, which lies behind the choice and may be nil.
func NoiseOf(c *Call, product int) (n Noise, draw *tensor.Tensor) {
	return Noise{Site: uint64(c.Attr.I[3])*4 + uint64(product) + 1}, optional(c.In, ChoiceOperand(c.Op)+1)
}

// Row is the seed of the numbers of a row, whose columns are their places (NoiseAt).
func (n *Noise) Row(r int) uint32 {
	if n == nil {
		n = &Noise{}
	}
	return uint32(SplitMix(SplitMix(n.Draw+n.Site*Golden)+uint64(r+n.First+1)*Golden) >> 32)
}
