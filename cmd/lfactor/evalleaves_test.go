package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEvalLeavesRun: eval changes nothing in the folder of a run, whichever checkpoint it is asked of.
func TestEvalLeavesRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=3", "log.dir=run", "data.split=[80,20,0]")
	require.Zero(t, code, out)
	aside := filepath.Join(dir, "run", "quarantine.jsonl")
	require.NoError(t, os.WriteFile(aside, []byte(`{"source":"a","document":3,"file":"a","offset":0,"reason":"torn"}`+"\n"), 0o600))
	before := map[string]string{}
	for _, name := range []string{"quarantine.jsonl", "samples.ledger", "metrics.jsonl", "log.jsonl"} {
		text, err := os.ReadFile(filepath.Join(dir, "run", name))
		require.NoError(t, err)
		require.NotEmpty(t, text)
		before[name] = string(text)
	}
	for _, checkpoint := range []string{"checkpoint.dir=none", "train.eval_steps=1"} {
		code, out = runIn(t, dir, nil, "eval", "run.yaml", "log.dir=run", "data.split=[80,20,0]", checkpoint)
		require.Zero(t, code, out)
	}
	for name, text := range before {
		after, err := os.ReadFile(filepath.Join(dir, "run", name))
		require.NoError(t, err)
		require.Equal(t, text, string(after), name)
	}
}
