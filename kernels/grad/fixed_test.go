package grad

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestReachError: numbers of a microbatch's gradient at the bound, or none, are said with the parameter; below it they
// are added, and read back whole.
func TestReachError(t *testing.T) {
	for _, x := range []float32{1 << 12, -1 << 12, float32(math.NaN()), 4095, -4095, 0.125} {
		r := &Runner{Backend: ref.New(), Pool: tensor.NewPool("r", 0), Reach: 12, Grads: map[string]*tensor.Tensor{}}
		p := &Param{Name: "w", Local: []int{3}}
		r.addFixed(p, tensor.Of(tensor.F32, []float32{1, x, 2}, 3))
		r.addFixed(p, tensor.Of(tensor.F32, []float32{1, x, 2}, 3))
		if x == 0.125 || x*x < 1<<24 {
			require.Empty(t, r.Void)
			for i, want := range []float64{2, 2 * float64(x), 4} {
				require.Equal(t, want, float64(r.Grads["w"].I64()[i])*FixedUnit(12))
			}
			continue
		}
		require.Len(t, r.Void, 2)
		require.ErrorContains(t, r.Void[0], "the gradient of w has numbers in a microbatch that are not finite or "+
			"not below 2^12")
	}
}
