package kernels

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCodes: every byte of e4m3 is the code of its number, and a row comes back as it is rounded.
func TestCodes(t *testing.T) {
	for b, x := range OfCode {
		if x == x {
			require.EqualValues(t, b, Code(x), "%g", x)
		} else {
			require.EqualValues(t, 127, Code(x)&127)
		}
	}
	g := Precisions[1].Act
	row := make([]float32, 300)
	for i := range row {
		row[i] = float32(math.Sin(float64(i*i))) * float32(math.Exp2(float64(i%40-20)))
	}
	row[290] = float32(math.NaN())
	codes, back := make([]byte, CodesLen(300, 128)), make([]float32, 300)
	g.Encode(row, codes)
	g.Decode(codes, back)
	for at := 0; at < 256; at += 128 {
		by, f := g.Factor(GreatestOf(0, row[at:at+128]), 0)
		for i := at; i < at+128; i++ {
			require.Equal(t, g.Number.Nearest(row[i]*by)*f, back[i], "%d", i)
		}
	}
	for _, x := range back[256:] {
		require.True(t, x != x, "a block with a NaN is NaN")
	}
}
