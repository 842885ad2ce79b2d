package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// DType is an element type by its name in the safetensors specification.
type DType string

// The element types of the specification, version 0.8.
const (
	Bool   DType = "BOOL"
	F4     DType = "F4"
	F6E2M3 DType = "F6_E2M3"
	F6E3M2 DType = "F6_E3M2"
	U8     DType = "U8"
	I8     DType = "I8"
	F8E5M2 DType = "F8_E5M2"
	F8E4M3 DType = "F8_E4M3"
	F8E8M0 DType = "F8_E8M0"
	I16    DType = "I16"
	U16    DType = "U16"
	F16    DType = "F16"
	BF16   DType = "BF16"
	I32    DType = "I32"
	U32    DType = "U32"
	F32    DType = "F32"
	C64    DType = "C64"
	F64    DType = "F64"
	I64    DType = "I64"
	U64    DType = "U64"
)

// dtypes lists the types in the specification's order, which is also the order of tensors in a file: widest
// first, so that every tensor is aligned to its element.
var dtypes = []struct {
	name DType
	bits int
}{
	{Bool, 8}, {F4, 4}, {F6E2M3, 6}, {F6E3M2, 6}, {U8, 8}, {I8, 8}, {F8E5M2, 8}, {F8E4M3, 8}, {F8E8M0, 8},
	{I16, 16}, {U16, 16}, {F16, 16}, {BF16, 16}, {I32, 32}, {U32, 32}, {F32, 32}, {C64, 64}, {F64, 64},
	{I64, 64}, {U64, 64},
}

// Bits is the width of one element, 0 for a type the specification does not have.
func (d DType) Bits() int {
	for _, t := range dtypes {
		if t.name == d {
			return t.bits
		}
	}
	return 0
}

// rank is the place of d in the specification's order.
func (d DType) rank() int {
	for i, t := range dtypes {
		if t.name == d {
			return i
		}
	}
	return -1
}

// ByteSize returns the bytes of a tensor, or an error if the type is unknown, a dimension is negative, the
// product overflows, or elements narrower than a byte do not fill whole bytes.
func ByteSize(d DType, shape []int) (int64, error) {
	bits := int64(d.Bits())
	if bits == 0 {
		return 0, fmt.Errorf("unknown dtype %q", string(d))
	}
	if slices.ContainsFunc(shape, func(n int) bool { return n < 0 }) {
		return 0, fmt.Errorf("negative dimension in shape %v", shape)
	}
	if slices.Contains(shape, 0) {
		return 0, nil
	}
	n := bits
	for _, s := range shape {
		if n > math.MaxInt64/int64(s) {
			return 0, fmt.Errorf("shape %v has more bits than 63 bits count", shape)
		}
		n *= int64(s)
	}
	if n%8 != 0 {
		return 0, fmt.Errorf("shape %v of %s does not fill whole bytes", shape, d)
	}
	return n / 8, nil
}

// NonFinite counts the NaNs and the infinities among the elements of data. Integer types have none.
// len(data) must be a whole number of elements.
func NonFinite(d DType, data []byte) (nan, inf int) {
	size, decode := FloatDecoder(d)
	if decode == nil {
		return 0, 0
	}
	for i := 0; i+size <= len(data); i += size {
		switch v := decode(data[i:]); {
		case v != v:
			nan++
		case math.IsInf(v, 0):
			inf++
		}
	}
	return nan, inf
}

// FloatDecoder returns the bytes of an element and how to read one; nil for types that are not floats of whole bytes.
func FloatDecoder(d DType) (int, func([]byte) float64) {
	switch d {
	case F64:
		return 8, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
	case F32:
		return 4, func(b []byte) float64 {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
	case BF16:
		return 2, func(b []byte) float64 {
			return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
		}
	case F16:
		return 2, func(b []byte) float64 {
			return smallFloat(uint64(binary.LittleEndian.Uint16(b)), 5, 10, true)
		}
	case F8E5M2:
		return 1, func(b []byte) float64 { return smallFloat(uint64(b[0]), 5, 2, true) }
	case F8E4M3:
		return 1, func(b []byte) float64 { return smallFloat(uint64(b[0]), 4, 3, false) }
	case F8E8M0:
		return 1, func(b []byte) float64 {
			if b[0] == 0xff {
				return math.NaN()
			}
			return math.Ldexp(1, int(b[0])-127)
		}
	}
	return 0, nil
}

// smallFloat decodes sign, exp exponent bits and mant mantissa bits with IEEE 754 bias. Without infinities
// (OCP FP8 E4M3, arXiv:2209.05433) the top exponent is an ordinary one and only all ones is NaN.
func smallFloat(bits uint64, exp, mant int, infinities bool) float64 {
	m := bits & (1<<mant - 1)
	e := int(bits >> mant & (1<<exp - 1))
	top := 1<<exp - 1
	bias := 1<<(exp-1) - 1
	sign := 1.0
	if bits>>(exp+mant)&1 == 1 {
		sign = -1
	}
	switch {
	case e == top && infinities && m == 0:
		return math.Inf(int(sign))
	case e == top && (infinities || m == 1<<mant-1):
		return math.NaN()
	case e == 0:
		return sign * math.Ldexp(float64(m), 1-bias-mant)
	}
	return sign * math.Ldexp(float64(m|1<<mant), e-bias-mant)
}
