package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// Suffixes of what quantized weights have beside them: DeepSeek's scales of blocks, and compressed-tensors'
// packed integers.
const (
	scaleInv    = "_scale_inv"
	packedTail  = "_packed"
	scaleTail   = "_scale"
	shapeTail   = "_shape"
	fp8Block    = 128 // rows and columns of a block with one scale; the last ones may be short
	int4PerWord = 8
)

// dequantized reads quantized matrices as float32.
type dequantized struct {
	Source
	infos  map[string]Info // by name, as they are shown
	of     map[string]Info // quantized tensors by the name of the matrix
	scales map[string]Info
}

// Dequantized shows matrices that src keeps in blocks of FP8 (E4M3 with a float32 scale for 128×128, as
// DeepSeek V3's), in groups of four-bit integers (compressed-tensors' pack-quantized, symmetric, as Kimi
// K2's) or in blocks of four-bit numbers (MXFP4, as gpt-oss's experts) as float32, which is exact but for
// the one rounding of a number times its scale. A source without any is given back as it is. What cannot be
// read is an *Error.
func Dequantized(src Source, path string) (Source, error) {
	d := &dequantized{Source: src, infos: map[string]Info{}, of: map[string]Info{},
		scales: map[string]Info{}}
	all := map[string]Info{}
	for _, t := range src.Tensors() {
		all[t.Name] = t
	}
	drop := map[string]bool{}
	for _, t := range src.Tensors() {
		if err := d.fp8(t, all, drop, path); err != nil {
			return nil, err
		}
		if err := d.int4(t, all, drop, path); err != nil {
			return nil, err
		}
		if err := d.fp4(t, all, drop, path); err != nil {
			return nil, err
		}
	}
	if len(d.of) == 0 {
		return src, nil
	}
	for _, t := range src.Tensors() {
		if !drop[t.Name] {
			d.infos[t.Name] = t
		}
	}
	return d, nil
}

// add shows a tensor of a shape in place of t.
func (d *dequantized) add(name string, t, scale Info, shape ...int) {
	d.of[name], d.scales[name] = t, scale
	bytes := int64(4)
	for _, n := range shape {
		bytes *= int64(n)
	}
	d.infos[name] = Info{Name: name, DType: F32, Shape: shape, Bytes: bytes}
}

// fp8 takes a matrix in blocks of FP8.
func (d *dequantized) fp8(t Info, all map[string]Info, drop map[string]bool, path string) error {
	scale, ok := all[t.Name+scaleInv]
	if !ok || t.DType != F8E4M3 {
		return nil
	}
	drop[t.Name], drop[scale.Name] = true, true
	if len(t.Shape) != 2 || len(scale.Shape) != 2 || scale.DType != F32 ||
		scale.Shape[0] != ceilDiv(t.Shape[0], fp8Block) ||
		scale.Shape[1] != ceilDiv(t.Shape[1], fp8Block) {
		return &Error{File: path, Tensor: scale.Name, Fault: Misshapen,
			Why: fmt.Sprintf("%s %v, want F32 with a number for each block of 128×128 of %v", scale.DType,
				scale.Shape, t.Shape)}
	}
	d.add(t.Name, t, scale, t.Shape[0], t.Shape[1])
	return nil
}

// int4 takes a matrix in groups of four-bit integers.
func (d *dequantized) int4(t Info, all map[string]Info, drop map[string]bool, path string) error {
	name, ok := strings.CutSuffix(t.Name, packedTail)
	if !ok || t.DType != I32 {
		return nil
	}
	for _, tail := range []string{"_zero_point", "_g_idx"} {
		if _, has := all[name+tail]; has {
			return &Error{File: path, Tensor: name + tail, Fault: Extra,
				Why: "only symmetric groups of neighbouring columns can be read"}
		}
	}
	scale, shape := all[name+scaleTail], all[name+shapeTail]
	drop[t.Name], drop[scale.Name], drop[shape.Name] = true, true, true
	rows, cols := 0, 0
	if len(t.Shape) == 2 {
		rows, cols = t.Shape[0], t.Shape[1]*int4PerWord
	}
	if shape.Name != "" && len(shape.Shape) == 1 && shape.Shape[0] == 2 && shape.DType == I64 {
		var raw [16]byte
		if err := d.Source.ReadRanges(shape.Name, [][2]int{{0, 2}}, raw[:]); err != nil {
			return err
		}
		said := int(binary.LittleEndian.Uint64(raw[8:]))
		if int(binary.LittleEndian.Uint64(raw[:])) == rows && ceilDiv(said,
			int4PerWord) == cols/int4PerWord {
			cols = said
		}
	}
	if _, float := floatDecoder(scale.DType); rows == 0 || cols == 0 || len(scale.Shape) != 2 ||
		float == nil || scale.Shape[0] != rows ||
		scale.Shape[1] == 0 || cols%scale.Shape[1] != 0 {
		return &Error{File: path, Tensor: name + scaleTail, Fault: Misshapen,
			Why: fmt.Sprintf("%s %v, want a floating-point number for each group of columns of [%d %d]",
				scale.DType, scale.Shape, rows, cols)}
	}
	d.add(name, t, scale, rows, cols)
	return nil
}

func ceilDiv(n, by int) int { return (n + by - 1) / by }

// Tensors implements Source.
func (d *dequantized) Tensors() []Info { return sortedInfos(d.infos) }

// QuantizedAt reports whether a source of Dequantized made a tensor from quantized numbers.
func QuantizedAt(src Source, name string) bool {
	d, ok := src.(*dequantized)
	return ok && d.of[name].Name != ""
}

// ReadRanges implements Source.
func (d *dequantized) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	t, ok := d.of[name]
	if !ok {
		return d.Source.ReadRanges(name, ranges, dst)
	}
	for _, r := range ranges {
		if r[0] >= r[1] {
			return nil
		}
	}
	if t.DType == U8 {
		return d.readFP4(t, d.scales[name], ranges, dst)
	}
	rows, cols := ranges[0], ranges[1]
	if t.DType == F8E4M3 {
		return d.readFP8(t, d.scales[name], rows, cols, dst)
	}
	return d.readInt4(t, d.scales[name], d.infos[name].Shape[1], rows, cols, dst)
}

// readFP8 reads a box of a tensor in E4M3 as float32, with one scale per square block of fp8Block.
// The box may begin inside a block, so indices are taken relative to its first block.
func (d *dequantized) readFP8(t, scale Info, rows, cols [2]int, dst []byte) error {
	w := cols[1] - cols[0]
	raw := make([]byte, (rows[1]-rows[0])*w)
	if err := d.Source.ReadRanges(t.Name, [][2]int{rows, cols}, raw); err != nil {
		return err
	}
	s, each, err := d.scaleBox(scale, [2]int{rows[0] / fp8Block, ceilDiv(rows[1], fp8Block)},
		[2]int{cols[0] / fp8Block, ceilDiv(cols[1], fp8Block)})
	if err != nil {
		return err
	}
	for i, b := range raw {
		r, c := rows[0]+i/w, cols[0]+i%w
		by := s[(r/fp8Block-rows[0]/fp8Block)*each+c/fp8Block-cols[0]/fp8Block]
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(e4m3[b]*by))
	}
	return nil
}

// readInt4 reads a box of a tensor in 4 bits as float32: eight values per 32-bit word, low bits
// first, with 8 for zero, and one scale per group of columns.
func (d *dequantized) readInt4(t, scale Info, width int, rows, cols [2]int, dst []byte) error {
	group := width / scale.Shape[1]
	words := [2]int{cols[0] / int4PerWord, ceilDiv(cols[1], int4PerWord)}
	perRow := words[1] - words[0]
	raw := make([]byte, 4*(rows[1]-rows[0])*perRow)
	if err := d.Source.ReadRanges(t.Name, [][2]int{rows, words}, raw); err != nil {
		return err
	}
	s, each, err := d.scaleBox(scale, rows, [2]int{cols[0] / group, ceilDiv(cols[1], group)})
	if err != nil {
		return err
	}
	i := 0
	for r := range rows[1] - rows[0] {
		for c := cols[0]; c < cols[1]; c++ {
			word := binary.LittleEndian.Uint32(raw[4*(r*perRow+c/int4PerWord-words[0]):])
			q := int(word>>(4*(c%int4PerWord))&15) - 8
			binary.LittleEndian.PutUint32(dst[4*i:],
				math.Float32bits(float32(q)*s[r*each+c/group-cols[0]/group]))
			i++
		}
	}
	return nil
}

// scaleBox reads some scales; each is how many a row has.
func (d *dequantized) scaleBox(t Info, rows, cols [2]int) (s []float32, each int, err error) {
	size, decode := floatDecoder(t.DType)
	each = cols[1] - cols[0]
	raw := make([]byte, (rows[1]-rows[0])*each*size)
	if err := d.Source.ReadRanges(t.Name, [][2]int{rows, cols}, raw); err != nil {
		return nil, 0, err
	}
	s = make([]float32, (rows[1]-rows[0])*each)
	for i := range s {
		s[i] = float32(decode(raw[i*size:]))
	}
	return s, each, nil
}

// e4m3 are the numbers of FP8 by their bytes.
var e4m3 = func() (out [256]float32) {
	_, decode := floatDecoder(F8E4M3)
	for b := range out {
		out[b] = float32(decode([]byte{byte(b)}))
	}
	return out
}()
