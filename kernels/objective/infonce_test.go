package objective

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawnVectors are rows of three queries with their positives, two negatives, and a row of padding.
func drawnVectors(rng *rand.Rand, d int) *Vectors {
	v := &Vectors{D: d}
	for s, role := range []float32{Query, Positive, Negative, Query, Positive, Query, Positive, Negative} {
		for range 1 + rng.IntN(4) {
			v.Seq, v.Weight = append(v.Seq, int32(s)), append(v.Weight, 1./3)
			v.More = append(v.More, make([]float32, Columns)...)
			v.More[len(v.More)-Columns+Margin] = role
		}
	}
	v.Seq, v.Weight, v.More = append(v.Seq, -1), append(v.Weight, 0), append(v.More, make([]float32,
		Columns)...)
	for range len(v.Seq) * d {
		v.X = append(v.X, float32(rng.NormFloat64()))
	}
	return v
}

// TestContrast: the derivatives of infonce are those of finite differences, padding has none; the loss of equal
// vectors is the logarithm of how many texts there are, and does not depend on vectors' lengths.
func TestContrast(t *testing.T) {
	l := Lookup("infonce")
	for seed := range uint64(10) {
		const d = 5
		v := drawnVectors(rand.New(rand.NewPCG(seed, 1)), d)
		p := Params{Temperature: 0.3, Pooling: float64(seed % 2)}
		grad := make([]float64, len(v.X))
		loss := l.Vectors(&p, v, grad)
		for i, x := range v.X {
			const h = 1. / 1024
			v.X[i] = x + h
			up := l.Vectors(&p, v, make([]float64, len(grad)))
			v.X[i] = x - h
			down := l.Vectors(&p, v, make([]float64, len(grad)))
			v.X[i] = x
			require.InDelta(t, (up-down)/(2*h), grad[i], 1e-3, "seed %d, number %d", seed, i)
		}
		require.Equal(t, make([]float64, d), grad[len(grad)-d:], "padding")
		for i := range v.X {
			v.X[i] *= 3
		}
		require.InDelta(t, loss, l.Vectors(&p, v, grad), 1e-6)
		for i := range v.X {
			v.X[i] = 1
		}
		require.InDelta(t, math.Log(5), l.Vectors(&p, v, grad), 1e-7)
		clear(v.X)
		require.InDelta(t, math.Log(5), l.Vectors(&p, v, make([]float64, len(grad))), 1e-7, "no direction")
	}
}
