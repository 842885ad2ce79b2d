package record

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTicks are round numbers inside the range, a handful of them.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   []float64
	}{
		{1, 40, []float64{5, 10, 15, 20, 25, 30, 35, 40}}, {5.31, 6.04, []float64{5.4, 5.6, 5.8, 6}},
		{0, 1e6, []float64{0, 200000, 400000, 600000, 800000, 1e6}},
		{1, 2, []float64{1, 1.2, 1.4, 1.6, 1.8, 2}}, {-0.3, 0.4, []float64{-0.2, 0, 0.2, 0.4}},
	} {
		got := ticks(c.lo, c.hi, map[bool]int{true: 8, false: 6}[c.hi == 40])
		require.InDeltaSlice(t, c.want, got, 1e-9, "%v to %v: %v", c.lo, c.hi, got)
	}
	nan := []Point{{1, math.NaN()}, {2, math.Inf(1)}}
	require.NotContains(t, string(Curve("loss", "nats", nan, nil)), "NaN")
}
