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
// torchao's (MXFP8, MXFP4, NVFP4) and those of TransformerEngine's rule of scales.
func TestPrecisionGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/precision.json") // bench/golden/precision.py
	require.NoError(t, err)
	var g map[string][]uint32
	require.NoError(t, json.Unmarshal(text, &g))
	for name, format := range map[string]kernels.Number{"e4m3": kernels.E4M3, "e5m2": kernels.E5M2} {
		for i, x := range g["x"] {
			v := math.Float32frombits(x)
			require.Equal(t, math.Float32frombits(g[name][i]), format.Nearest(v), "%s of %g", name, v)
		}
	}
	wide := make([]float32, len(g["matrix"]))
	for i, x := range g["matrix"] {
		wide[i] = math.Float32frombits(x)
	}
	for _, p := range kernels.Precisions[1:] {
		grain := p.Act
		if grain.Columns > 16 {
			grain.Columns = 32
		}
		got := rounded(tensor.Of(tensor.F32, wide, 4, 96), grain).F32()
		for i, x := range g[p.Name] {
			require.Equal(t, math.Float32frombits(x), got[i], "%s, number %d: %g", p.Name, i, wide[i])
		}
	}
	turned := make([]float32, len(g["runs"]))
	for i, x := range g["runs"] {
		turned[i] = math.Float32frombits(x)
	}
	kernels.Hadamard(turned, 3)
	for i, x := range g["turned"] {
		require.Equal(t, math.Float32frombits(x), turned[i], "number %d of runs that are turned", i)
	}
}

// TestNoiseIsCounted: of a gradient whose numbers all move by their last bit hardly one is rounded to another number, for
// no bit of it is in the noise; another draw, tensor or product, and rows and columns, have noise of their own.
func TestNoiseIsCounted(t *testing.T) {
	const rows, width = 32, 160
	precision, err := kernels.PrecisionOf("nvfp4")
	require.NoError(t, err)
	x := make([]float32, rows*width)
	for i := range x {
		x[i] = 0.9 + float32(i*7919%1000)/2500 // blocks and the matrix have the same greatest number
		if i%16 == 0 {
			x[i] = 2
		}
	}
	rounded := func(x []float32, draw int64, site, product int) []float32 {
		y := tensor.Make(tensor.F32, rows, width)
		Backend{}.Run(&kernels.Call{Op: kernels.Rounded, In: []*tensor.Tensor{tensor.Of(tensor.F32, x, rows, width),
			nil, nil, tensor.Of(tensor.I64, []int64{draw}, 1)}, Out: []*tensor.Tensor{y},
			Attr: kernels.Attr{I: [4]int{product, precision, 0, site}}})
		return y.F32()
	}
	apart := func(a, b []float32) (n float64) {
		for i := range a {
			if a[i] != b[i] {
				n += 1. / float64(len(a))
			}
		}
		return n
	}
	is := rounded(x, 5, 9, kernels.OperandsDX)
	next := make([]float32, len(x))
	for i, v := range x {
		if next[i] = v; v != 2 {
			next[i] = math.Nextafter32(v, 3)
		}
	}
	require.Less(t, apart(is, rounded(next, 5, 9, kernels.OperandsDX)), 1e-3)
	require.Equal(t, is, rounded(x, 5, 9, kernels.OperandsDX))
	for name, other := range map[string][]float32{"draw": rounded(x, 6, 9, kernels.OperandsDX),
		"tensor": rounded(x, 5, 10, kernels.OperandsDX)} {
		require.Greater(t, apart(is, other), 0.1, name)
	}
	same := make([]float32, rows*width)
	for i := range same {
		same[i] = map[bool]float32{true: 2, false: 1.1}[i%16 == 0]
	}
	y := rounded(same, 5, 9, kernels.OperandsDX)
	for r := range rows - 1 {
		require.Greater(t, apart(y[r*width:(r+1)*width], y[(r+1)*width:(r+2)*width]), 0.05, "row %d", r)
	}
}

// TestChance: a number between two of a format becomes the upper one in as many of all places as it is near
// to it, and one of the format, or beyond it, is what it was or the greatest.
func TestChance(t *testing.T) {
	for _, n := range []kernels.Number{kernels.E2M1, kernels.E4M3} {
		for _, x := range []float32{0.3, -0.3, 1.1, 1.49, 2.75, -3.9, 4.5} {
			sum, first := 0.0, n.StochasticRound(x, kernels.NoiseAt(3, 0))
			const places = 200000
			for place := range places {
				got := n.StochasticRound(x, kernels.NoiseAt(3, place))
				require.Equal(t, got, n.Nearest(got))
				sum += float64(got)
			}
			require.InDelta(t, x, sum/places, 0.006*math.Abs(float64(x)), "%s of %g", n.Name, x)
			require.Equal(t, first, n.StochasticRound(x, kernels.NoiseAt(3, 0)))
		}
		for _, x := range []float32{0, 0.5, -1.5, 4} {
			require.Equal(t, x, n.StochasticRound(x, 7))
		}
		require.Equal(t, -n.Most, n.StochasticRound(-2*n.Most, 7))
		require.True(t, math.IsNaN(float64(n.StochasticRound(float32(math.NaN()), 1))))
	}
}
