package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Widen converts little-endian elements of a floating-point dtype to float32.
func Widen(d DType, src []byte, dst []float32) {
	for i := range dst {
		switch d {
		case F32:
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		case BF16:
			dst[i] = BF16Value(binary.LittleEndian.Uint16(src[2*i:]))
		case F16:
			dst[i] = F16Value(binary.LittleEndian.Uint16(src[2*i:]))
		case F64:
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		case U8:
			dst[i] = float32(src[i])
		default:
			panic(fmt.Sprintf("tensor: %v is no type of numbers", d))
		}
	}
}

// Narrow is the inverse of Widen, with rounding to nearest even.
func Narrow(d DType, src []float32, dst []byte) {
	for i, f := range src {
		switch d {
		case F32:
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(f))
		case BF16:
			binary.LittleEndian.PutUint16(dst[2*i:], BF16Bits(f))
		case F16:
			binary.LittleEndian.PutUint16(dst[2*i:], F16Bits(f))
		case F64:
			binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(float64(f)))
		case U8:
			dst[i] = uint8(f)
		default:
			panic(fmt.Sprintf("tensor: %v is no type of numbers", d))
		}
	}
}
