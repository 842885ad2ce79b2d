package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDemoLong: the demo trains both models on short and on long texts and asks both; with all of its steps
// the hybrid finds needles that windows cannot reach.
func TestDemoLong(t *testing.T) {
	t.Parallel()
	dir, args := t.TempDir(), []string{"demo", "--long", "--dir", "d", "-o", "json"}
	if !*long {
		t.Log("two steps instead of all: add -long")
		args = append(args, "--steps", "2")
	}
	code, out, errs := streams(t, dir, "", args...)
	require.Zero(t, code, errs)
	var got struct {
		Asked, Tokens, Hybrid, Window int
		Chunks                        []struct {
			Chunk int
			Peak  int64 `json:"peak_bytes"`
		}
		Files map[string]string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, 8192, got.Tokens)
	require.Zero(t, got.Window)
	if *long {
		require.Equal(t, 20, got.Asked)
		require.Greater(t, got.Hybrid, 14)
	}
	require.Equal(t, []int{8192, 256}, []int{got.Chunks[0].Chunk, got.Chunks[5].Chunk})
	require.Less(t, got.Chunks[5].Peak, got.Chunks[0].Peak*6/10)
	text, err := os.ReadFile(filepath.Join(dir, got.Files["chunks"]))
	require.NoError(t, err)
	require.Contains(t, string(text), "<svg")
}
