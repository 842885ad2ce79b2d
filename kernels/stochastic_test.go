package kernels

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChanceOfNumbers holds rounding by chance to its definition in float64, and factors that are powers of
// two to theirs, on numbers of all sizes: subnormal, beyond the greatest, 0, infinite.
func TestChanceOfNumbers(t *testing.T) {
	chance := func(n Number, x float32, place int) float32 {
		a := math.Abs(float64(x))
		if a != a {
			return x
		}
		step := n.step(a)
		low := math.Floor(a / step)
		if float64(NoiseAt(7, place)>>8) < (a/step-low)*(1<<24) {
			low++
		}
		return float32(math.Copysign(min(low*step, float64(n.Most)), float64(x)))
	}
	factor := func(g Grain, most float32) float32 {
		f := g.Number.Most / most
		switch g.Scale {
		case ScalePower:
			f = math.Float32frombits(math.Float32bits(f) & 0x7f800000)
		case ScaleMX:
			_, e := math.Frexp(float64(most))
			f = float32(math.Ldexp(1, g.Number.Top-(e-1)))
		}
		return f
	}
	r := rand.New(rand.NewPCG(4, 2))
	for _, n := range []Number{E4M3, E5M2, E2M1} {
		for i := range 200000 {
			x := math.Float32frombits(r.Uint32())
			switch i % 4 {
			case 0:
				x = float32(r.NormFloat64()) * n.Most / 4
			case 1:
				x = float32(r.NormFloat64() * math.Ldexp(1, n.Least))
			case 2:
				x = float32(int(x)%9) * 0.25
			}
			want, got := chance(n, x, i), n.StochasticRound(x, NoiseAt(7, i))
			require.Equal(t, math.Float32bits(want), math.Float32bits(got), "%s of %g: %g, want %g", n.Name,
				x, got, want)
			most := float32(math.Abs(float64(x)))
			if !(most > 1e-25 && most < 1e25) {
				continue
			}
			for _, rule := range []ScaleRule{ScalePower, ScaleMX} {
				g := Grain{Number: n, Rows: 1, Columns: 32, Scale: rule}
				by, back := g.Factor(most, most)
				require.Equal(t, factor(g, most), by, "%s, rule %d, of %g", n.Name, rule, most)
				require.Equal(t, 1/by, back)
			}
			for _, rule := range []ScaleRule{ScaleFloat, ScalePower, ScaleMX, ScaleNV} {
				g, all, l := Grain{Number: n, Rows: 1, Columns: 32, Scale: rule}, most*float32(i%90),
					[4]float32{}
				by, back := g.Factor(most, all)
				g.Factors([]float32{most / 2, most}, 2, all, l[:2], l[2:])
				require.Equal(t, [4]float32{by, by, back, back}, l, "%s, rule %d, of %g in %g", n.Name, rule,
					most, all)
			}
		}
	}
}

// TestEightBitsOfInfinity: a moment beyond all numbers has the last place of the map, and not the first.
func TestEightBitsOfInfinity(t *testing.T) {
	for _, signed := range []bool{true, false} {
		d := newDynamic(signed)
		require.Equal(t, uint8(255), d.find(float32(math.Inf(1))))
		require.Equal(t, uint8(255), d.find(1))
	}
}
