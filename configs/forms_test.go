package configs

import (
	"encoding/json"
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForms: alternatives with a part to fill in take what fits, in a run file and in the schema alike.
func TestForms(t *testing.T) {
	k := table().byName["device"]
	var schema struct {
		Properties map[string]struct{ Pattern string }
	}
	require.NoError(t, json.Unmarshal(Schema(), &schema))
	pattern := regexp.MustCompile(schema.Properties["device"].Pattern)
	for value, good := range map[string]bool{"cpu": true, "auto": true, "cuda": true, "cuda:12": true,
		"xpu": true, "xpu:/a/b.so": true,
		"cuda:": false, "cuda:x": false, "cpu:1": false, "xpu:": false, "cuda:NUMBER": false,
		"cuda:GPU-e0e1e2e3-E4": true, "cuda:MIG-0a": true, "cuda:GPU-": false, "cuda:CPU-1": false,
		"acuda:1": false, "tpu": false} {
		why, _ := k.check(reflect.ValueOf(value))
		require.Equal(t, good, why == "", "%s: %s", value, why)
		require.Equal(t, good, pattern.MatchString(value), value)
	}
}
