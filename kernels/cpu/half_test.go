package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// halfLevel is the level with primitives on bfloat16.
func halfLevel(t *testing.T) *isa {
	for _, k := range levels() {
		if k.half != nil {
			return k
		}
	}
	t.Skip("skipped: this machine has no level with primitives on bfloat16")
	return nil
}

// GELU and its slope of every bfloat16 are exact but for one rounding to 8 bits, and a sixteenth of that for the fits.
func TestHalfGELU(t *testing.T) {
	k := halfLevel(t)
	x, y, dx, one := make([]uint16, 1<<16), make([]uint16, 1<<16), make([]uint16, 1<<16), make([]uint16, 1<<16)
	for i := range x {
		x[i], one[i] = uint16(i), 0x3f80
	}
	k.half.gelu(y, x)
	k.half.geluBwd(dx, one, x)
	const bound = 0x1p-8 * 17 / 16
	for i := range x {
		v := float64(tensor.BF16Value(x[i]))
		if math.IsNaN(v) {
			require.True(t, math.IsNaN(float64(tensor.BF16Value(y[i]))), i)
			continue
		}
		phi, density := math.Erfc(-v/math.Sqrt2)/2, math.Exp(-v*v/2)/math.Sqrt(2*math.Pi)
		if math.IsInf(v, 0) || math.Abs(v*phi) < 1e-36 {
			continue
		}
		if want := v * phi; math.Abs(want) < math.MaxFloat32/2 {
			require.InDelta(t, want, tensor.BF16Value(y[i]), math.Abs(want)*bound, "gelu(%g)", v)
		}
		terms := phi + math.Abs(v*density)
		require.InDelta(t, phi+v*density, tensor.BF16Value(dx[i]), terms*bound, "slope at %g", v)
	}
}
