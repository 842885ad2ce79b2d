package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDemoMoE: the demo trains both models, and its result has their held-out losses, a map of experts and a
// replay in the simulator.
func TestDemoMoE(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	code, out, errs := streams(t, dir, "", "demo", "--moe", "--dir", "d", "--steps", "6", "-o", "json")
	require.Zero(t, code, errs)
	var got struct {
		Loss      float64
		DenseLoss float64 `json:"dense_loss"`
		Params    float64 `json:"parameters"`
		Active    float64 `json:"active_parameters"`
		Files     map[string]string
		Routing   struct {
			Steps int
			Rank  float64 `json:"rank_share_of_even_use"`
		}
		Step, Even float64
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.InDelta(t, 6.9, got.Loss, 0.5, "the logarithm of 1024 tokens, and a little learnt")
	require.InDelta(t, 6.9, got.DenseLoss, 0.5)
	require.NotEqual(t, got.Loss, got.DenseLoss)
	require.Greater(t, got.Params, 2*got.Active)
	require.Equal(t, 6, got.Routing.Steps)
	require.Greater(t, got.Routing.Rank, 1.0)
	text, err := os.ReadFile(filepath.Join(dir, got.Files["kinds"]))
	require.NoError(t, err)
	for _, want := range []string{"<svg", "block 4: punctuation", "block 1: indentation", "expert 7: "} {
		require.Contains(t, string(text), want)
	}
}
