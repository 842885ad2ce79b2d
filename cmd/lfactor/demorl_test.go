package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDemoRL: the demo of rewards trains, draws, judges and writes its page; in some more than a minute,
// with
// -long, the share of right answers to sums that were not in training more than doubles.
func TestDemoRL(t *testing.T) {
	t.Parallel()
	dir, args := t.TempDir(), []string{"demo", "--rl", "--dir", "d", "-o", "json"}
	if !*long {
		t.Log("left out: the 150 steps after which accuracy has risen; -long has them")
		args = append(args, "--steps", "2")
	}
	code, out, errs := streams(t, dir, "", args...)
	require.Zero(t, code, errs)
	var got struct {
		Before float64 `json:"accuracy_before"`
		After  float64 `json:"accuracy_after"`
		Page   string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	if *long {
		require.Greater(t, got.After, 2*got.Before)
	}
	page, err := os.ReadFile(filepath.Join(dir, got.Page))
	require.NoError(t, err)
	require.Contains(t, string(page), "<svg")
	require.Contains(t, string(page), "after rewards")
}
