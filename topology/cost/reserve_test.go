package cost

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestReserve: training gets a device's memory less the reserve, the usual one where none is given; every
// published card offers less than it is sold with.
func TestReserve(t *testing.T) {
	sold := map[string]float64{"a100": 80, "a100-2021": 80, "a800": 80, "h100": 80, "h800": 80, "h200": 141,
		"b200": 180, "gb200": 186, "mi300x": 192, "mi325x": 256, "mi355x": 288, "h20": 96, "gb300": 279}
	for name, gib := range sold {
		text, err := configs.ClusterFile(name)
		require.NoError(t, err)
		m, err := Read(name, text)
		require.NoError(t, err)
		require.InDelta(t, m.Memory*(1-UsualReserve), m.Least(), 1, name)
		require.Less(t, m.Memory, gib*(1<<30), name)
		require.Greater(t, m.Memory, 0.98*gib*(1<<30), name)
	}
	text, err := configs.ClusterFile("cpu")
	require.NoError(t, err)
	m, err := Read("cpu", text)
	require.NoError(t, err)
	require.Equal(t, m.Memory, m.Least(), "a processor's ranks have a budget of their own")
	_, err = Read("x", bytes.Replace(text, []byte("reserve: 0"), []byte("reserve: 1"), 1))
	require.ErrorContains(t, err, "device.reserve: 1 leaves no memory")
}
