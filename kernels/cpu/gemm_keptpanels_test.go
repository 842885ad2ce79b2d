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

// TestKeepConvolutions: convolutions whose weights are kept have the bits of others, whichever way they take, in both
// types and both directions; after a change they follow the new weights, and what is forgotten takes no memory.
func TestKeepConvolutions(t *testing.T) {
	b, plain := New(2), New(2)
	defer b.Close()     //nolint:errcheck // it ends threads
	defer plain.Close() //nolint:errcheck // likewise
	rng := rand.New(rand.NewPCG(3, 4))
	filled := func(d tensor.DType, shape ...int) *tensor.Tensor {
		x := tensor.Make(d, shape...)
		v := make([]float32, x.Len())
		for i := range v {
			v[i] = rng.Float32() - 0.5
		}
		tensor.Narrow(d, v, x.Bytes())
		return x
	}
	// transformed weights of the last are made in parts where they are not kept
	for _, s := range []struct{ side, in, out, size, stride int }{{24, 3, 16, 7, 2}, {24, 16, 16, 3, 1}, {3,
		32, 48, 3, 1},
		{6, 32, 32, 3, 2}, {2, 16, 32, 1, 1}, {5, 5, 7, 3, 1}, {48, 16, 32, 3, 2},
		{17, 290, 450, 3, 1}} {
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
			w := filled(d, s.out, s.in, s.size, s.size)
			win := kernels.Window{Stride: s.stride, Dilation: 1, Before: s.size / 2, After: s.size / 2}
			to := (s.side+s.size/2*2-s.size)/s.stride + 1
			x, dy := filled(d, 2, s.side, s.side, s.in), filled(d, 2, to, to, s.out)
			same := func(what string) {
				for _, op := range []kernels.Op{kernels.Conv, kernels.ConvDX} {
					from, shape := x, dy.Shape
					if op == kernels.ConvDX {
						from, shape = dy, x.Shape
					}
					var got [2][]byte
					for i, on := range []*Backend{plain, b} {
						y := tensor.Make(d, shape...)
						c := &kernels.Call{Op: op, In: []*tensor.Tensor{from, w}, Out: []*tensor.Tensor{y}}
						c.Attr.I[1], c.Attr.I[2] = win.Pack(), win.Pack()
						on.Run(c)
						on.Sync()
						got[i] = y.Bytes()
					}
					require.Equal(t, got[0], got[1], "%v %v %v %s", op, s, d, what)
				}
			}
			b.Keep(w)
			same("first")
			same("kept")
			copy(w.Bytes(), filled(d, w.Shape...).Bytes())
			b.Changed()
			same("changed")
			b.Forget(w)
			copy(w.Bytes(), filled(d, w.Shape...).Bytes())
			same("forgotten")
		}
	}
	require.Empty(t, b.kept.packed)
	require.Empty(t, b.kept.panels)
	require.Empty(t, b.kept.may)
}
