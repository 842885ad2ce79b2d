package routing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChoice: the best come first, of equal ones the lower number; a bias chooses and weighs nothing; groups
// that are left out lose their experts whatever their scores; a score that is not a number is the greatest.
func TestChoice(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		why          string
		r            Router
		logits, bias []float32
		k            int
		want         []int32
		weights      []float32
	}{
		{"order", Router{Score: SoftmaxChosen}, []float32{0, float32(math.Log(3)), 0, float32(math.Log(2))},
			nil, 2, []int32{1, 3}, []float32{0.6, 0.4}},
		{"ties", Router{Normalize: true}, []float32{1, 2, 2, 1}, nil, 3, []int32{1, 2, 0}, nil},
		{"bias", Router{Score: Sigmoid}, []float32{0, 0, 0, 0}, []float32{0, -9, 3, 1}, 2, []int32{2, 3},
			[]float32{0.5, 0.5}},
		{"groups", Router{Score: Sigmoid, Groups: 2, Kept: 1, Best: 2, Scale: 2}, []float32{5, -9, 0, 0},
			nil, 2, []int32{2, 3}, []float32{1, 1}},
		{"best of a group", Router{Groups: 2, Kept: 1, Best: 1}, []float32{5, -9, 4, 4}, nil, 2,
			[]int32{0, 1}, nil},
		{"negative but kept", Router{Score: Sigmoid, Groups: 2, Kept: 1, Best: 1}, []float32{5, -9, 4, 4},
			[]float32{0, -3, 0, 0}, 2, []int32{0, 1}, nil},
		{"floor", Router{Score: Sigmoid, Normalize: true, Floor: true, Eps: 4}, []float32{0, 0}, nil, 1,
			[]int32{0}, []float32{0.125}},
		{"no number", Router{Score: Sigmoid}, []float32{9, nan, 8}, nil, 2, []int32{1, 0}, nil},
		{"one of one", Router{Normalize: true}, []float32{-3}, nil, 1, []int32{0}, []float32{1}},
	} {
		idx, w := make([]int32, c.k), make([]float32, c.k)
		c.r.Worker(len(c.logits)).Row(c.logits, c.bias, idx, w)
		require.Equal(t, c.want, idx, c.why)
		for j, want := range c.weights {
			require.InDelta(t, want, w[j], 1e-6, c.why)
		}
	}
}

// TestRefused: what cannot be chosen is said, whatever the numbers.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		r          Router
		experts, k int
		why        string
	}{
		{Router{}, 4, 5, "5 experts a token of 4"}, {Router{}, 4, 0, "0 experts"},
		{Router{Score: 9}, 4, 1, "score 9"},
		{Router{Groups: 3, Kept: 1, Best: 1}, 4, 1, "4 experts in 3 groups"},
		{Router{Groups: 4, Kept: 1, Best: 1}, 8, 3, "of 1 groups of 2"},
		{Router{Groups: 2, Kept: 3, Best: 1}, 8, 1, "3 groups"}, {Router{Groups: 4, Kept: 2, Best: 3}, 8, 1,
			"3 best scores"},
	} {
		require.ErrorContains(t, c.r.Check(c.experts, c.k), c.why)
	}
	require.NoError(t, Router{Groups: 4, Kept: 2, Best: 2}.Check(8, 4))
}

// TestGradients compares the gradients of weights and of shares with finite differences. A step of 1e-3 and
// float32 weights leave an error of some 1e-4.
func TestGradients(t *testing.T) {
	const e, k = 7, 3
	for _, r := range []Router{{}, {Normalize: true}, {Scale: 2}, {Score: Sigmoid},
		{Score: Sigmoid, Normalize: true, Eps: 0.5, Scale: 2.5}, {Score: SqrtSoftplus},
		{Score: SqrtSoftplus, Normalize: true}, {Score: SoftmaxChosen},
		{Normalize: true, Floor: true, Eps: 0.01}, {Normalize: true, Floor: true, Eps: 9}} {
		t.Run(fmt.Sprintf("%+v", r), func(t *testing.T) {
			rnd, w := rand.New(rand.NewPCG(3, 4)), r.Worker(e)
			logits, dw, ds := make([]float32, e), make([]float32, k), make([]float64, e)
			for i := range logits {
				logits[i], ds[i] = float32(i%4)+0.3*float32(rnd.NormFloat64()), rnd.NormFloat64()
			}
			for j := range dw {
				dw[j] = float32(rnd.NormFloat64())
			}
			idx, weights, got := make([]int32, k), make([]float32, k), make([]float32, e)
			dot := func(of []float32, i int, d float32) (sum float64) {
				moved := append([]float32(nil), logits...)
				moved[i] += d
				if of == nil {
					shares, _ := w.Shares(moved, k)
					for j, s := range shares {
						sum += s * ds[j]
					}
					return
				}
				at := make([]int32, k)
				w.Row(moved, nil, at, weights)
				require.Equal(t, idx, at, "the step changes the choice")
				for j := range dw {
					sum += float64(weights[j]) * float64(dw[j])
				}
				return
			}
			w.Row(logits, nil, idx, weights)
			for _, of := range [][]float32{dw, nil} {
				if of != nil {
					w.Gradient(logits, idx, dw, got)
				} else {
					w.SharesGradient(logits, ds, got)
				}
				for i := range logits {
					want := (dot(of, i, 1e-3) - dot(of, i, -1e-3)) / 2e-3
					require.InDelta(t, want, got[i], 2e-4, "logit %d", i)
				}
			}
		})
	}
}
