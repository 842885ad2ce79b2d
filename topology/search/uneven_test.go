package search

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCutEvenly: no other way to share layers out has a shorter busiest stage, or as short a one with
// stages more alike.
func TestCutEvenly(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 200 {
		layers, stages := 2+r.Intn(7), 2+r.Intn(3)
		if stages > layers {
			continue
		}
		sums := []float64{float64(r.Intn(4))}
		for range layers {
			sums = append(sums, sums[len(sums)-1]+float64(1+r.Intn(5)))
		}
		last := float64(r.Intn(6))
		price := func(cut []int) (most, squares float64) {
			at := 0
			for s, n := range cut {
				x := sums[at+n] - sums[at]
				if s == 0 {
					x = sums[n]
				}
				if s == stages-1 {
					x += last
				}
				at, most, squares = at+n, max(most, x), squares+x*x
			}
			require.Equal(t, layers, at)
			return
		}
		most, squares := price(cutEvenly(sums, last, stages))
		var try func(cut []int, left int)
		try = func(cut []int, left int) {
			if len(cut) == stages-1 {
				m, q := price(append(cut[:len(cut):len(cut)], left))
				require.LessOrEqual(t, most, m)
				if m == most {
					require.LessOrEqual(t, squares, q)
				}
				return
			}
			for n := 1; n <= left-(stages-1-len(cut)); n++ {
				try(append(cut[:len(cut):len(cut)], n), left-n)
			}
		}
		try(nil, layers)
	}
}
