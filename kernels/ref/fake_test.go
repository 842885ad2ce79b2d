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

// TestFakeQuantIsTorchao: weights as products see them, and the gradients that pass, are those of torchao's fake
// quantizers (bench/golden/fake.py): groups and whole rows, zeros, and numbers beyond the greatest. On the least and
// the greatest themselves PyTorch 2.15 passes no gradient, where the published rule does.
func TestFakeQuantIsTorchao(t *testing.T) {
	text, err := os.ReadFile("testdata/fake.json")
	require.NoError(t, err)
	var cases []struct {
		Bits, Group int
		W, DY, DW   [][]float32
		Y           [][]float32
	}
	require.NoError(t, json.Unmarshal(text, &cases))
	masked := 0
	for _, c := range cases {
		flat := func(rows [][]float32, by float32) *tensor.Tensor {
			var v []float32
			for _, row := range rows {
				for _, x := range row {
					v = append(v, x*by)
				}
			}
			return tensor.Of(tensor.F32, v, len(rows), len(rows[0]))
		}
		w, dy := flat(c.W, 1.0/256), flat(c.DY, 1.0/256)
		at := kernels.Fake{Bits: c.Bits, Group: c.Group}.Attr()
		y, dw := tensor.Make(tensor.F32, w.Shape...), tensor.Make(tensor.F32, w.Shape...)
		New().Run(&kernels.Call{Op: kernels.FakeQuant, In: []*tensor.Tensor{w}, Out: []*tensor.Tensor{y}, Attr: at})
		New().Run(&kernels.Call{Op: kernels.FakeQuantDW, In: []*tensor.Tensor{dy, w}, Out: []*tensor.Tensor{dw}, Attr: at})
		require.Equal(t, flat(c.Y, 1).F32(), y.F32(), "%d bits, groups of %d", c.Bits, c.Group)
		want, least := flat(c.DW, 1.0/256).F32(), -float32(int(1)<<(c.Bits-1))
		for i, x := range dw.F32() {
			k := w.Shape[1]
			group := w.F32()[i/k*k : (i/k+1)*k]
			if c.Group > 0 {
				group = w.F32()[i/c.Group*c.Group : (i/c.Group+1)*c.Group]
			}
			f := kernels.FakeAt(at)
			switch q := float32(math.RoundToEven(float64(w.F32()[i] * (1 / f.Scale(group))))); q {
			case least, -least - 1: // on a bound, where this PyTorch's clamp passes no gradient
				require.Zero(t, want[i])
				require.Equal(t, dy.F32()[i], x)
			default:
				require.InDelta(t, want[i], x, 1e-7, "%d bits, groups of %d", c.Bits, c.Group)
				if x == 0 && dy.F32()[i] != 0 {
					masked++
				}
			}
		}
	}
	require.Greater(t, masked, 5)
}
