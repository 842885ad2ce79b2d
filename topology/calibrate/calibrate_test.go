package calibrate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCalibrate(t *testing.T) {
	m, fit, err := Calibrate("cpu", 1)
	require.NoError(t, err)
	require.Positive(t, fit.Segments)
	require.Greater(t, m.Flops, 1e8)
	require.Greater(t, m.Bandwidth, 1e7)
	_, _, err = Calibrate("abacus", 1)
	require.ErrorContains(t, err, `device "abacus": this build has`)
}
