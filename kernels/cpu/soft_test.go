package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Writing past the caches changes no bit, whatever the length, and nothing beyond it.
func TestSoftPastTheCaches(t *testing.T) {
	const most = 200
	x := filled(tensor.F32, most).F32()
	low := float32(math.Inf(-1))
	for _, k := range levels() {
		for n := range most {
			want, got := tensor.Make(tensor.F32, most).F32(), tensor.Make(tensor.F32, most).F32()
			m1, s1 := k.soft(want[:n], x[:n], 30, low)
			m2, s2 := k.softPast(got[:n], x[:n], 30, low)
			require.Equal(t, []float32{m1, s1}, []float32{m2, s2}, "%s %d", k.name, n)
			require.Equal(t, want, got, "%s %d", k.name, n)
			if k.softHalf == nil {
				continue
			}
			half, past := tensor.Make(tensor.BF16, most).U16(), tensor.Make(tensor.BF16, most).U16()
			k.softHalf(half[:n], x[:n], 30, low)
			m2, s2 = k.softHalfPast(past[:n], x[:n], 30, low)
			require.Equal(t, []float32{m1, s1}, []float32{m2, s2}, "%s %d", k.name, n)
			require.Equal(t, half, past, "%s %d", k.name, n)
			goToBF16(past[:n], want[:n])
			require.Equal(t, half, past, "%s %d: rounding", k.name, n)
		}
	}
}

// At any size of scores a softmax is one: the greatest score has the power 1, not what its own rounding makes of it,
// and a probability in a gradient, from an lse that was rounded, is 1 at most.
func TestSoftOfLargeScores(t *testing.T) {
	low, scale := float32(math.Inf(-1)), float32(0.1*log2e)
	for _, k := range levels() {
		for _, size := range []float32{1e3, 1e5, 1e7, 1e9, 5e9, 1e12, 1e20, 1e30} {
			for _, n := range []int{1, 7, 16, 33, 100} {
				x := make([]float32, n)
				for i, v := range filled(tensor.F32, n).F32() {
					x[i] = size * v
				}
				x[n/2] = 3 * size
				if n > 1 {
					x[0] = low
				}
				y, ds := make([]float32, n), make([]float32, n)
				most, sum := k.soft(y, x, scale, low)
				require.InDelta(t, 1, y[n/2], 0.05, "%s %v: the greatest of %d", k.name, size, n)
				require.True(t, sum >= 0.95 && sum < float32(n)+1, "%s %v: a sum of %v", k.name, size, sum)
				require.True(t, n == 1 || y[0] == 0, "%s: -Inf has %v", k.name, y[0])
				lse := float32(float64(most)+math.Log2(float64(sum))) / log2e
				k.softGrad(y, ds, x, make([]float32, n), scale, lse*log2e, 1, 1)
				for i, p := range y {
					require.True(t, p >= 0 && p <= 1, "%s %v: a probability of %v", k.name, size, p)
					require.Equal(t, -p, ds[i])
				}
			}
		}
	}
}
