package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestKeep: products with a kept operand have the bits of others, whatever they are cut into and in both
// types; after a change they follow the new contents, and what is forgotten takes no memory.
func TestKeep(t *testing.T) {
	b, plain := New(2), New(2)
	defer b.Close()     //nolint:errcheck // it ends threads
	defer plain.Close() //nolint:errcheck // likewise
	rng := rand.New(rand.NewPCG(1, 2))
	filled := func(d tensor.DType, shape ...int) *tensor.Tensor {
		x := tensor.Make(d, shape...)
		v := make([]float32, x.Len())
		for i := range v {
			v[i] = rng.Float32() - 0.5
		}
		tensor.Narrow(d, v, x.Bytes())
		return x
	}
	product := func(b *Backend, x, w *tensor.Tensor) []byte {
		y := tensor.Make(x.DType, x.Shape[0], w.Shape[0])
		b.Run(&kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w}, Out: []*tensor.Tensor{y}})
		b.Sync()
		return y.Bytes()
	}
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
		for _, s := range [][2]int{{40, 33}, {3000, 130}, {65, 1100}} {
			w := filled(d, s[0], s[1])
			b.Keep(w)
			for _, rows := range []int{2, 8, 1, 37, 8} {
				x := filled(d, rows, s[1])
				require.Equal(t, product(plain, x, w), product(b, x, w), "%v %v, %d rows", d, s, rows)
			}
			x := filled(d, 5, s[1])
			copy(w.Bytes(), filled(d, s[0], s[1]).Bytes())
			b.Changed()
			require.Equal(t, product(plain, x, w), product(b, x, w), "%v %v, changed", d, s)
			b.Forget(w)
			copy(w.Bytes(), filled(d, s[0], s[1]).Bytes())
			require.Equal(t, product(plain, x, w), product(b, x, w), "%v %v, forgotten", d, s)
		}
	}
	require.Empty(t, b.kept.panels)
	require.Empty(t, b.kept.may)
}
