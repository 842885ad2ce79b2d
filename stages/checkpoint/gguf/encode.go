package gguf

import (
	"encoding/binary"
	"math"
	"regexp"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// written is a type of matrices that Export writes: llama.cpp's number of a file that is mostly of it, and,
// of few bits, the type of embedding and head, which all others lean on. Of a mixture the embedding has it only
// where it is the head.
type written struct {
	t    Type
	file uint32
	ends Type
	mix  string // names a mixture
}

var writtenTypes = map[string]written{"f32": {t: F32}, "f16": {t: F16, file: 1}, "bf16": {t: BF16, file: 32},
	"q8_0": {t: Q8_0, file: 7, ends: Q8_0}, "q4_0": {t: Q4_0, file: 2, ends: Q8_0},
	"q4_1": {t: Q4_1, file: 3, ends: Q8_0}, "q5_0": {t: Q5_0, file: 8, ends: Q8_0},
	"q5_1": {t: Q5_1, file: 9, ends: Q8_0}, "q2_k": {t: Q2_K, file: 10, ends: Q6_K},
	"q3_k": {t: Q3_K, file: 11, ends: Q6_K}, "q4_k": {t: Q4_K, file: 14, ends: Q6_K},
	"q5_k": {t: Q5_K, file: 16, ends: Q6_K}, "q6_k": {t: Q6_K, file: 18, ends: Q6_K},
	"q3_k_s": {Q3_K, 11, Q6_K, "q3_k_s"}, "q3_k_m": {Q3_K, 12, Q6_K, "q3_k_m"}, "q3_k_l": {Q3_K, 13, Q6_K, "q3_k_l"},
	"q4_k_s": {Q4_K, 14, Q6_K, "q4_k_s"}, "q4_k_m": {Q4_K, 15, Q6_K, "q4_k_m"}, "q5_k_s": {Q5_K, 16, Q6_K, "q5_k_s"},
	"q5_k_m": {Q5_K, 17, Q6_K, "q5_k_m"}}

// shorter are the types of matrices whose rows are no whole blocks of 256, as llama.cpp chooses them.
var shorter = map[Type]Type{Q2_K: Q4_0, Q3_K: Q4_0, Q4_K: Q5_0, Q5_K: Q5_1, Q6_K: Q8_0}

// Written are the names of the types that Export writes.
func Written() []string {
	return []string{"f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_k", "q5_1", "q5_0", "q4_k_m", "q4_k_s",
		"q4_k", "q4_1", "q4_0", "q3_k_l", "q3_k_m", "q3_k_s", "q3_k", "q2_k"}
}

// FewBits reports whether a type of Written is one of few bits, which GGUF alone has.
func FewBits(name string) bool { return name != "" && writtenTypes[name].t.few() }

// few reports whether numbers of a type share scales.
func (t Type) few() bool { return layouts[t].elements > 1 }

// router is what decides on a token's experts: few bits would send it to others, and llama.cpp keeps it too.
var router = regexp.MustCompile(`\.ffn_gate_inp(_shexp)?\.weight$`)

// of is the type of a tensor of a model: vectors are float32, and routers where others have few bits; rows of no
// whole blocks of 32 float16.
func (w written) of(name string, shape []int, c *config) Type {
	as := w.t
	if len(shape) == 1 || as.few() && router.MatchString(name) {
		return F32
	}
	m, mixed := mixtures[w.mix]
	switch ends := name == "output.weight" || name == "token_embd.weight" && (c.tied || !mixed); {
	case as.few() && ends:
		as = w.ends
	case mixed:
		as = m.kind(name, as, c)
	}
	for shape[len(shape)-1]%layouts[as].elements != 0 {
		next, ok := shorter[as]
		if !ok {
			return F16
		}
		as = next
	}
	return as
}

// Blocks of 32 numbers, as llama.cpp makes them. Products are rounded to float32 before a sum, whatever the
// processor could fuse.

func appendHalf(out []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint16(out, tensor.F16Bits(x))
}

// inverse is 1/x, 0 of 0.
func inverse(x float32) float32 {
	if x == 0 {
		return 0
	}
	return 1 / x
}

// peak is the number of largest magnitude.
func peak(x []float32) (signed float32) {
	most := float32(0)
	for _, v := range x {
		if a := float32(math.Abs(float64(v))); a > most {
			most, signed = a, v
		}
	}
	return signed
}

// span is the least and the greatest number.
func span(x []float32) (low, high float32) {
	low, high = x[0], x[0]
	for _, v := range x {
		low, high = min(low, v), max(high, v)
	}
	return low, high
}

// encodeQ80 makes a block: the largest magnitude becomes 127, the others are rounded, halves away from zero.
func encodeQ80(out []byte, x []float32) []byte {
	d := float32(math.Abs(float64(peak(x)))) / 127
	by := inverse(d)
	out = appendHalf(out, d)
	for _, v := range x {
		out = append(out, byte(int8(math.Round(float64(v*by)))))
	}
	return out
}

// encodeEven makes a block: the number of largest magnitude becomes the least code, -8 or -16, the others are rounded down behind half a step.
func encodeEven(bits int) func(out []byte, x []float32) []byte {
	return func(out []byte, x []float32) []byte {
		middle := 1 << (bits - 1)
		d := peak(x) / float32(-middle)
		return appendCodes(appendHalf(out, d), x, bits, inverse(d), 0, float64(middle)+0.5)
	}
}

// encodeSpan makes a block: the least number becomes 0, the greatest 15 or 31.
func encodeSpan(bits int) func(out []byte, x []float32) []byte {
	return func(out []byte, x []float32) []byte {
		low, high := span(x)
		d := (high - low) / float32(int(1)<<bits-1)
		return appendCodes(appendHalf(appendHalf(out, d), low), x, bits, inverse(d), low, 0.5)
	}
}

// appendCodes appends codes of four or five bits, (v - less)·by rounded down behind plus: fifth bits in a
// word, then low ones in halves of 16 bytes. Q4_0 takes the product exactly, as llama.cpp's package does.
func appendCodes(out []byte, x []float32, bits int, by, less float32, plus float64) []byte {
	var codes [32]byte
	high := uint32(0)
	for i, v := range x {
		at := float64(v)*float64(by) + plus
		if plus != 8.5 {
			at = float64(float32((v-less)*by) + float32(plus))
		}
		codes[i] = byte(min(1<<bits-1, max(0, int(math.Trunc(at)))))
		high |= uint32(codes[i]>>4) << i
	}
	if bits == 5 {
		out = binary.LittleEndian.AppendUint32(out, high)
	}
	for i := range 16 {
		out = append(out, codes[i]&15|codes[i+16]<<4)
	}
	return out
}
