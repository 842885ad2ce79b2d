package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLeavingText: what a host that is taken back leaves unsaved is held against the time, and marked where that is short or
// nothing is known of it.
func TestLeavingText(t *testing.T) {
	for want, save := range map[string]time.Duration{
		"! a host of this run is taken back in 30s; 7 steps since step 5 are not saved, and how long that takes is not known: " +
			"they may be lost": 0,
		"a host of this run is taken back in 30s; 7 steps since step 5 are not saved, and the last save took 3.2s: there is time " +
			"for it": 3200 * time.Millisecond,
		"! a host of this run is taken back in 30s; 7 steps since step 5 are not saved, and the last save took 40s: they may be " +
			"lost": 40 * time.Second,
	} {
		require.Equal(t, want, leavingText(30*time.Second, save, 7, 5))
	}
}
