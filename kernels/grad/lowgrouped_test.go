package grad

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestLowGrouped: products of one group of rows with rounded operands are those of a layer with rounded
// operands, and of two groups those of two layers, result and every gradient, to the bit, in each precision.
func TestLowGrouped(t *testing.T) {
	const k, n = 40, 18
	r := rand.New(rand.NewPCG(5, 6))
	made := func(shape ...int) *tensor.Tensor {
		v := tensor.Make(tensor.F32, shape...)
		for i := range v.F32() {
			v.F32()[i] = float32(r.NormFloat64())
		}
		return v
	}
	part := func(x *tensor.Tensor, from, to int, shape ...int) *tensor.Tensor {
		return tensor.Of(tensor.F32, x.F32()[from:to], shape...)
	}
	x, w := made(24, k), made(2, n, k)
	for p := 1; p < len(kernels.Precisions); p++ {
		name := kernels.Precisions[p].Name
		layer := func(rows int) rule {
			return rule{map[string][]int{"x": {rows, k}, "w": {n, k}}, func(t *Tape,
				v map[string]*Value) *Value {
				return t.LowLinear(v["x"], v["w"], nil, p)
			}}
		}
		groups := func(of int, off ...int32) rule {
			return rule{map[string][]int{"x": {int(off[of]), k}, "w": {of, n, k}}, func(t *Tape,
				v map[string]*Value) *Value {
				return t.LowGrouped(v["x"], v["w"], t.ConstI32("off", off), p)
			}}
		}
		one := groups(1, 0, 24).on(t, Options{}, -1, map[string]*tensor.Tensor{"x": x, "w": part(w, 0, n*k,
			1,
			n, k)})
		want := layer(24).on(t, Options{}, -1, map[string]*tensor.Tensor{"x": x, "w": part(w, 0, n*k, n, k)})
		require.Equal(t, want, one, name)
		plain := rule{map[string][]int{"x": {24, k}, "w": {n, k}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.Linear(v["x"], v["w"], nil)
		}}.on(t, Options{}, -1, map[string]*tensor.Tensor{"x": x, "w": part(w, 0, n*k, n, k)})
		require.NotEqual(t, plain["y"], one["y"], name)

		two := groups(2, 0, 7, 24).on(t, Options{}, -1, map[string]*tensor.Tensor{"x": x, "w": w})
		a := layer(7).on(t, Options{}, -1, map[string]*tensor.Tensor{"x": part(x, 0, 7*k, 7, k),
			"w": part(w, 0, n*k, n, k)})
		require.Equal(t, a["y"], two["y"][:7*n], name)
		b := layer(17).on(t, Options{}, -1, map[string]*tensor.Tensor{"x": part(x, 7*k, 24*k, 17, k),
			"w": part(w, n*k, 2*n*k, n, k)})
		require.Equal(t, b["y"], two["y"][7*n:], name)
	}
}
