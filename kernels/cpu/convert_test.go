package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConversions: rounding to bfloat16 is that of plain Go on every level, at every length: ties, numbers
// below the normal ones, infinities, and NaNs of any payload, alone in a vector or many. One instruction for it
// makes those below the normal ones 0.
func TestConversions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	special := []uint32{0x7fc00000, 0x7f800001, 0xffc12345, 0xff800001, 0x7f800000, 0xff800000, 0x00008000, 0x00018000,
		0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x00000001, 0x80000000}
	for _, k := range levels() {
		for n := range 133 {
			x := make([]float32, n)
			for i := range x {
				bits := r.Uint32()
				if bits>>23&0xff == 0xff { // NaNs come where they are put
					bits &^= 1 << 30
				}
				x[i] = math.Float32frombits(bits)
			}
			for i := 0; n > 0 && i < n%4; i++ {
				x[r.IntN(n)] = math.Float32frombits(special[r.IntN(len(special))])
			}
			want, got := make([]uint16, n), make([]uint16, n)
			goToBF16(want, x)
			k.toBF16(got, x)
			for i := range x {
				if k.half != nil && math.Float32bits(x[i])>>23&0xff == 0 {
					want[i], got[i] = 0, 0
				}
			}
			require.Equal(t, want, got, "%s %d", k.name, n)
			wide, back := make([]float32, n), make([]float32, n)
			goFromBF16(wide, want)
			k.fromBF16(back, want)
			for i := range wide {
				require.Equal(t, math.Float32bits(wide[i]), math.Float32bits(back[i]), "%s %d %d", k.name, n, i)
			}
		}
	}
}
