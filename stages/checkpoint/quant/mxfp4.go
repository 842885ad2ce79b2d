package quant

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Four-bit numbers in blocks of 32 with one power of two each (OCP Microscaling Formats 1.0, MXFP4), as
// gpt-oss keeps its experts: blocks [e n b 16] of bytes, the first number in the low half of each, and
// scales [e n b], for matrices [e k n] with k = 32·b.
const (
	blocksTail = "_blocks"
	scalesTail = "_scales"
	fp4Block   = 32
	fp4Bias    = 127 // of a scale's exponent
)

// e2m1 are the four-bit numbers.
var e2m1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

var _ = registerPacking(packing{name: "mxfp4", source: "OCP Microscaling Formats 1.0", find: mxfp4})

// mxfp4 takes matrices of experts in MXFP4.
func mxfp4(f *finder, t checkpoint.Info) (*matrix, error) {
	name, ok := strings.CutSuffix(t.Name, blocksTail)
	if !ok || t.DType != checkpoint.U8 {
		return nil, nil
	}
	f.take(t.Name)
	scale := f.take(name + scalesTail)
	s := t.Shape
	if len(s) != 4 || s[3] != fp4Block/2 || len(scale.Shape) != 3 || scale.DType != checkpoint.U8 ||
		scale.Shape[0] != s[0] || scale.Shape[1] != s[1] || scale.Shape[2] != s[2] {
		return nil, f.misshapen(name+scalesTail, "%s %v, want U8 with an exponent for each block of 16 bytes of %v",
			scale.DType, scale.Shape, s)
	}
	return &matrix{name: name, shape: []int{s[0], s[2] * fp4Block, s[1]},
		read: func(ranges [][2]int, dst []byte) error { return f.readFP4(t, scale, ranges, dst) }}, nil
}

// readFP4 reads matrices, rows and columns of what is shown, which are the columns and rows of the file's.
func (f *finder) readFP4(t, scale checkpoint.Info, ranges [][2]int, dst []byte) error {
	rows, cols := ranges[1], ranges[2]
	blocks := [2]int{rows[0] / fp4Block, ceilDiv(rows[1], fp4Block)}
	n, w, each := rows[1]-rows[0], cols[1]-cols[0], blocks[1]-blocks[0]
	raw, exp := make([]byte, w*each*fp4Block/2), make([]byte, w*each)
	for e := ranges[0][0]; e < ranges[0][1]; e++ {
		if err := f.src.ReadRanges(t.Name, [][2]int{{e, e + 1}, cols, blocks, {0, fp4Block / 2}}, raw); err != nil {
			return err
		}
		if err := f.src.ReadRanges(scale.Name, [][2]int{{e, e + 1}, cols, blocks}, exp); err != nil {
			return err
		}
		out := dst[4*(e-ranges[0][0])*n*w:]
		for c := range w {
			for r := range n {
				at := c*each*fp4Block + rows[0] - blocks[0]*fp4Block + r
				x := e2m1[raw[at/2]>>(4*(at%2))&15]
				x = float32(math.Ldexp(float64(x), int(exp[at/fp4Block])-fp4Bias))
				binary.LittleEndian.PutUint32(out[4*(r*w+c):], math.Float32bits(x))
			}
		}
	}
	return nil
}
