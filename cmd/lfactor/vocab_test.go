package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/format"
)

// TestForeignIDs: ids that the model has no row for, as of another tokenizer's .bin file, are found by lint,
// quarantined in training, and end it with exit code 4 over the budget.
func TestForeignIDs(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	w, err := format.NewIndexedWriter(filepath.Join(dir, "ids"), 70_000)
	require.NoError(t, err)
	for i := range int32(60) {
		ids := make([]int32, 50)
		for k := range ids {
			ids[k] = (i*7 + int32(k)) % 390
		}
		if i%10 == 3 {
			ids[20] = 401 // the model has 401 rows
		}
		require.NoError(t, w.Add(ids))
		w.EndDocument()
	}
	require.NoError(t, w.Close())
	args := []string{"data.kind=megatron", "data.paths=[ids]", "data.split=[1,0,0]", "train.steps=20",
		"checkpoint.interval=0"}
	code, out := runIn(t, dir, nil, append([]string{"data", "lint", "--config", "run.yaml"}, args...)...)
	require.Equal(t, exit.Data, code, out)
	require.Contains(t, out,
		"document 3: ids.bin at byte 600: its token 20 is id 401, and the model has the ids 0 to 400")
	require.Contains(t, out, "60 documents, 6 findings")
	code, out = runIn(t, dir, nil, append([]string{"train", "run.yaml", "data.quarantine=6", "log.dir=kept"},
		args...)...)
	require.Zero(t, code, out)
	b, err := os.ReadFile(filepath.Join(dir, "kept", "quarantine.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(b), "is id 401")
	code, out = runIn(t, dir, nil, append([]string{"train", "run.yaml", "data.quarantine=2", "log.dir=spent",
		"checkpoint.dir=other"}, args...)...)
	require.Equal(t, exit.Data, code, out)
	require.Contains(t, out, "over the budget of 2")
}
