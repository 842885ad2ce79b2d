package run

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/profiler"
	"github.com/lfactor/lfactor/kernels"
)

// TestMFU: of a device that nobody knows the rates of, mfu is unknown and no share of the processor's.
func TestMFU(t *testing.T) {
	require.Equal(t, "unknown", share(math.Inf(1)))
	require.Equal(t, "25.0 %", share(0.25))
	require.Zero(t, profiler.DevicePeak("abacus", "bf16", 4))
	require.Equal(t, profiler.PeakFlops("bf16"), profiler.DevicePeak(kernels.CPU, "bf16", 4),
		"ranks share the processor")
	kernels.RegisterRates("abacus", func(which string) kernels.Peaks {
		require.Equal(t, "1", which)
		return kernels.Peaks{TeamTiles: 3, TeamMultiplyAdd: 2}
	})
	require.InDelta(t, 12, profiler.DevicePeak("abacus:1", "bf16", 4), 0)
	require.InDelta(t, 8, profiler.DevicePeak("abacus:1", "fp32", 4), 0)
}
