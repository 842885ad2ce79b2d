package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestFixedAdd: sums in fixed point are the same whole numbers at every level of instructions, and each says what is
// beyond them, wherever it stands.
func TestFixedAdd(t *testing.T) {
	each(t, 2, func(t *testing.T, b *Backend) {
		r := rand.New(rand.NewPCG(5, 6))
		for range 200 {
			x, q := make([]float32, 1+r.IntN(5000)), []int64(nil)
			for i := range x {
				x[i] = float32(math.Ldexp(r.NormFloat64(), r.IntN(20)-25))
				q = append(q, int64(r.Uint64()>>4))
			}
			if r.IntN(2) == 0 {
				x[r.IntN(len(x))] = []float32{1 << 9, -1 << 9, float32(math.NaN()), float32(math.Inf(-1))}[r.IntN(4)]
			}
			want, over := append([]int64(nil), q...), tensor.Make(tensor.I64, 1)
			within := kernels.Fixed(want, x, 1<<41, true)
			b.Run(&kernels.Call{Op: kernels.FixedAdd, In: []*tensor.Tensor{tensor.Of(tensor.F32, x, len(x))},
				Out:  []*tensor.Tensor{tensor.Of(tensor.I64, q, len(q)), over},
				Attr: kernels.Attr{I: [4]int{kernels.Accumulate}, F: [2]float64{1 << 41}}})
			require.Equal(t, within, over.I64()[0] == 0)
			if within {
				require.Equal(t, want, q)
			}
		}
	})
}

func BenchmarkFixedAdd(b *testing.B) {
	cpu := New(1)
	defer cpu.Close() //nolint:errcheck // nothing is left behind
	const n = 1 << 20
	c := &kernels.Call{Op: kernels.FixedAdd, In: []*tensor.Tensor{tensor.Make(tensor.F32, n)},
		Out:  []*tensor.Tensor{tensor.Make(tensor.I64, n), tensor.Make(tensor.I64, 1)},
		Attr: kernels.Attr{I: [4]int{kernels.Accumulate}, F: [2]float64{1 << 40}}}
	b.SetBytes(20 * n)
	for b.Loop() {
		cpu.Run(c)
	}
}
