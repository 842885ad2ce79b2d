package grad

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestThinProductsJoin: the products with an adapter's factors run on parts of those beside them, forward and
// towards the input, with the sums behind them, and nobody waits for their results.
func TestThinProductsJoin(t *testing.T) {
	tp := NewTape(Options{DType: tensor.F32,
		Frozen: func(name string) bool { return strings.HasPrefix(name, "w") }})
	tp.Block(0, func() {
		x := tp.Input("x", tensor.F32, 6, 32)
		linear := func(x *Value, name string, out, in int) *Value {
			y := tp.Linear(x, tp.Param("w"+name, []int{out, in}, -1, 1, true), nil)
			down := tp.Scale(tp.Linear(x, tp.Param("a"+name, []int{4, in}, -1, 1, true), nil), 2)
			return tp.Add(y, tp.Linear(down, tp.Param("b"+name, []int{out, 4}, -1, 1, true), nil))
		}
		h := tp.SwiGLU(linear(x, "gate", 48, 32), linear(x, "up", 48, 32))
		tp.Output("y", tp.Add(x, linear(h, "down", 32, 48)))
	})
	tr := tp.Finish()
	var with []string
	for _, segs := range [][]Segment{tr.F, tr.B} {
		for _, s := range segs {
			for _, n := range s.Ops {
				require.NotEqual(t, kernels.Sum, n.Op.Kernel, "a sum by itself")
				if len(n.Then) == 0 {
					continue
				}
				words := []string{string(n.Op.Kernel)}
				for _, e := range n.Then {
					words = append(words, string(e.Op.Kernel))
					require.Equal(t, takes(e), e.Passing, e.Op.Name)
				}
				with = append(with, strings.Join(words, " "))
				require.True(t, n.Passing, "%s: read by others than its epilogues", with)
			}
		}
	}
	require.Equal(t, []string{"linear linear sum", "linear linear sum swiglu", "linear linear sum sum",
		"linear_dx linear_dx sum swiglu_bwd", "linear_dx linear_dx sum sum", "linear_dx linear_dx sum sum"},
		with)
}

// TestPartsAreNoEpilogue: a product that is taken in parts, as ranks in whose place one is would take it,
// is no epilogue of the product before it, also where both are as wide and a bias leaves none of its operands out.
func TestPartsAreNoEpilogue(t *testing.T) {
	tp := NewTape(Options{DType: tensor.F32, Sums: map[string]int{TP: 2}})
	tp.Block(0, func() {
		x := tp.Input("x", tensor.F32, 6, 16)
		up := tp.Linear(x, tp.Param("up", []int{16, 16}, 0, 1, true), nil)
		tp.Output("y", tp.Linear(up, tp.Param("down", []int{16, 16}, 1, 1, true),
			tp.Param("bias", []int{16}, -1, 1, true)))
	})
	parts := 0
	for _, s := range tp.Finish().F {
		for _, n := range s.Ops {
			if n.Op.Kernel == kernels.Linear && n.Attr.I[3] > 1 {
				parts++
			}
			for _, e := range n.Then {
				require.NotEqual(t, kernels.Linear, e.Op.Kernel, "%s with a bias behind %s", e.Op.Name, n.Op.Name)
			}
		}
	}
	require.Equal(t, 1, parts)
}
