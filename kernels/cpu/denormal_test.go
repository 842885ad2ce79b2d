package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Assembly takes subnormal numbers as zero inside and must put the control register back: Go's own
// arithmetic keeps them.
func TestSubnormalsOutsideStay(t *testing.T) {
	tiny := math.Float32frombits(1 << 20)
	for _, k := range tested() {
		y, x := make([]float32, 16), make([]float32, 16)
		for i := range x {
			x[i] = tiny
		}
		k.scale(y, x, 1)
		k.dot(x, x)
		if k.name != "go" && k.name != "neon" { // Arm's vectors take them as they are
			require.Zero(t, y[0], "%s flushes", k.name)
		}
		half := x[3] / 2
		require.NotZero(t, half, "%s left the control register changed", k.name)
		k.fromBF16(y, []uint16{1, 0x8001, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		require.Equal(t, math.Float32frombits(1<<16), y[0], "%s: conversions keep subnormals", k.name)
	}
}
