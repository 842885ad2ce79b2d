package configs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type keysAtFault map[string]string

func (k keysAtFault) fault(key, why, _ string) { k[key] = why }

// TestRolloutAddress: an environment's address that names no server is a fault before a run begins.
func TestRolloutAddress(t *testing.T) {
	for address, bad := range map[string]bool{"http://": true, "ws://:x/": true, "https:///ws": true,
		"http://127.0.0.1:8000": false, "wss://u:p@host/path?q=1": false} {
		got := keysAtFault{}
		(&Rollout{Silence: 1, Wait: 1, Role: "user", Environment: []string{address}}).Check(got)
		require.Equal(t, bad, got["rollout.environment"] != "", address)
	}
}
