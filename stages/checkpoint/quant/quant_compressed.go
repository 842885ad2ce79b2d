package quant

import (
	"encoding/binary"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Ends of the names of what compressed-tensors keeps of a matrix.
const (
	packedTail = "_packed"
	scaleTail  = "_scale"
	shapeTail  = "_shape"
	zeroTail   = "_zero_point"
	orderTail  = "_g_idx"
)

var (
	_ = registerPacking(packing{name: "pack-quantized", source: "compressed-tensors 0.20", find: packQuantized})
	_ = registerPacking(packing{name: "int-quantized", source: "compressed-tensors 0.20", find: plainQuantized})
)

// packQuantized takes a matrix of integers of 2, 4 or 8 bits that share 32-bit words, from the low bits on,
// with a scale for each group of columns.
func packQuantized(f *finder, t checkpoint.Info) (*matrix, error) {
	name, ok := strings.CutSuffix(t.Name, packedTail)
	if !ok || t.DType != checkpoint.I32 {
		return nil, nil
	}
	f.take(t.Name)
	scale, shape := f.take(name+scaleTail), f.take(name+shapeTail)
	p := &packedWords{f: f, words: t, scale: scale, zero: f.take(name + zeroTail), order: f.take(name + orderTail)}
	if err := p.measure(shape); err != nil {
		return nil, err
	}
	_, float := checkpoint.FloatDecoder(scale.DType)
	if p.rows == 0 || p.cols == 0 || len(scale.Shape) != 2 || float == nil || scale.Shape[0] != p.rows ||
		scale.Shape[1] == 0 || p.order.Name == "" && p.cols%scale.Shape[1] != 0 {
		return nil, f.misshapen(name+scaleTail,
			"%s %v, want a floating-point number for each group of columns of [%d %d]",
			scale.DType, scale.Shape, p.rows, p.cols)
	}
	p.groups = scale.Shape[1]
	if z := p.zero; z.Name != "" && (z.DType != checkpoint.I32 || len(z.Shape) != 2 || z.Shape[1] != p.groups ||
		z.Shape[0] != ceilDiv(p.rows, p.each())) {
		return nil, f.misshapen(z.Name, "%s %v, want I32 with a zero for each of %v, of rows that share words", z.DType,
			z.Shape, scale.Shape)
	}
	if o := p.order; o.Name != "" && (o.DType != checkpoint.I32 || len(o.Shape) != 1 || o.Shape[0] != p.cols) {
		return nil, f.misshapen(o.Name, "%s %v, want I32 with the group of each of %d columns", o.DType,
			o.Shape, p.cols)
	}
	g := &Grid{Rows: p.rows, Cols: p.cols, Table: wholeNumbers(p.bits, 1<<(p.bits-1)), Read: p.read,
		Zeros: p.zero.Name != ""}
	if p.order.Name == "" {
		g.Group = p.cols / p.groups
	} else if err := p.readOrder(); err != nil {
		return nil, err
	}
	return &matrix{name: name, shape: []int{p.rows, p.cols}, grid: g}, nil
}

// packedWords is a matrix [rows cols] whose integers share words along columns.
type packedWords struct {
	f                         *finder
	words, scale, zero, order checkpoint.Info
	rows, cols, bits, groups  int
	group                     []uint32 // of each column, nil for neighbours
}

// each is how many integers a word has.
func (p *packedWords) each() int { return 32 / p.bits }

// measure finds the shape, and the bits that go with it.
func (p *packedWords) measure(shape checkpoint.Info) error {
	p.bits = 4
	if len(p.words.Shape) != 2 {
		return nil
	}
	p.rows, p.cols = p.words.Shape[0], p.words.Shape[1]*p.each()
	if len(shape.Shape) != 1 || shape.Shape[0] != 2 || shape.DType != checkpoint.I64 && shape.DType != checkpoint.I32 {
		return nil
	}
	raw := make([]byte, 2*shape.DType.Bits()/8)
	if err := p.f.src.ReadRanges(shape.Name, [][2]int{{0, 2}}, raw); err != nil {
		return err
	}
	le := binary.LittleEndian
	rows, cols := int(le.Uint32(raw)), int(le.Uint32(raw[4:]))
	if shape.DType == checkpoint.I64 {
		rows, cols = int(le.Uint64(raw)), int(le.Uint64(raw[8:]))
	}
	for _, bits := range []int{4, 8, 2} { // the usual ones first: few columns fit several
		if rows == p.rows && cols > 0 && ceilDiv(cols, 32/bits) == p.words.Shape[1] {
			p.bits, p.cols = bits, cols
			return nil
		}
	}
	return p.f.misshapen(shape.Name, "it says [%d %d], which %v words of %s do not hold", rows, cols,
		p.words.Shape, p.words.Name)
}

// readOrder reads the groups of columns.
func (p *packedWords) readOrder() (err error) {
	p.group, err = p.f.words(p.order, [2]int{0, p.cols})
	for c, g := range p.group {
		if err == nil && g >= uint32(p.groups) {
			return p.f.misshapen(p.order.Name, "column %d is of group %d, and there are %d", c, g, p.groups)
		}
	}
	return err
}

// groupOf is the group of a column.
func (p *packedWords) groupOf(c int) int {
	if p.group != nil {
		return int(p.group[c])
	}
	return c / (p.cols / p.groups)
}

// read is a Grid's.
func (p *packedWords) read(rows, cols [2]int, codes []uint8, scales, zeros []float32) error {
	each, mask := p.each(), uint32(1)<<p.bits-1
	at := blocks(cols, each)
	words, err := p.f.words(p.words, rows, at)
	if err != nil {
		return err
	}
	all := [2]int{0, p.groups}
	s, err := p.f.floats(p.scale, rows, all)
	if err != nil {
		return err
	}
	var z []uint32
	if p.zero.Name != "" {
		if z, err = p.f.words(p.zero, blocks(rows, each), all); err != nil {
			return err
		}
	}
	i, per := 0, at[1]-at[0]
	for r := rows[0]; r < rows[1]; r++ {
		for c := cols[0]; c < cols[1]; c++ {
			g := p.groupOf(c)
			codes[i] = uint8(words[(r-rows[0])*per+c/each-at[0]] >> (p.bits * (c % each)) & mask)
			scales[i] = s[(r-rows[0])*p.groups+g]
			if z != nil {
				zero := z[(r/each-rows[0]/each)*p.groups+g] >> (p.bits * (r % each)) & mask
				zeros[i] = float32(int(zero) - 1<<(p.bits-1))
			}
			i++
		}
	}
	return nil
}

// plainQuantized takes a matrix of bytes, integers or FP8, with a scale for all of it, for each row, for each group of
// columns, or for each block (int-quantized, float-quantized, naive-quantized and mxfp8-quantized).
func plainQuantized(f *finder, t checkpoint.Info) (*matrix, error) {
	scale, ok := f.all[t.Name+scaleTail]
	zero := f.all[t.Name+zeroTail]
	if codes := codesOf(t.DType); ok && codes != nil {
		f.take(zero.Name) // its zeros are 0 where there are some
		return f.scaled(t.Name, t, scale, codes)
	}
	if !ok || t.DType != checkpoint.I8 || len(t.Shape) != 2 {
		return nil, nil
	}
	f.take(t.Name)
	f.take(scale.Name)
	f.take(zero.Name)
	rows, cols, ok := grainOf(t.Shape, scale.Shape, f.config.block())
	if _, float := checkpoint.FloatDecoder(scale.DType); !ok || float == nil {
		return nil, f.misscaled(t, scale)
	}
	if zero.Name != "" && (zero.DType != checkpoint.I8 || checkpoint.BoxLen(checkpoint.Whole(zero.Shape)) != checkpoint.BoxLen(checkpoint.Whole(scale.Shape))) {
		return nil, f.misshapen(zero.Name, "%s %v, want I8 with a zero for each scale of %v", zero.DType,
			zero.Shape, scale.Shape)
	}
	g := &Grid{Rows: t.Shape[0], Cols: t.Shape[1], Table: signedBytes, Group: min(cols, t.Shape[1]),
		Zeros: zero.Name != ""}
	g.Read = func(r, c [2]int, codes []uint8, scales, zeros []float32) error {
		if err := f.src.ReadRanges(t.Name, [][2]int{r, c}, codes); err != nil {
			return err
		}
		s, err := f.scales(scale, nil, r, c, rows, cols)
		if err != nil {
			return err
		}
		spread(scales, s, r, c, rows, cols)
		if zero.Name == "" {
			return nil
		}
		box := [][2]int{blocks(r, rows), blocks(c, cols)}
		z, err := f.bytes(zero, box[:len(zero.Shape)]...)
		if err != nil {
			return err
		}
		for i := range z {
			s[i] = signedBytes[z[i]]
		}
		spread(zeros, s, r, c, rows, cols)
		return nil
	}
	return &matrix{name: t.Name, shape: t.Shape, grid: g}, nil
}

// signedBytes are integers of eight bits by their bytes.
var signedBytes = func() []float32 {
	out := make([]float32, 256)
	for b := range out {
		out[b] = float32(int8(b))
	}
	return out
}()
