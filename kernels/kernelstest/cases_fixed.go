package kernelstest

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// whole are whole numbers of so many bits.
func (g *gen) whole(bits int, shape ...int) *tensor.Tensor {
	t := g.raw(tensor.I64, shape...)
	for i := range t.I64() {
		t.I64()[i] = int64(g.Uint64()) >> (64 - bits)
	}
	return t
}

// fixedCase adds numbers of unit variance in units of 2^-bits.
func fixedCase(name string, bits, add int, shape ...int) Case {
	return Case{Op: kernels.FixedAdd, Name: name, Why: "whole numbers", Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.act(shape...)}, Out: tensors{g.whole(60, shape...), tensor.Of(tensor.I64,
			[]int64{3}, 1)}, Attr: kernels.Attr{F: [2]float64{float64(int64(1) << bits)}, I: [4]int{add}}}
	}}
}

// squaresOf are the squares of rows, with a bound of 2^40.
func squaresOf(name string, shape ...int) Case {
	return Case{Op: kernels.FixedSquares, Name: name, Tol: 1e-12, Why: "float64 sums of rows, in multiples of 2^-39",
		Types: onlyF32, Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(shape...)}, Out: tensors{g.raw(tensor.F64, kernels.FixedWords)},
				Attr: kernels.Attr{F: [2]float64{1 << 40}}}
		}}
}

var _ = add(fixedCase("set", 40, 0, 3, 700), fixedCase("acc", 46, kernels.Accumulate, 5000),
	fixedCase("coarse", 2, kernels.Accumulate, 70, 3), fixedCase("over", 51, 0, 100), fixedCase("none", 40, 0, 0),
	squaresOf("rows", 300, 70), squaresOf("numbers", 90), squaresOf("none", 0, 7),
	Case{Op: kernels.FixedSum, Name: "x3", Why: "whole numbers", Types: onlyF32, Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.whole(62, 3, 900), g.whole(62, 3, 900), g.whole(62, 3, 900)},
			Out: tensors{g.raw(tensor.I64, 3, 900)}}
	}},
	Case{Op: kernels.FixedSum, Name: "shared", Why: "whole numbers", Types: onlyF32, Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.whole(60, 90), g.whole(60, 90)}, Out: tensors{g.raw(tensor.I64, 90)},
			Attr: kernels.Attr{I: [4]int{3}}}
	}},
	Case{Op: kernels.FixedRead, Name: "read", Why: "one rounding", Types: onlyF32, Call: func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.whole(60, 5000)}, Out: tensors{g.raw(tensor.F32, 5000)},
			Attr: kernels.Attr{F: [2]float64{1.0 / (1 << 40)}}}
	}})
