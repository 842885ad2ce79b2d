package quant

import (
	"math"
	"math/bits"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Suffix and usual size of the scales of blocks of DeepSeek, and of all who write transformers' "fp8".
const (
	scaleInv = "_scale_inv"
	fp8Block = 128 // rows and columns of a block with one scale; the last ones may be short
)

var _ = registerPacking(packing{name: "fp8-blocks", source: "DeepSeek-V3, README_WEIGHTS.md; transformers 5.24, " +
	"integrations/finegrained_fp8.py", find: fp8Blocks})

// fp8Blocks takes matrices in E4M3 or E5M2, one or those of all experts, and in pairs of E2M1 in a byte (DeepSeek-V4),
// with scales in any type of floating-point numbers or as exponents, of blocks or of whole matrices.
func fp8Blocks(f *finder, t checkpoint.Info) (*matrix, error) {
	scale, ok := f.all[t.Name+scaleInv]
	codes := codesOf(t.DType)
	if t.DType == checkpoint.I8 {
		codes = e2m1[:]
	}
	if !ok || codes == nil {
		return nil, nil
	}
	return f.scaled(t.Name, t, scale, codes)
}

// codesOf are the numbers of a type of one byte, nil for other types.
func codesOf(d checkpoint.DType) []float32 {
	switch d {
	case checkpoint.F8E4M3:
		return e4m3[:]
	case checkpoint.F8E5M2:
		return e5m2[:]
	}
	return nil
}

// scaled is, by a name, a matrix [rows columns], or one of each expert [experts rows columns], whose blocks have a scale
// each. Codes lie two in a byte where there are sixteen.
func (f *finder) scaled(name string, t, scale checkpoint.Info, codes []float32) (*matrix, error) {
	f.take(t.Name)
	f.take(scale.Name)
	shape := append([]int(nil), t.Shape...)
	last := len(shape) - 1
	if len(codes) == 16 && last > 0 {
		shape[last] *= 2
	}
	lead, scales := len(shape)-2, scale.Shape
	if lead == 1 && len(scales) > 0 && scales[0] == shape[0] && (len(scales) != 2 || scales[1] == 1) {
		scales = append([]int(nil), scales[1:]...) // one or a grid for each expert
	} else if lead == 1 {
		lead = -1
	}
	if lead != 0 && lead != 1 || !isScale(scale.DType) {
		return nil, f.misscaled(t, scale)
	}
	blockRows, blockCols, ok := grainOf(shape[lead:], scales, f.config.block())
	if !ok {
		return nil, f.misscaled(t, scale)
	}
	grid := func(at [][2]int) *Grid {
		g := &Grid{Rows: shape[lead], Cols: shape[last], Table: codes, Group: min(blockCols, shape[last])}
		g.Read = func(rows, cols [2]int, out []uint8, factors, _ []float32) error {
			read := f.wholeCodes
			if len(codes) == 16 {
				read = f.halfCodes
			}
			if err := read(t, at, rows, cols, out); err != nil {
				return err
			}
			s, err := f.scales(scale, at, rows, cols, blockRows, blockCols)
			if err == nil {
				spread(factors, s, rows, cols, blockRows, blockCols)
			}
			return err
		}
		return g
	}
	if lead == 0 {
		return &matrix{name: name, shape: shape, grid: grid(nil)}, nil
	}
	return &matrix{name: name, shape: shape, read: func(ranges [][2]int, dst []byte) error {
		each := 4 * checkpoint.BoxLen(ranges[1:])
		for e := ranges[0][0]; e < ranges[0][1]; e++ {
			if err := grid([][2]int{{e, e + 1}}).floats(ranges[1], ranges[2], dst[:each]); err != nil {
				return err
			}
			dst = dst[each:]
		}
		return nil
	}}, nil
}

func (f *finder) misscaled(t, scale checkpoint.Info) error {
	return f.misshapen(scale.Name, "%s %v, want floating-point numbers or exponents for all of %v, its rows, groups of its "+
		"columns, or blocks as weight_block_size says, of 128×128, or of powers of two that divide it", scale.DType,
		scale.Shape, t.Shape)
}

// wholeCodes reads a box of a matrix of bytes, at an expert's place or none.
func (f *finder) wholeCodes(t checkpoint.Info, at [][2]int, rows, cols [2]int, codes []uint8) error {
	return f.src.ReadRanges(t.Name, append(at[:len(at):len(at)], rows, cols), codes)
}

// halfCodes reads a box of a matrix of bytes with two codes each, the first in the low half.
func (f *finder) halfCodes(t checkpoint.Info, at [][2]int, rows, cols [2]int, codes []uint8) error {
	pairs := blocks(cols, 2)
	raw, err := f.bytes(t, append(at[:len(at):len(at)], rows, pairs)...)
	if err != nil {
		return err
	}
	splitNibbles(raw, pairs, rows, cols, codes, false)
	return nil
}

// isScale reports whether scales may be of a type.
func isScale(d checkpoint.DType) bool {
	_, float := checkpoint.FloatDecoder(d)
	return float != nil || d == checkpoint.U8
}

// scales reads the scales of the blocks that a box meets, at an expert's place or none. A scale may have one axis, of
// rows, or none. Bytes are exponents, as E8M0 has them.
func (f *finder) scales(t checkpoint.Info, at [][2]int, rows, cols [2]int, blockRows, blockCols int) ([]float32, error) {
	axes := len(t.Shape) - len(at)
	box := [][2]int{blocks(rows, blockRows), blocks(cols, blockCols)}
	ranges := append(at[:len(at):len(at)], box[:max(axes, 0)]...)
	if t.DType != checkpoint.U8 {
		return f.floats(t, ranges[:len(t.Shape)]...)
	}
	raw, err := f.bytes(t, ranges[:len(t.Shape)]...)
	out := make([]float32, len(raw))
	for i, b := range raw {
		out[i] = float32(math.Ldexp(1, int(b)-127))
	}
	return out, err
}

// grainOf is the rows and columns of a matrix that share one of the scales of a shape: said by the configuration where
// that fits, else 128 of both where that does, else, where nothing is said, powers of two that divide the matrix.
func grainOf(shape, scales []int, said [2]int) (rows, cols int, ok bool) {
	n, k := shape[0], shape[1]
	a, b := 1, 1
	switch len(scales) {
	case 0:
	case 1:
		a = scales[0]
	case 2:
		a, b = scales[0], scales[1]
	default:
		return 0, 0, false
	}
	fits := func(r, c int) bool {
		return len(scales) == 2 && r > 0 && c > 0 && a == ceilDiv(n, r) && b == ceilDiv(k, c)
	}
	switch {
	case n == 0 || k == 0 || a == 0 || b == 0:
		return 0, 0, false
	case fits(said[0], said[1]):
		return said[0], said[1], true
	case a == 1 && b == 1:
		return n, k, true
	case a == n && k%b == 0:
		return 1, k / b, true
	case fits(fp8Block, fp8Block):
		return fp8Block, fp8Block, true
	case n%a == 0 && k%b == 0 && len(scales) == 2 && said == [2]int{} && bits.OnesCount(uint(n/a)) == 1 &&
		bits.OnesCount(uint(k/b)) == 1:
		return n / a, k / b, true
	}
	return 0, 0, false
}

// e4m3 and e5m2 are the numbers of FP8 by their bytes.
var (
	e4m3 = byteTable(checkpoint.F8E4M3)
	e5m2 = byteTable(checkpoint.F8E5M2)
)

func byteTable(d checkpoint.DType) (out [256]float32) {
	_, decode := checkpoint.FloatDecoder(d)
	for b := range out {
		out[b] = float32(decode([]byte{byte(b)}))
	}
	return out
}
