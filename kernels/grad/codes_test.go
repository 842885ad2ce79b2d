package grad

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestLowDispatch: rows that go to experts in eight bits are those that products round, and their gradients those of
// rows that stay as they are; between members they are bytes and a scale a block, and gradients what they were.
func TestLowDispatch(t *testing.T) {
	const k = 200
	p, err := kernels.PrecisionOf("block")
	require.NoError(t, err)
	of := func(precision int) rule {
		return rule{map[string][]int{"x": {6, k}}, func(t *Tape, v map[string]*Value) *Value {
			x, _ := t.LowDispatch(v["x"], t.ConstI32("counts", []int32{2, 1, 0, 3}), 4, "ep", "", precision)
			if precision == 0 {
				x = t.one(opRounded, kernels.Attr{I: [4]int{0, p}}, x.DType, x.Shape, x.Place, x, nil, nil)
			}
			return t.Mul(x, x)
		}}
	}
	x := tensor.Make(tensor.F32, 6, k)
	for i := range x.F32() {
		x.F32()[i] = float32(i%37) - 11.3
	}
	given := map[string]*tensor.Tensor{"x": x}
	require.Equal(t, of(0).on(t, Options{}, -1, given), of(p).on(t, Options{}, -1, given))

	bytes := func(precision int) (to, back int64) {
		tp := NewTape(Options{DType: tensor.BF16, Mesh: []MeshAxis{{Name: "ep", Size: 2, Data: true,
			Fold: 1}}})
		tp.Block(0, func() {
			x := tp.Embed(tp.Data("ids", tensor.I32, 6), tp.Param("e", []int{9, k}, -1, 1, true))
			y, d := tp.LowDispatch(x, tp.Data("counts", tensor.I32, 4), 4, "ep", "", precision)
			w := tp.ParamOn("w", []int{4, k, k}, true, Cut{Mesh: "ep", Axis: 0, Unit: 1})
			z := tp.Combine(tp.GroupedLinear(y, w, d.Off), d)
			tp.Loss(tp.LinearCrossEntropy(z, tp.Table("head", 9, k), tp.Data("target", tensor.I32, 6),
				tp.Data("weight", tensor.F32, 6), 0))
		})
		tr := tp.Finish()
		for _, n := range tr.nodes {
			switch n.Op.Role {
			case dispatch:
				to += tr.CommBytes(n)
			case combine:
				back += tr.CommBytes(n)
			}
		}
		return to, back
	}
	to, back := bytes(0)
	low, lowBack := bytes(p)
	require.Equal(t, back, lowBack)
	// of two dispatches, of rows and of the gradient of what comes back, the first has 208 bytes a row and not 400
	require.InDelta(t, float64(to)/2*(1+208./400), float64(low), 100)
}

// TestLowGather: weights that are gathered in eight bits are bytes and a scale a block between members, in
// the forward and in the backward.
func TestLowGather(t *testing.T) {
	const k = 200
	p, err := kernels.PrecisionOf("block_pow2")
	require.NoError(t, err)
	bytes := func(gather bool) (n int64) {
		tp := NewTape(Options{DType: tensor.BF16, ShardParams: true, LowGather: gather,
			Mesh: []MeshAxis{{Name: "dp", Size: 2, Data: true, Zero: true}}})
		tp.Block(0, func() {
			w := tp.Param("w", []int{k, k}, -1, 1, true)
			y := tp.LowLinear(tp.Data("x", tensor.BF16, 6, k), tp.Coded(w, p), nil, p)
			y = tp.LowLinear(y, tp.Coded(tp.Param("w", []int{k, k}, -1, 1, true), p), nil, p)
			tp.Loss(tp.LinearCrossEntropy(y, tp.Coded(w, p), tp.Data("target", tensor.I32, 6),
				tp.Data("weight", tensor.F32, 6), 0))
		})
		tr := tp.Finish()
		for _, x := range tr.nodes {
			if x.Op.Role == unshard {
				n += tr.CommBytes(x)
			}
		}
		return n
	}
	plain, low := bytes(false), bytes(true)
	require.Positive(t, plain)
	require.EqualValues(t, plain*208/400, low)
}
