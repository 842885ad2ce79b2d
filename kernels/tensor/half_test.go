package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every 16-bit value must survive the way to float32 and back, and a float32 between two neighbours must go
// to the nearer one, at the tie to the even one.
func TestHalfRoundsToNearestEven(t *testing.T) {
	for _, f := range []struct {
		name  string
		value func(uint16) float32
		bits  func(float32) uint16
		inf   uint16
	}{{"bf16", BF16Value, BF16Bits, 0x7f80}, {"f16", F16Value, F16Bits, 0x7c00}} {
		for b := range uint32(1 << 16) {
			u := uint16(b)
			v := f.value(u)
			if v != v {
				require.NotEqual(t, f.value(f.bits(v)), f.value(f.bits(v)), "%s %#x", f.name, u)
				continue
			}
			require.Equal(t, u, f.bits(v), "%s %#x", f.name, u)
			if u&0x7fff >= f.inf-1 {
				continue
			}
			next := f.value(u + 1)
			tie := float32((float64(v) + float64(next)) / 2)
			require.Equal(t, u+u&1, f.bits(tie), "%s tie above %#x", f.name, u)
			require.Equal(t, u, f.bits(math.Nextafter32(tie, v)), "%s below the tie above %#x", f.name, u)
			require.Equal(t, u+1, f.bits(math.Nextafter32(tie, next)), "%s above the tie above %#x",
				f.name, u)
		}
	}
}

func TestHalfOverflow(t *testing.T) {
	require.Equal(t, uint16(0x7bff), F16Bits(65519.996))
	require.Equal(t, uint16(0x7c00), F16Bits(65520))
	require.Equal(t, uint16(0xfc00), F16Bits(float32(math.Inf(-1))))
	require.Equal(t, uint16(0x7f80), BF16Bits(math.MaxFloat32))
}

// A double just above a tie in bf16 rounds to the tie in float32, and from there, wrongly, to even.
func TestRoundOddAvoidsDoubleRounding(t *testing.T) {
	tie := float64(BF16Value(0x3f80)+BF16Value(0x3f81)) / 2
	above := tie + 0x1p-40
	require.Equal(t, uint16(0x3f80), BF16Bits(float32(above)))
	require.Equal(t, uint16(0x3f81), BF16Bits(RoundOdd(above)))
	require.Equal(t, uint16(0x3f80), BF16Bits(RoundOdd(tie-0x1p-40)))
	require.Equal(t, uint16(0xbf81), BF16Bits(RoundOdd(-above)))
}
