package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// picked are numbers of all kinds, in an order that puts each against each.
func picked(n, step int) []float32 {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	kinds := []float32{0, float32(math.Copysign(0, -1)), 1, -1, nan, inf, -inf, 1e-42, -1e-42, 2.5, -2.5}
	x := make([]float32, n)
	for i := range x {
		x[i] = kinds[(i/step)%len(kinds)]
	}
	return x
}

// TestPicks holds the primitives that choose between numbers to their definitions in Go, to the bit: zeros of
// both signs, NaN, infinities and subnormal numbers, at every length of a tail.
func TestPicks(t *testing.T) {
	requireSame := func(want, got []float32, name string) {
		for i, v := range want {
			if v != v && got[i] != got[i] {
				continue
			}
			require.Equal(t, math.Float32bits(v), math.Float32bits(got[i]), "%s: element %d is %v, want %v",
				name, i, got[i], v)
		}
	}
	for _, k := range tested() {
		for n := range 150 {
			a, b := picked(n+1, 1)[:n], picked(n+1, 11)[:n]
			want, got := make([]float32, n+1), make([]float32, n+1)
			want[n], got[n] = 7, 7 // one past the end stays
			goReLU(want, a)
			k.relu(got[:n], a)
			requireSame(want, got, k.name+" relu")
			goReLUBwd(want, b, a)
			k.reluBwd(got[:n], b, a)
			requireSame(want, got, k.name+" reluBwd")
			copy(want, a)
			copy(got, a)
			goLarger(want[:n], b)
			k.larger(got[:n], b)
			requireSame(want, got, k.name+" larger")
			copy(want, a)
			copy(got, a)
			places, found := make([]int32, n+1), make([]int32, n+1)
			goLargerAt(want[:n], b, places[:n], 5)
			k.largerAt(got[:n], b, found[:n], 5)
			requireSame(want, got, k.name+" largerAt")
			require.Equal(t, places, found, "%s largerAt", k.name)
		}
	}
}
