package tensor

import "math"

// BF16Bits rounds f to bfloat16, to nearest even; a NaN stays a (quiet) NaN.
func BF16Bits(f float32) uint16 {
	u := math.Float32bits(f)
	if f != f {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// BF16Value is the exact value of a bfloat16.
func BF16Value(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// F16Bits rounds f to IEEE 754 binary16, to nearest even, with subnormals; beyond 65504 it is an infinity.
func F16Bits(f float32) uint16 {
	u := math.Float32bits(f)
	sign := uint16(u >> 16 & 0x8000)
	u &= 0x7fffffff
	switch {
	case u > 0x7f800000:
		return sign | 0x7e00 | uint16(u>>13&0x3ff)
	case u >= 0x477ff000: // half way from the largest finite value to the next
		return sign | 0x7c00
	case u < 0x38800000: // below 2^-14: adding 0.5 puts the value on the grid of subnormals
		return sign | uint16(math.Float32bits(math.Float32frombits(u)+0.5)-0x3f000000)
	}
	return sign | uint16((u-0x38000000+0xfff+u>>13&1)>>13)
}

// F16Value is the exact value of an IEEE 754 binary16.
func F16Value(b uint16) float32 {
	sign, e, m := uint32(b&0x8000)<<16, uint32(b>>10&31), uint32(b&0x3ff)
	switch {
	case e == 31:
		return math.Float32frombits(sign | 0x7f800000 | m<<13)
	case e == 0: // m·2^-24, exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(m)*0x1p-24))
	}
	return math.Float32frombits(sign | (e+112)<<23 | m<<13)
}

// RoundOdd converts x to float32 with "round to odd", so that a further rounding to bf16 or f16 rounds x itself once.
func RoundOdd(x float64) float32 {
	r := float32(x)
	if float64(r) == x || x != x {
		return r
	}
	u := math.Float32bits(r)
	if math.Abs(float64(r)) > math.Abs(x) {
		u--
	}
	return math.Float32frombits(u | 1)
}
