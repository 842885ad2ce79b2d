package tables

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDeviceEvent: what a run says of its devices' faults is an event of a kind of its own, beside warnings.
func TestDeviceEvent(t *testing.T) {
	for text, kind := range map[string]string{"! device cuda:0 has 1 uncorrected ECC errors more": "device",
		"! devices are few": "warning"} {
		e, err := ParseEvent([]byte(`{"level":"info","ts":1,"msg":"` + text + `"}`))
		require.NoError(t, err)
		require.Equal(t, kind, e.Kind)
	}
}
