//go:build cuda

package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRates: devices are known by the words of the driver's names for them, the most particular first.
func TestRates(t *testing.T) {
	for name, half := range map[string]float64{"NVIDIA H200": 989.4e12, "NVIDIA H100 80GB HBM3": 989.4e12,
		"NVIDIA H100 PCIe": 756e12, "NVIDIA A100-SXM4-80GB": 312e12, "NVIDIA A100-PCIE-40GB": 312e12,
		"NVIDIA L40S": 362e12, "NVIDIA L4": 121e12, "NVIDIA GeForce RTX 4090": 165.2e12,
		"NVIDIA B200":     2.25e15,
		"emulated device": 0, "NVIDIA A1000": 0} {
		require.Equal(t, half, ratesNamed(name).TeamTiles, name)
	}
	require.Equal(t, 2.039e12, ratesNamed("NVIDIA A100-SXM4-80GB").Memory)
	require.Equal(t, 1.555e12, ratesNamed("NVIDIA A100-SXM4-40GB").Memory)
}
