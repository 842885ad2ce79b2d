package quant

import (
	"bufio"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var long = flag.Bool("long", false, "hold each key of adapter_config.json to PEFT")

// TestAdapterKeys: each key of PEFT's adapter_config.json, altered alone, acts where an adapter is added to weights, is
// refused, or moves nothing in PEFT either. It wants Python with peft, named by LFACTOR_PYTHON or python3.
func TestAdapterKeys(t *testing.T) {
	if !*long {
		t.Skip("each key of adapter_config.json is held to PEFT with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import torch, peft").Run(); err != nil {
		t.Skipf("%s cannot import torch and peft (%v): no key is compared", python, err)
	}
	out, err := exec.Command(python, "../../../bench/golden/adapter_keys.py").Output()
	require.NoError(t, err)
	var base map[string]json.RawMessage
	var was *mergeConfig
	rest, counts := map[string]bool{}, map[string]int{}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		var c struct {
			Keys  []string
			Base  map[string]json.RawMessage
			Key   string
			Value json.RawMessage
			Moved bool
			Error string
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		if c.Keys != nil {
			for _, key := range c.Keys {
				rest[key] = true
			}
			base = c.Base
			was = merging(t, base)
			require.NotNil(t, was)
			continue
		}
		delete(rest, c.Key)
		all := maps.Clone(base)
		all[c.Key] = c.Value
		switch is := merging(t, all); {
		case is == nil:
			counts["refused"]++
		case !reflect.DeepEqual(is, was):
			counts["acts"]++
		case c.Moved:
			t.Errorf("%s = %s is silent", c.Key, c.Value)
		default:
			counts["nothing"]++
		}
	}
	for key := range rest { // of which a small model shows nothing: they are known, or refused
		all := maps.Clone(base)
		all[key] = json.RawMessage(`{"a": 1}`)
		counts["known by the table alone"]++
		_ = merging(t, all)
	}
	t.Log(counts, rest)
}

// merging is a configuration as the merge reads it, nil where it is refused.
func merging(t *testing.T, all map[string]json.RawMessage) *mergeConfig {
	t.Helper()
	text, err := json.Marshal(all)
	require.NoError(t, err)
	c, err := parseMergeConfig(text)
	if err != nil {
		return nil
	}
	return c
}
