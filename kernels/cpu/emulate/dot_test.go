package emulate

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Sums whose result tells one way of taking them from another. Elements are bfloat16, the upper halves of float32.
func TestProductOfRow(t *testing.T) {
	const (
		least = 0x1p-126 // the smallest normal number
		most  = 0x1p127
	)
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		why        string
		c          float64
		a, b       []float64 // pairs, one after another
		want, flat float64   // flat is the result of the way that the case rules out
	}{
		{"plain", 1, []float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 71, 0},
		{"first and second elements are summed apart", 0, []float64{1, 1, 0, 0, -1, 0},
			[]float64{0x1p24, 1, 0, 0, 0x1p24, 0}, 1, 0},
		{"c comes last", 0x1p24, []float64{1, 0, 1, 0}, []float64{1, 0, 1, 0}, 0x1p24 + 2, 0x1p24},
		{"sums of pairs run in order", 0, []float64{1, 0, 1, 0, 1, 0}, []float64{0x1p24, 0, 1, 0, 1, 0},
			0x1p24, 0x1p24 + 2},
		{"a tie goes to even", 0x1p24 + 2, []float64{1, 0}, []float64{1, 0}, 0x1p24 + 4, 0x1p24 + 2},
		{"a product is not rounded to overflow", 0, []float64{-1, 0, 2, 0}, []float64{most, 0, most, 0},
			most, inf},
		{"a sum that is a subnormal product is 0", least, []float64{-0x1p-1, 0, 0, 0},
			[]float64{least, 0, 0, 0}, least, least / 2},
		{"a product of normal numbers that is subnormal in a sum", 0, []float64{1, 0, 0x1p-7, 0},
			[]float64{least, 0, least, 0}, least * (1 + 0x1p-7), least},
		{"a subnormal element is 0", 0, []float64{0x1p-133, 0}, []float64{most, 0}, 0, 0x1p-6},
		{"a subnormal sum is 0", 0, []float64{1.5, 0, -1, 0}, []float64{least, 0, least, 0}, 0, least / 2},
		{"a subnormal c is 0", 0x1p-127, []float64{1, 0}, []float64{least, 0}, least, 1.5 * least},
		{"infinity", 0, []float64{inf, 1}, []float64{2, 3}, inf, 0},
		{"infinity less infinity", 0, []float64{inf, inf}, []float64{1, -1}, nan, 0},
		{"infinity times a subnormal element", 0, []float64{inf, 1}, []float64{0x1p-133, 1}, nan, inf},
		{"not a number", 1, []float64{nan, 0, 1, 1}, []float64{0, 1, 1, 1}, nan, 1},
		{"overflow", 0, []float64{2, 0}, []float64{most, 0}, inf, 0},
		{"negative zero", math.Copysign(0, -1), []float64{1, 1}, []float64{math.Copysign(0, -1), 0}, 0,
			math.Copysign(0, -1)},
	} {
		var x, y, z tile
		z[0][0] = math.Float32bits(float32(c.c))
		for i := range c.a {
			x[0][i/2] |= bfloat16(t, c.a[i]) << (16 * (i % 2))
			y[i/2][0] |= bfloat16(t, c.b[i]) << (16 * (i % 2))
		}
		mulAdd(&z, &x, &y, 1, len(c.a)/2, 1)
		require.Equal(t, same(float32(c.want)), same(math.Float32frombits(z[0][0])), c.why)
		require.NotEqual(t, same(float32(c.want)), same(float32(c.flat)), "%s: the case shows nothing", c.why)
	}
}

// bfloat16 gives the bits of a number that is one. The lower half of a NaN does not matter.
func bfloat16(t *testing.T, x float64) uint32 {
	b := math.Float32bits(float32(x))
	require.True(t, b&0xFFFF == 0 || x != x, "%v is no bfloat16", x)
	return b >> 16
}

// same gives bits to compare: one for all NaNs, whose bits nothing here depends on.
func same(x float32) string {
	if x != x {
		return "NaN"
	}
	return fmt.Sprintf("%08x (%g)", math.Float32bits(x), x)
}

// Rounding at the border of subnormal numbers: what counts is the number of 24 bits with any exponent.
func TestRounded(t *testing.T) {
	const least = 0x1p-126
	for x, want := range map[float64]float32{
		least: least, least - 0x1p-152: least, least - 0x1p-151: least, least - 0x1.1p-151: 0,
		least - 0x1p-150: 0, 0x1p-140: 0,
		0x1p128 - 0x1p103: float32(math.Inf(1)), 0x1p128 - 0x1.1p103: math.MaxFloat32,
	} {
		require.Equal(t, same(want), same(rounded(x)), "%x", x)
		require.Equal(t, same(-want), same(rounded(-x)), "-%x", x)
	}
	require.Equal(t, same(float32(math.Copysign(0, -1))), same(rounded(-0x1p-140)))
}

// Whole tiles against exact arithmetic, with exponents of elements about the bounds of the fast path and beyond.
func TestProductOfTiles(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, e := range [][2]int{{-1, 1}, {-9, 9}, {-55, 55}, {-56, 55}, {-55, 56}, {-58, -53}, {-63, -56},
		{-64, -62}, {-67, 0}, {-126, 0}, {56, 64}, {63, 64}, {0, 127},
		{-127, 128}} { // the last has subnormal numbers, infinities and NaNs
		element := func() uint32 {
			return uint32(r.IntN(2)<<15 | (127+e[0]+r.IntN(e[1]-e[0]+1))<<7 | r.IntN(128))
		}
		for run := range 6 {
			m, k, n := 1+r.IntN(16), 1+r.IntN(16), 1+r.IntN(16)
			var a, b, c, want tile
			for i := range 16 {
				for j := range 16 {
					if run%2 == 0 { // else sums that are small stay visible
						c[i][j] = element()<<16 | uint32(r.IntN(1<<16))
					}
					if i < m && j < k && r.IntN(9) > 0 {
						a[i][j] = element() | element()<<16
					}
					if i < k && j < n {
						b[i][j] = element() | element()<<16
					}
				}
			}
			want = c
			for i := range m {
				for j := range n {
					want[i][j] = exactly(c[i][j], a[i][:k], column(&b, j)[:k])
				}
			}
			mulAdd(&c, &a, &b, m, k, n)
			for i := range 16 {
				for j := range 16 {
					require.Equal(t, same(math.Float32frombits(want[i][j])),
						same(math.Float32frombits(c[i][j])), "exponents %d, %d×%d×%d, [%d,%d]", e, m, k,
						n, i, j)
				}
			}
		}
	}
}

func column(t *tile, j int) (v []uint32) {
	for i := range t {
		v = append(v, t[i][j])
	}
	return v
}

// exactly is one element of the product, step by step in exact arithmetic.
func exactly(c uint32, a, b []uint32) uint32 {
	var s [2]float32
	for p := range a {
		for h := range s {
			bits := func(w uint32) float32 { return math.Float32frombits(w >> (16 * h) << 16) }
			s[h] = multiplyAdd(bits(a[p]), bits(b[p]), s[h])
		}
	}
	return math.Float32bits(multiplyAdd(1, math.Float32frombits(c), multiplyAdd(1, s[0], s[1])))
}

// multiplyAdd is x·y + z, rounded once, with subnormal numbers taken as 0.
func multiplyAdd(x, y, z float32) float32 {
	in := [3]float32{x, y, z}
	for i, v := range in {
		if math.Abs(float64(v)) < 0x1p-126 {
			in[i] = float32(math.Copysign(0, float64(v)))
		}
		if d := float64(v) - float64(v); d != d { // infinite or not a number: exact in any precision
			return float32(float64(in[0])*float64(in[1]) + float64(z))
		}
	}
	exact := func(v float32) *big.Float { return new(big.Float).SetPrec(2000).SetFloat64(float64(v)) }
	f := exact(in[0])
	f.Mul(f, exact(in[1])).Add(f, exact(in[2])).SetPrec(24)
	d, _ := f.Float64()
	if math.Abs(d) < 0x1p-126 {
		d = math.Copysign(0, d)
	}
	return float32(d)
}
