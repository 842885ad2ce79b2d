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
