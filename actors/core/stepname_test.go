package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStepName: a signal during an evaluation names its batch, not "step -4".
func TestStepName(t *testing.T) {
	require.Equal(t, "evaluation batch 4", StepName(-4))
	require.Equal(t, "step 12", StepName(12))
}
