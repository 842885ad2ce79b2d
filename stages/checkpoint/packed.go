package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/kernels"
)

// PackedPrefix begins the kinds of tensors that are the words of matrices in few bits.
const PackedPrefix = "packed:"

// PackedKind is that of a matrix of so many columns that a run keeps in few bits: the tensor has the words of
// its rows. Who asks for the parameter gets its numbers as float32.
func PackedKind(p kernels.Packing, columns int) string {
	return fmt.Sprintf("%s%v:%d", PackedPrefix, p, columns)
}

// packedParam is a parameter that is kept in few bits.
type packedParam struct {
	manifestTensor
	packing kernels.Packing
	columns int
}

// info is the parameter as it is shown.
func (p *packedParam) info() Info {
	rows := p.Shape[:len(p.Shape)-1]
	bytes := 4 * int64(p.columns)
	for _, n := range rows {
		bytes *= int64(n)
	}
	return Info{Name: p.Name, DType: F32, Shape: append(slices.Clone(rows), p.columns), Bytes: bytes}
}

// packedOf reads the kind of a tensor; nil for any other.
func packedOf(t manifestTensor) (*packedParam, error) {
	text, ok := strings.CutPrefix(t.Kind, PackedPrefix)
	if !ok {
		return nil, nil
	}
	form, width, _ := strings.Cut(text, ":")
	p := &packedParam{manifestTensor: t}
	var err error
	if p.packing, err = kernels.PackingOf(form); err != nil {
		return nil, err
	}
	if p.columns, err = strconv.Atoi(width); err != nil || p.columns < 1 || p.columns > 1<<32 {
		return nil, fmt.Errorf("kind %q: want the columns of the matrix", t.Kind)
	}
	if _, words := p.packing.Words(p.columns); t.DType != I32 || len(t.Shape) != 2 && len(t.Shape) != 3 ||
		t.Shape[len(t.Shape)-1] != words {
		return nil, fmt.Errorf("%s %v is no matrix of kind %s", t.DType, t.Shape, t.Kind)
	}
	return p, nil
}

// read sets dst to the numbers of a box.
func (p *packedParam) read(r *Reader, ranges [][2]int, dst []byte) error {
	last := len(p.Shape) - 1
	if last > 1 { // matrix by matrix
		each := int(BoxLen(ranges[1:])) * 4
		for i := ranges[0][0]; i < ranges[0][1]; i++ {
			if err := p.rows(r, [][2]int{{i, i + 1}}, ranges[1], ranges[2], dst[:each]); err != nil {
				return err
			}
			dst = dst[each:]
		}
		return nil
	}
	return p.rows(r, nil, ranges[0], ranges[1], dst)
}

// rows sets dst to the numbers of rows of one matrix, below a box of the axes before.
func (p *packedParam) rows(r *Reader, before [][2]int, rows, cols [2]int, dst []byte) error {
	words := p.Shape[len(p.Shape)-1]
	row, numbers := make([]byte, 4*words), make([]float32, cols[1]-cols[0])
	for i := rows[0]; i < rows[1]; i++ {
		box := append(slices.Clone(before), [2]int{i, i + 1}, [2]int{0, words})
		if err := r.ReadLogical(p.Name, p.Kind, box, row); err != nil {
			return err
		}
		p.packing.Decode(numbers, row, p.columns, cols[0])
		for _, x := range numbers {
			binary.LittleEndian.PutUint32(dst, math.Float32bits(x))
			dst = dst[4:]
		}
	}
	return nil
}
