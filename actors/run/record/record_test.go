package record

import (
	"fmt"
	"math"
	"math/rand/v2"
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

// TestSmooth: a line that falls straight comes back as it is, at both ends too, where a mean of what came
// before lies above it; noise is averaged; what is no number has no part.
func TestSmooth(t *testing.T) {
	var line, noisy []Point
	for i := range 200 {
		x := float64(3*i + 1)
		line = append(line, Point{x, 5 - .01*x})
		noisy = append(noisy, Point{x, 5 - .01*x + .5*float64(i%2*2-1)})
	}
	for i, p := range smooth(line, 20) {
		require.InDelta(t, line[i].Y, p.Y, 1e-9, "step %v", p.X)
	}
	for i, p := range smooth(noisy, 20) {
		if i > 30 && i < 190 {
			require.InDelta(t, line[i].Y, p.Y, .1, "step %v", p.X)
		}
	}
	decay := func(x float64) float64 { return 2 + 4/math.Sqrt(x) } // as losses fall at their start
	var fall []Point
	for x := 1.0; x <= 300; x++ {
		fall = append(fall, Point{x, decay(x)})
	}
	for _, p := range smooth(fall, 20) {
		require.InDelta(t, decay(p.X), p.Y, .12, "step %v", p.X)
	}
	require.Equal(t, []Point{{1, 4}}, smooth([]Point{{1, 4}, {2, math.NaN()}}, 20))
}

// TestSmoothRange: of 1,000 drawn curves with noise, jumps, gaps and steps without a number no smoothed value lies
// outside of the values that are near it, and the figure beside the line is the last step's own.
func TestSmoothRange(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 1000 {
		var ps []Point
		x, y, last := 0.0, r.NormFloat64(), 0.0
		for range 1 + r.IntN(300) {
			x += float64(1 + r.IntN(1+r.IntN(20)))
			if y += r.NormFloat64() * .1; r.IntN(30) == 0 {
				y += r.NormFloat64() * 5
			}
			if r.IntN(20) == 0 {
				ps = append(ps, Point{x, math.NaN()})
				continue
			}
			last = y + r.NormFloat64()*.2
			ps = append(ps, Point{x, last})
		}
		for _, p := range smooth(ps, 20) {
			lo, hi := math.Inf(1), math.Inf(-1)
			for _, q := range ps {
				if math.Abs(q.X-p.X) <= 20*math.Log(1000) && !math.IsNaN(q.Y) {
					lo, hi = min(lo, q.Y), max(hi, q.Y)
				}
			}
			require.True(t, lo <= p.Y && p.Y <= hi, "%v is not in %v to %v", p, lo, hi)
		}
		if len(finite(ps)) > 0 {
			require.Contains(t, string(Curve("x", "loss", ps, nil)), fmt.Sprintf(`font-weight="bold">%.4g</text>`, last))
		}
	}
}

// TestCurveRange: the least and the greatest value lie inside the frame, also those of many steps, of which
// only means are drawn as a line.
func TestCurveRange(t *testing.T) {
	var ps []Point
	for i := range 10_000 {
		ps = append(ps, Point{float64(i + 1), 3})
	}
	ps[5000].Y, ps[7000].Y = 1, 9
	lo, hi := rangeOf(ps)
	require.Less(t, lo, 1.)
	require.Greater(t, hi, 9.)
	mean, least, most := thinned(ps, 1000)
	require.Len(t, mean, 1000)
	require.Equal(t, 1., least[500].Y)
	require.Equal(t, 9., most[700].Y)
	svg := string(Curve("loss", "nats a token", ps, []Point{{100, 2}}))
	for _, want := range []string{"least and greatest of 7 steps", "smoothed", "evaluation", ">step<",
		">nats a token<"} {
		require.Contains(t, svg, want)
	}
	require.Less(t, len(svg), 200_000)
}
