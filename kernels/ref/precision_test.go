package ref

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestPrecisionGolden: numbers of few bits are PyTorch's casts bit for bit, and matrices in blocks are
// torchao's (MXFP8, MXFP4) and those of TransformerEngine's rule of scales.
func TestPrecisionGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/precision.json") // bench/golden/precision.py
	require.NoError(t, err)
	var g map[string][]uint32
	require.NoError(t, json.Unmarshal(text, &g))
	for name, format := range map[string]kernels.Number{"e4m3": kernels.E4M3, "e5m2": kernels.E5M2} {
		for i, x := range g["x"] {
			v := math.Float32frombits(x)
			require.Equal(t, math.Float32frombits(g[name][i]), nearest(format, v), "%s of %g", name, v)
		}
	}
	wide := make([]float32, len(g["matrix"]))
	for i, x := range g["matrix"] {
		wide[i] = math.Float32frombits(x)
	}
	for _, p := range kernels.Precisions[1:] {
		grain := p.Act
		grain.Columns = 32
		got := rounded(tensor.Of(tensor.F32, wide, 4, 96), grain).F32()
		for i, x := range g[p.Name] {
			require.Equal(t, math.Float32frombits(x), got[i], "%s, number %d: %g", p.Name, i, wide[i])
		}
	}
}
