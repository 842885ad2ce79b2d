// Package tensor holds lfactor's tensor: a shape, a dtype and counted, 64-byte-aligned storage taken from a
// pool that has a budget. It imports nothing of lfactor.
package tensor

import "fmt"

// DType is the type of one element.
type DType uint8

// The element types. BF16 and F16 are stored as their 16 bits, in host order (little endian).
const (
	F32 DType = iota
	BF16
	F16
	F64
	I32
	I64
	U8
)

var dtypes = [...]struct {
	name string
	size int
}{{"f32", 4}, {"bf16", 2}, {"f16", 2}, {"f64", 8}, {"i32", 4}, {"i64", 8}, {"u8", 1}}

// Size is the bytes of one element.
func (d DType) Size() int { return dtypes[d].size }

// String is the lower-case name: f32, bf16, f16, f64, i32, i64, u8.
func (d DType) String() string { return dtypes[d].name }

// Float reports whether d is a floating-point type that activations may have.
func (d DType) Float() bool { return d <= F64 }

// ParseDType is the inverse of String; it also takes the long names fp32, bf16, fp16, float32, bfloat16, float16.
func ParseDType(s string) (DType, error) {
	alias := map[string]DType{"fp32": F32, "float32": F32, "bfloat16": BF16, "fp16": F16, "float16": F16}
	if d, ok := alias[s]; ok {
		return d, nil
	}
	for d, t := range dtypes {
		if t.name == s {
			return DType(d), nil
		}
	}
	return 0, fmt.Errorf("dtype %q: unknown; have f32, bf16, f16, f64, i32, i64, u8", s)
}
