package quant

import (
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Suffix and size of DeepSeek's scales of blocks.
const (
	scaleInv = "_scale_inv"
	fp8Block = 128 // rows and columns of a block with one scale; the last ones may be short
)

var _ = registerPacking(packing{name: "fp8-blocks", source: "DeepSeek-V3, README_WEIGHTS.md",
	find: fp8Blocks})

// fp8Blocks takes a matrix in E4M3 with a float32 scale for each block of 128×128.
func fp8Blocks(f *finder, t checkpoint.Info) (*matrix, error) {
	scale, ok := f.all[t.Name+scaleInv]
	if !ok || t.DType != checkpoint.F8E4M3 {
		return nil, nil
	}
	f.take(t.Name)
	f.take(scale.Name)
	if len(t.Shape) != 2 || len(scale.Shape) != 2 || scale.DType != checkpoint.F32 ||
		scale.Shape[0] != ceilDiv(t.Shape[0], fp8Block) ||
		scale.Shape[1] != ceilDiv(t.Shape[1], fp8Block) {
		return nil, f.misshapen(scale.Name, "%s %v, want F32 with a number for each block of 128×128 of %v",
			scale.DType, scale.Shape, t.Shape)
	}
	return fp8Matrix(f, t.Name, t, scale, fp8Block, fp8Block), nil
}

// fp8Matrix is a matrix in E4M3 whose blocks of rows and columns have a scale each.
func fp8Matrix(f *finder, name string, t, scale checkpoint.Info, blockRows, blockCols int) *matrix {
	g := &Grid{Rows: t.Shape[0], Cols: t.Shape[1], Table: e4m3[:], Group: min(blockCols, t.Shape[1])}
	g.Read = func(rows, cols [2]int, codes []uint8, scales, _ []float32) error {
		if err := f.src.ReadRanges(t.Name, [][2]int{rows, cols}, codes); err != nil {
			return err
		}
		s, err := f.blockScales(scale, rows, cols, blockRows, blockCols)
		if err == nil {
			spread(scales, s, rows, cols, blockRows, blockCols)
		}
		return err
	}
	return &matrix{name: name, shape: t.Shape, grid: g}
}

// blockScales reads the scales of the blocks that a box meets. A scale may have one axis, of rows, or none.
func (f *finder) blockScales(t checkpoint.Info, rows, cols [2]int, blockRows, blockCols int) ([]float32, error) {
	box := [][2]int{blocks(rows, blockRows), blocks(cols, blockCols)}
	return f.floats(t, box[:len(t.Shape)]...)
}

// e4m3 are the numbers of FP8 by their bytes.
var e4m3 = func() (out [256]float32) {
	_, decode := checkpoint.FloatDecoder(checkpoint.F8E4M3)
	for b := range out {
		out[b] = float32(decode([]byte{byte(b)}))
	}
	return out
}()
