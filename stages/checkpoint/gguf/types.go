package gguf

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Type is how a tensor's elements are kept, by ggml's number.
type Type uint32

// The types that are read.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q2_K Type = 10
	Q3_K Type = 11
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

// layout is a block of a type: how many elements are in how many bytes, how they are read and written.
// decode sets len(y) = elements from b, and encode appends the block of as many numbers.
type layout struct {
	name            string
	elements, bytes int
	decode          func(y []float32, b []byte)
	encode          func(out []byte, x []float32) []byte
}

var layouts = map[Type]layout{
	F32: {"F32", 1, 4, func(y []float32, b []byte) { y[0] = math.Float32frombits(binary.LittleEndian.Uint32(b)) },
		func(out []byte, x []float32) []byte {
			return binary.LittleEndian.AppendUint32(out, math.Float32bits(x[0]))
		}},
	F16: {"F16", 1, 2, func(y []float32, b []byte) { y[0] = half(b) },
		func(out []byte, x []float32) []byte { return appendHalf(out, x[0]) }},
	BF16: {"BF16", 1, 2, func(y []float32, b []byte) { y[0] = tensor.BF16Value(binary.LittleEndian.Uint16(b)) },
		func(out []byte, x []float32) []byte {
			return binary.LittleEndian.AppendUint16(out, tensor.BF16Bits(x[0]))
		}},
	Q4_0: {"Q4_0", 32, 18, decodeHalves(4, false), encodeEven(4)},
	Q4_1: {"Q4_1", 32, 20, decodeHalves(4, true), encodeSpan(4)},
	Q5_0: {"Q5_0", 32, 22, decodeHalves(5, false), encodeEven(5)},
	Q5_1: {"Q5_1", 32, 24, decodeHalves(5, true), encodeSpan(5)},
	Q8_0: {"Q8_0", 32, 34, decodeQ80, encodeQ80},
	Q2_K: {"Q2_K", 256, 84, decodeQ2K, encodeQ2K},
	Q3_K: {"Q3_K", 256, 110, decodeQ3K, encodeQ3K},
	Q4_K: {"Q4_K", 256, 144, decodeSpans(4), encodeQ4K},
	Q5_K: {"Q5_K", 256, 176, decodeSpans(5), encodeQ5K},
	Q6_K: {"Q6_K", 256, 210, decodeQ6K, encodeQ6K},
}

// others are types that are not read, for messages.
var others = map[Type]string{9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
	20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
	29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"}

// String is ggml's name of the type.
func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	if name, ok := others[t]; ok {
		return name
	}
	return fmt.Sprintf("%d", uint32(t))
}

// typeNames are the types that are read.
func typeNames() (names []string) {
	for _, t := range slices.Sorted(maps.Keys(layouts)) {
		names = append(names, layouts[t].name)
	}
	return names
}

// half is a float16 of two bytes.
func half(b []byte) float32 { return tensor.F16Value(binary.LittleEndian.Uint16(b)) }

// Products are rounded to float32 before a difference, as ggml's definition has it, whatever the processor
// could fuse: so the conversions below.

// decodeHalves reads blocks of a scale, a least value where they have one, fifth bits in a word of 32, and 32 numbers: the low halves of
// 16 bytes, then the high ones. Without a least value the middle number is zero.
func decodeHalves(bits int, least bool) func(y []float32, b []byte) {
	return func(y []float32, b []byte) {
		d, m, zero, high := half(b), float32(math.Copysign(0, -1)), 1<<(bits-1), uint32(0)
		if b = b[2:]; least {
			m, zero, b = half(b), 0, b[2:]
		}
		if bits == 5 {
			high, b = binary.LittleEndian.Uint32(b), b[4:]
		}
		for i, q := range b[:16] {
			lo, hi := int(q&15)|int(high>>i&1)<<4, int(q>>4)|int(high>>(i+16)&1)<<4
			y[i], y[i+16] = float32(d*float32(lo-zero))+m, float32(d*float32(hi-zero))+m
		}
	}
}

// decodeQ80: a scale, then 32 signed bytes.
func decodeQ80(y []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:34] {
		y[i] = d * float32(int8(q))
	}
}

// scaleMin are the scale and the least value of one of eight parts of a block, of six bits each in 12 bytes.
func scaleMin(j int, b []byte) (scale, least byte) {
	if j < 4 {
		return b[j] & 63, b[j+4] & 63
	}
	return b[j+4]&15 | b[j-4]>>6<<4, b[j+4]>>4 | b[j]>>6<<4
}

// decodeSpans reads scales of scales and eight parts of 32 numbers of four bits with a scale and a least value each; with five bits,
// the fifth ones are in 32 bytes before, a bit of each for a part.
func decodeSpans(bits int) func(y []float32, b []byte) {
	return func(y []float32, b []byte) {
		d, least := half(b), half(b[2:])
		codes := b[16+(bits-4)*32:]
		for part := range 8 {
			s, m := scaleMin(part, b[4:16])
			ds, ms := d*float32(s), least*float32(m)
			for i, q := range codes[part/2*32:][:32] {
				n := q >> (part % 2 * 4) & 15
				if bits == 5 {
					n |= b[16+i] >> part & 1 << 4
				}
				y[part*32+i] = float32(ds*float32(n)) - ms
			}
		}
	}
}

// decodeQ6K: 16 parts of 16 numbers of six bits, 32 for zero: four bits in 128 bytes, two in 64, then
// scales of eight bits and a scale of these.
func decodeQ6K(y []float32, b []byte) {
	d := half(b[208:])
	for side := range 2 {
		low, high, scales := b[side*64:][:64], b[128+side*32:][:32], b[192+side*8:][:8]
		for row := range 4 {
			for i := range 32 {
				q := low[row%2*32+i]>>(row/2*4)&15 | high[i]>>(2*row)&3<<4
				s := d * float32(int8(scales[row*2+i/16]))
				y[side*128+row*32+i] = s * float32(int(q)-32)
			}
		}
	}
}

// decodeQ2K: 16 parts of 16 numbers of two bits, a scale and a least value of four bits each, then two scales of these.
func decodeQ2K(y []float32, b []byte) {
	d, least := half(b[80:]), half(b[82:])
	for i := range y {
		s := b[i/16]
		q := b[16+i/128*32+i%32] >> (i % 128 / 32 * 2) & 3
		y[i] = float32(float32(d*float32(s&15))*float32(q)) - float32(least*float32(s>>4))
	}
}

// decodeQ3K: 16 parts of 16 numbers of three bits, 4 for zero: third bits in 32 bytes, two in 64, then
// scales of six bits, 32 for zero, and a scale of these.
func decodeQ3K(y []float32, b []byte) {
	d := half(b[108:])
	for i := range y {
		s := d * float32(scaleQ3(i/16, b[96:108]))
		q := int(b[32+i/128*32+i%32]>>(i%128/32*2)&3) | int(b[i%32]>>(i/32)&1)<<2
		y[i] = s * float32(q-4)
	}
}

// scaleQ3 is the scale of a part of a block of Q3_K: four bits in halves of 8 bytes, two in 4.
func scaleQ3(part int, b []byte) int {
	return int(b[part%8]>>(part/8*4)&15|b[8+part%4]>>(part/4*2)&3<<4) - 32
}

// decode reads whole blocks of a type.
func (t Type) decode(y []float32, b []byte) {
	l := layouts[t]
	for len(y) > 0 {
		l.decode(y[:l.elements], b[:l.bytes])
		y, b = y[l.elements:], b[l.bytes:]
	}
}

// encode appends a row of a type; its length is a multiple of the block.
func (t Type) encode(out []byte, x []float32) []byte {
	for l := layouts[t]; len(x) > 0; x = x[l.elements:] {
		out = l.encode(out, x[:l.elements])
	}
	return out
}
