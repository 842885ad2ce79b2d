package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDemoRL: the demo of rewards trains, draws, judges and writes its page; in some more than a minute, with
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

// TestDemoRLCluster: the demo's run in four processes, of which it kills some, ends with the weights of the
// quiet one; -long has as many kills as the demo.
func TestDemoRLCluster(t *testing.T) {
	t.Parallel()
	dir, args := t.TempDir(), []string{"demo", "--rl", "--cluster", "--dir", "d", "-o", "json"}
	if !*long {
		t.Log("left out: 40 steps with some ten kills; -long has them")
		args = append(args, "--steps", "6")
	}
	code, out, errs := streams(t, dir, "", args...)
	require.Zero(t, code, errs)
	var got struct {
		Kills     int
		Different int `json:"different_tensors"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Zero(t, got.Different)
	require.GreaterOrEqual(t, got.Kills, 2)
}
