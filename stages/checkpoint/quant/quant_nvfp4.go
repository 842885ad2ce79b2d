package quant

import (
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Ends of names, and the size, of NVFP4: numbers of four bits (E2M1) in groups of 16 columns, each with a
// scale in E4M3, and a float32 for the whole matrix. compressed-tensors divides scales by that, and keeps the
// bytes as _packed; TensorRT's Model Optimizer multiplies, and keeps them under the matrix's own name.
const (
	globalTail = "_global_scale"
	secondTail = "_scale_2"
	nvfp4Group = 16
)

var _ = registerPacking(packing{name: "nvfp4-pack-quantized", source: "compressed-tensors 0.20; NVIDIA Model Optimizer",
	find: nvfp4})

// nvfp4 takes a matrix in NVFP4.
func nvfp4(f *finder, t checkpoint.Info) (*matrix, error) {
	if t.DType != checkpoint.U8 || len(t.Shape) != 2 {
		return nil, nil
	}
	name, divided := strings.CutSuffix(t.Name, packedTail)
	scale, global := f.all[name+scaleTail], f.all[name+globalTail]
	if !divided {
		global = f.all[name+secondTail]
	}
	if divided && scale.DType == checkpoint.U8 && global.Name == "" { // mxfp4-pack-quantized
		if len(scale.Shape) != 2 || scale.Shape[0] != t.Shape[0] || 32*scale.Shape[1] != 2*t.Shape[1] {
			return nil, f.misshapen(scale.Name, "U8 %v, want an exponent for each 32 columns of %v bytes of two numbers "+
				"(those of mxfp6-pack-quantized, of six bits, are not read)", scale.Shape, t.Shape)
		}
		return f.scaled(name, t, scale, e2m1[:])
	}
	if scale.Name == "" || global.Name == "" {
		return nil, nil
	}
	f.take(t.Name)
	f.take(scale.Name)
	f.take(global.Name)
	rows, cols := t.Shape[0], 2*t.Shape[1]
	if scale.DType != checkpoint.F8E4M3 || len(scale.Shape) != 2 || scale.Shape[0] != rows || cols%nvfp4Group != 0 ||
		scale.Shape[1] != cols/nvfp4Group {
		return nil, f.misshapen(scale.Name, "%s %v, want F8_E4M3 with a number for each 16 columns of [%d %d]",
			scale.DType, scale.Shape, rows, cols)
	}
	if global.DType != checkpoint.F32 || checkpoint.BoxLen(checkpoint.Whole(global.Shape)) != 1 {
		return nil, f.misshapen(global.Name, "%s %v, want one F32", global.DType, global.Shape)
	}
	by, err := f.floats(global, checkpoint.Whole(global.Shape)...)
	if err != nil {
		return nil, err
	}
	g := &Grid{Rows: rows, Cols: cols, Table: e2m1[:], Group: nvfp4Group}
	g.Read = func(r, c [2]int, codes []uint8, scales, _ []float32) error {
		if err := f.nibbles(t, r, c, codes, false); err != nil {
			return err
		}
		s, err := f.scales(scale, nil, r, c, 1, nvfp4Group)
		if err != nil {
			return err
		}
		for i := range s {
			if divided {
				s[i] /= by[0]
			} else {
				s[i] *= by[0]
			}
		}
		spread(scales, s, r, c, 1, nvfp4Group)
		return nil
	}
	return &matrix{name: name, shape: []int{rows, cols}, grid: g}, nil
}

// nibbles reads a box of a matrix of bytes [rows cols/2] as codes of four bits; high says that the first of
// two is in the high half.
func (f *finder) nibbles(t checkpoint.Info, rows, cols [2]int, codes []uint8, high bool) error {
	at := blocks(cols, 2)
	raw, err := f.bytes(t, rows, at)
	if err != nil {
		return err
	}
	splitNibbles(raw, at, rows, cols, codes, high)
	return nil
}

// splitNibbles fills the codes of a box from the bytes of its rows, of which pairs are those of columns.
func splitNibbles(raw []byte, pairs, rows, cols [2]int, codes []uint8, high bool) {
	i, per := 0, pairs[1]-pairs[0]
	for r := range rows[1] - rows[0] {
		for c := cols[0]; c < cols[1]; c++ {
			b := raw[r*per+c/2-pairs[0]]
			if c%2 == 1 != high {
				b >>= 4
			}
			codes[i] = b & 15
			i++
		}
	}
}
