package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// cast shows the floating-point tensors of a source in one type.
type cast struct {
	Source
	from map[string]Info
	to   map[string]DType
	// loose makes what is too large for F16 infinite: it is compared, not written
	loose bool
}

// Cast shows the tensors of src that are F32, F16 or BF16 in one of these types, rounded to nearest even; others stay
// as they are. Those with one of full in their names are shown in F32. A number that is too large for F16 is an error
// of who reads it.
func Cast(src Source, to string, full ...string) (Source, error) {
	c := &cast{Source: src, from: map[string]Info{}, to: map[string]DType{}}
	as := DType(strings.ToUpper(to))
	if as != F32 && as != F16 && as != BF16 {
		return nil, fmt.Errorf("dtype %q: want f32, f16 or bf16", to)
	}
	for _, t := range src.Tensors() {
		to := as
		if slices.ContainsFunc(full, func(part string) bool { return strings.Contains(t.Name, part) }) {
			to = F32
		}
		if t.DType != to && (t.DType == F32 || t.DType == F16 || t.DType == BF16) {
			c.from[t.Name], c.to[t.Name] = t, to
		}
	}
	return c, nil
}

// Tensors implements Source.
func (c *cast) Tensors() []Info {
	all := c.Source.Tensors()
	for i := range all {
		if t := &all[i]; c.from[t.Name].Name != "" {
			to := c.to[t.Name]
			t.Bytes = t.Bytes / int64(t.DType.Bits()) * int64(to.Bits())
			t.DType = to
		}
	}
	return all
}

// ReadRanges implements Source.
func (c *cast) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	from, ok := c.from[name]
	if !ok {
		return c.Source.ReadRanges(name, ranges, dst)
	}
	to := c.to[name]
	each, size := to.Bits()/8, from.DType.Bits()/8
	raw := make([]byte, len(dst)/each*size)
	if err := c.Source.ReadRanges(name, ranges, raw); err != nil {
		return err
	}
	le := binary.LittleEndian
	for i := range len(dst) / each {
		var x float32
		switch from.DType {
		case F32:
			x = math.Float32frombits(le.Uint32(raw[4*i:]))
		case F16:
			x = tensor.F16Value(le.Uint16(raw[2*i:]))
		default:
			x = tensor.BF16Value(le.Uint16(raw[2*i:]))
		}
		switch to {
		case F32:
			le.PutUint32(dst[4*i:], math.Float32bits(x))
		case F16:
			bits := tensor.F16Bits(x)
			if le.PutUint16(dst[2*i:], bits); bits&0x7fff == 0x7c00 && x-x == 0 && !c.loose {
				return &Error{File: from.File, Tensor: name, Fault: Malformed,
					Why: fmt.Sprintf("%g is too large for f16, whose largest number is 65504: write bf16 or f32", x)}
			}
		default:
			le.PutUint16(dst[2*i:], tensor.BF16Bits(x))
		}
	}
	return nil
}

// finite is a source whose numbers are held to be finite.
type finite struct {
	Source
	infos map[string]Info
}

// Finite shows src, and makes a number of F64, F32, F16 or BF16 that is infinite or none an error of who reads it.
func Finite(src Source) Source {
	f := &finite{Source: src, infos: map[string]Info{}}
	for _, t := range src.Tensors() {
		f.infos[t.Name] = t
	}
	return f
}

// ReadRanges implements Source.
func (f *finite) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	if err := f.Source.ReadRanges(name, ranges, dst); err != nil {
		return err
	}
	t := f.infos[name]
	each := t.DType.Bits() / 8
	exponent, ok := map[DType]uint16{F64: 0x7ff0, F32: 0x7f80, F16: 0x7c00, BF16: 0x7f80}[t.DType]
	for at := each - 2; ok && at+2 <= len(dst); at += each { // the two bytes with the exponent, which is all ones
		if binary.LittleEndian.Uint16(dst[at:])&exponent == exponent {
			return &Error{File: t.File, Tensor: name, Fault: Malformed, Why: "it has a number that is not finite"}
		}
	}
	return nil
}
