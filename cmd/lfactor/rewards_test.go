package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConvertRewards: a model of rewards is converted with its head of scores, compared by its scores, and refused
// where a form has no place for them, with nothing left behind.
func TestConvertRewards(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	pairs := strings.Repeat(`{"prompt": "one and one", "chosen": "two", "rejected": "three or so"}`+"\n", 20)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pairs.jsonl"), []byte(pairs), 0o644))
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "objective.kind=reward", "data.paths=[pairs.jsonl]", "data.kind=auto", "train.steps=2",
		"checkpoint.interval=2")
	require.Zero(t, code, out)
	for _, step := range [][]string{{"ckpt", "hf"}, {"hf", "own", "--to", "lfactor"}, {"own", "again"}, {"hf", "few", "--quantize", "int8"}} {
		code, out = runIn(t, dir, nil, append([]string{"ckpt", "convert"}, step...)...)
		require.Zero(t, code, "%s: %s", step, out)
		require.Contains(t, out, "logits of a probe differ by at most", step)
	}
	code, out = runIn(t, dir, nil, "ckpt", "diff", "hf", "again")
	require.Zero(t, code, out)
	for _, form := range []string{"gguf", "megatron", "megatron-ranks"} {
		for _, from := range []string{"ckpt", "hf"} {
			code, out = runIn(t, dir, nil, "ckpt", "convert", from, "none", "--to", form)
			require.Equal(t, 2, code, out)
			require.Contains(t, out, "is a model of rewards, and "+form+" has no place for its head of scores")
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*none*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
