package quant

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Coded is a matrix [Rows Cols] in whole numbers of four bits: the number at row r and column c is (code - zero)·scale,
// with the zero and the scale of column group c/Group of the row, or of the group that an order puts the column into.
type Coded struct {
	Rows, Cols, Group int
	codes             []byte   // two a byte, low bits first, in rows
	scales            []uint16 // float16 [Rows Groups]
	zeros             []byte   // [Rows Groups]
	groups            []int    // of each column where an order mixes them
}

// SetOrder says that columns make up groups as they stand in order, which has each once.
func (c *Coded) SetOrder(order []int) {
	c.groups = make([]int, c.Cols)
	for i, col := range order {
		c.groups[col] = i / c.Group
	}
}

// groupOf is the group of a column.
func (c *Coded) groupOf(col int) int {
	if c.groups != nil {
		return c.groups[col]
	}
	return col / c.Group
}

// NewCoded makes a matrix of zeros. Rows and columns are multiples of 8, and columns of group, or the
// layouts of few bits have no place for them: fits is false.
func NewCoded(rows, cols, group int) (c *Coded, fits bool) {
	if rows <= 0 || cols <= 0 || group <= 0 || rows%awqEach != 0 || cols%awqEach != 0 || cols%group != 0 {
		return nil, false
	}
	n := rows * (cols / group)
	return &Coded{Rows: rows, Cols: cols, Group: group, codes: make([]byte, rows*cols/2),
		scales: make([]uint16, n), zeros: make([]byte, n)}, true
}

// Set writes a code of 0 to 15. Two neighbours of a row share a byte: one goroutine writes a row.
func (c *Coded) Set(row, col int, code uint8) {
	at := row*c.Cols + col
	c.codes[at/2] = c.codes[at/2]&^(15<<(4*(at%2))) | code<<(4*(at%2))
}

// At is a code.
func (c *Coded) At(row, col int) uint8 {
	at := row*c.Cols + col
	return c.codes[at/2] >> (4 * (at % 2)) & 15
}

// SetGroup writes scale and zero of a group of columns, and gives the scale as float16 has it.
func (c *Coded) SetGroup(row, group int, scale float32, zero uint8) float32 {
	at := row*(c.Cols/c.Group) + group
	c.scales[at], c.zeros[at] = tensor.F16Bits(scale), zero
	return tensor.F16Value(c.scales[at])
}

// GroupAt is scale and zero of a group of columns.
func (c *Coded) GroupAt(row, group int) (scale float32, zero uint8) {
	at := row*(c.Cols/c.Group) + group
	return tensor.F16Value(c.scales[at]), c.zeros[at]
}

// Row sets dst to the numbers of a row, in float32.
func (c *Coded) Row(row int, dst []float32) {
	for i := range dst[:c.Cols] {
		scale, zero := c.GroupAt(row, c.groupOf(i))
		dst[i] = float32(int(c.At(row, i))-int(zero)) * scale
	}
}

// codedForm is a layout of coded matrices. Each has a file of its own that registers it.
type codedForm struct {
	name  string
	parts func(module string, m *Coded) []codedPart
	// config is quantization_config of config.json; modules are those that stay as they are, ordered that groups
	// of columns are mixed, and sym that every zero is the middle.
	config  func(group int, modules []string, ordered, sym bool) any
	ordered bool // the layout says which group a column is of
}

// codedPart is a tensor that a coded matrix becomes: at gives the bits of an element.
type codedPart struct {
	checkpoint.Info
	at func(i, j int) uint32
}

var codedForms []codedForm

func registerCoded(f codedForm) struct{} {
	codedForms = append(codedForms, f)
	return struct{}{}
}

// coded shows matrices of a source in a layout of few bits, and others with other numbers.
type coded struct {
	checkpoint.Source
	infos   map[string]checkpoint.Info
	parts   map[string]codedPart
	changed map[string][]float32
}

// Recode shows src with coded matrices, by their names that end in .weight, in the layout of a form (gptq
// or awq), and with other numbers for the tensors of changed, in the types that they have. It gives what
// config.json is to say of it; group is that of all matrices.
func Recode(src checkpoint.Source, form string, group int, matrices map[string]*Coded,
	changed map[string][]float32) (checkpoint.Source, json.RawMessage, error) {
	at := slices.IndexFunc(codedForms, func(f codedForm) bool { return f.name == form })
	if at < 0 {
		return nil, nil, fmt.Errorf("%q is no layout of coded matrices", form)
	}
	out := &coded{Source: src, infos: map[string]checkpoint.Info{}, parts: map[string]codedPart{}, changed: changed}
	var keep []string
	mixed, sym := false, true
	for _, m := range matrices { //lfvet:order any
		mixed = mixed || m.groups != nil
		sym = sym && !slices.ContainsFunc(m.zeros, func(z uint8) bool { return z != 8 })
	}
	if mixed && !codedForms[at].ordered {
		return nil, nil, fmt.Errorf("the layout %q has no place for groups of columns that are mixed", form)
	}
	for _, t := range src.Tensors() {
		module, _ := strings.CutSuffix(t.Name, ".weight")
		m := matrices[t.Name]
		if m == nil {
			out.infos[t.Name] = t
			if len(t.Shape) == 2 && module != t.Name {
				keep = append(keep, module)
			}
			continue
		}
		for _, p := range codedForms[at].parts(module, m) {
			var err error
			if p.Bytes, err = checkpoint.ByteSize(p.DType, p.Shape); err != nil {
				return nil, nil, err
			}
			out.infos[p.Name], out.parts[p.Name] = p.Info, p
		}
	}
	config, err := json.Marshal(codedForms[at].config(group, keep, mixed, sym))
	return out, config, err
}

// Tensors implements Source.
func (c *coded) Tensors() []checkpoint.Info { return checkpoint.SortedInfos(c.infos) }

// ReadRanges implements Source.
func (c *coded) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	t := c.infos[name]
	p, ok := c.parts[name]
	numbers, other := c.changed[name]
	if !ok && !other {
		return c.Source.ReadRanges(name, ranges, dst)
	}
	n, err := checkpoint.BoxBytes(t.DType, t.Shape, ranges)
	if err != nil || n != int64(len(dst)) {
		return fmt.Errorf("%s: ranges %v take %d bytes, the buffer has %d: %w", name, ranges, n, len(dst), err)
	}
	size := t.DType.Bits() / 8
	rows, cols := ranges[0], [2]int{0, 1}
	if len(ranges) > 1 {
		cols = ranges[1]
	}
	width := 1
	if len(t.Shape) > 1 {
		width = t.Shape[1]
	}
	for i := rows[0]; i < rows[1]; i++ {
		for j := cols[0]; j < cols[1]; j++ {
			switch {
			case other:
				putFloat(t.DType, dst, numbers[i*width+j])
			case size == 2:
				binary.LittleEndian.PutUint16(dst, uint16(p.at(i, j)))
			default:
				putWord(dst, 0, p.at(i, j))
			}
			dst = dst[size:]
		}
	}
	return nil
}

// scalesPart are the scales of a coded matrix as [groups rows].
func (c *Coded) scalesPart(name string) codedPart {
	groups := c.Cols / c.Group
	return codedPart{checkpoint.Info{Name: name, DType: checkpoint.F16, Shape: []int{groups, c.Rows}},
		func(i, j int) uint32 { return uint32(c.scales[j*groups+i]) }}
}

// zero is that of a row and a group.
func (c *Coded) zero(row, group int) uint32 { return uint32(c.zeros[row*(c.Cols/c.Group)+group]) }
