package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
)

// TestLevelNamed: a level of instructions that LFACTOR_CPU names and the machine has not is an error with those that it
// has, where a run opens its device.
func TestLevelNamed(t *testing.T) {
	t.Setenv("LFACTOR_CPU", "generic")
	_, err := kernels.Open("cpu", kernels.Options{})
	require.ErrorContains(t, err, "LFACTOR_CPU=generic: this machine has ")
	t.Setenv("LFACTOR_CPU", "go")
	b, err := kernels.Open("cpu", kernels.Options{})
	require.NoError(t, err)
	require.Equal(t, "cpu-go", b.Name())
	kernels.Close(b)
}
