package quant

import (
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

var _ = registerPacking(packing{name: "awq", source: "AutoAWQ 0.2, version gemm", find: awq})

// awqPlace is where in a word of eight numbers each of eight neighbours lies.
var awqPlace = [8]int{0, 4, 1, 5, 2, 6, 3, 7}

// awqEach are the numbers of a word.
const awqEach = 8

// awq takes a matrix of AutoAWQ's layout for products of matrices: words [k n/8] have eight rows of the
// matrix each, in an order of their own; zeros [groups n/8] and scales [groups n] go with groups of columns.
// arXiv:2306.00978. Its library computes in float16: float32 is that before the rounding.
func awq(f *finder, t checkpoint.Info) (*matrix, error) {
	base, ok := strings.CutSuffix(t.Name, wordsTail)
	zeros, scales := f.all[base+zerosTail], f.all[base+scalesEnd]
	if !ok || t.DType != checkpoint.I32 || len(t.Shape) != 2 || len(scales.Shape) != 2 ||
		t.Shape[1] == scales.Shape[1] {
		return nil, nil // GPTQ's
	}
	f.take(t.Name)
	f.take(zeros.Name)
	f.take(scales.Name)
	k, n, groups := t.Shape[0], awqEach*t.Shape[1], scales.Shape[0]
	_, float := checkpoint.FloatDecoder(scales.DType)
	if v := f.config.Version; v != "" && v != "gemm" {
		return nil, &checkpoint.Error{File: f.path, Tensor: t.Name, Fault: checkpoint.Malformed, Why: "version " + v +
			" of AWQ's layouts, of which gemm is read"}
	}
	if n == 0 || groups == 0 || k%groups != 0 || scales.Shape[1] != n || float == nil {
		return nil, f.misshapen(scales.Name, "%s %v, want a number for each group of columns of [%d %d]",
			scales.DType, scales.Shape, n, k)
	}
	if zeros.DType != checkpoint.I32 || len(zeros.Shape) != 2 || zeros.Shape[0] != groups ||
		zeros.Shape[1] != t.Shape[1] {
		return nil, f.misshapen(base+zerosTail, "%s %v, want I32 [%d %d]", zeros.DType, zeros.Shape, groups, t.Shape[1])
	}
	size := k / groups
	g := &Grid{Rows: n, Cols: k, Table: wholeNumbers(4, 0), Group: size, Zeros: true}
	g.Read = func(rows, cols [2]int, codes []uint8, out, outZeros []float32) error {
		at, in := blocks(rows, awqEach), blocks(cols, size)
		words, err := f.words(t, cols, at)
		if err != nil {
			return err
		}
		z, err := f.words(zeros, in, at)
		if err != nil {
			return err
		}
		s, err := f.floats(scales, in, rows)
		if err != nil {
			return err
		}
		per, height, i := at[1]-at[0], rows[1]-rows[0], 0
		for r := rows[0]; r < rows[1]; r++ {
			word, shift := r/awqEach-at[0], 4*awqPlace[r%awqEach]
			for c := cols[0]; c < cols[1]; c++ {
				group := c/size - in[0]
				codes[i] = uint8(words[(c-cols[0])*per+word] >> shift & 15)
				out[i] = s[group*height+r-rows[0]]
				outZeros[i] = float32(z[group*per+word] >> shift & 15)
				i++
			}
		}
		return nil
	}
	return &matrix{name: base + ".weight", shape: []int{n, k}, grid: g}, nil
}
