package decide

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOverdue: what is stopped has two seconds, what runs and does not get to it ten.
func TestOverdue(t *testing.T) {
	require.False(t, overdue(LeaseStopped-1, false))
	require.True(t, overdue(LeaseStopped, false))
	require.False(t, overdue(LeaseRunning-1, true))
	require.True(t, overdue(LeaseRunning, true))
}
