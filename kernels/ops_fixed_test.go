package kernels

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestFixed: numbers are rounded to the nearest unit, halves to the even one, as exact arithmetic does; too large ones
// and what is no number is said.
func TestFixed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		bits, x := r.IntN(60)-10, float32(math.Ldexp(r.NormFloat64(), r.IntN(30)-25))
		if r.IntN(4) == 0 {
			x = float32(math.Ldexp(float64(r.IntN(64)-32), -bits-2)) // quarters of a unit
		}
		scale := math.Ldexp(1, bits)
		exact, _ := new(big.Float).Mul(big.NewFloat(float64(x)), big.NewFloat(scale)).Float64()
		q := []int64{7}
		within := Fixed(q, []float32{x}, scale, true)
		require.Equal(t, math.Abs(exact) < 1<<FixedBits, within, "%g", exact)
		if within {
			require.Equal(t, int64(math.RoundToEven(exact))+7, q[0], "%g", exact)
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.False(t, Fixed([]int64{0, 0}, []float32{1, float32(x)}, 1, false))
	}
}

// TestFixedShares: the squares of rows have one sum, in whatever shares and order, and almost that of exact arithmetic.
func TestFixedShares(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const rows, width = 300, 7
	x, exact := make([]float32, rows*width), 0.0
	for i := range x {
		x[i] = float32(math.Ldexp(r.NormFloat64(), -r.IntN(30)))
		exact += float64(x[i]) * float64(x[i])
	}
	squares := func(row []float32) (s float64) {
		for _, v := range row {
			s += float64(v) * float64(v)
		}
		return s
	}
	of := func(from, to int) []float64 {
		y := tensor.Make(tensor.F64, FixedWords)
		StoreFixedSquares(&Call{In: []*tensor.Tensor{tensor.Of(tensor.F32, x[from*width:to*width], to-from, width)},
			Out: []*tensor.Tensor{y}, Attr: Attr{F: [2]float64{1 << 40}}}, squares)
		return y.F64()
	}
	want := of(0, rows)
	require.InEpsilon(t, exact, want[0]+want[1], 1e-12)
	for range 50 {
		cuts := []int{0, r.IntN(rows), rows}
		if cuts[1] < rows-1 {
			cuts = []int{0, cuts[1], cuts[1] + r.IntN(rows-cuts[1]), rows}
		}
		got := make([]float64, FixedWords)
		for _, k := range r.Perm(len(cuts) - 1) {
			for w, v := range of(cuts[k], cuts[k+1]) {
				got[w] += v
			}
		}
		require.Equal(t, want, got, "%v", cuts)
	}
}
