//go:build cuda

package calibrate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cuda"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/topology/cost"
)

// TestCalibrateDevice: a device is measured with its own memory and copies, and the description can be read
// again. What the emulator's rates are means nothing.
func TestCalibrateDevice(t *testing.T) {
	e := emulate.New(t)
	t.Setenv(cuda.LibraryVariable, e.Path)
	for _, v := range []string{cuda.ProductsVariable, cuda.AttentionVariable, cuda.ExchangeVariable} {
		t.Setenv(v, "none")
	}
	b, err := kernels.Open("cuda:1", kernels.Options{Strict: true})
	require.NoError(t, err)
	defer kernels.Close(b)
	m, fit, err := calibrate(b, []int{32, 64}, 16, tensor.F32)
	described(t, err)
	require.Positive(t, fit.Segments)
	require.Equal(t, "cuda:1 (emulated device)", m.Name)
	require.Equal(t, float64(1<<30), m.Memory)
	require.Greater(t, m.Copy, 1e7)
	require.Less(t, m.Local.PerByte, 1e-7)
	back, err := cost.Read("cuda.yaml", m.Write())
	require.NoError(t, err)
	require.Equal(t, m.Memory, back.Memory)
	require.InEpsilon(t, m.Flops, back.Flops, 1e-3)
}
