package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// cast shows the floating-point tensors of a source in one type.
type cast struct {
	Source
	to   DType
	from map[string]Info
}

// Cast shows the tensors of src that are F32, F16 or BF16 in one of these types, rounded to nearest even;
// others stay as they are.
func Cast(src Source, to string) (Source, error) {
	c := &cast{Source: src, to: DType(strings.ToUpper(to)), from: map[string]Info{}}
	if c.to != F32 && c.to != F16 && c.to != BF16 {
		return nil, fmt.Errorf("dtype %q: want f32, f16 or bf16", to)
	}
	for _, t := range src.Tensors() {
		if t.DType != c.to && (t.DType == F32 || t.DType == F16 || t.DType == BF16) {
			c.from[t.Name] = t
		}
	}
	return c, nil
}

// Tensors implements Source.
func (c *cast) Tensors() []Info {
	all := c.Source.Tensors()
	for i := range all {
		if t := &all[i]; c.from[t.Name].Name != "" {
			t.Bytes = t.Bytes / int64(t.DType.Bits()) * int64(c.to.Bits())
			t.DType = c.to
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
	each, size := c.to.Bits()/8, from.DType.Bits()/8
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
		switch c.to {
		case F32:
			le.PutUint32(dst[4*i:], math.Float32bits(x))
		case F16:
			le.PutUint16(dst[2*i:], tensor.F16Bits(x))
		default:
			le.PutUint16(dst[2*i:], tensor.BF16Bits(x))
		}
	}
	return nil
}
