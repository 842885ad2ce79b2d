package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/configs"
)

// TestCompare: two runs of one file are the same in samples, losses and tensors; one with another rate parts in its
// losses and tensors but not in its samples; one with another order of data parts in its samples first.
// The same data in another folder is the same, and another file among it is not.
func TestCompare(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	train := func(name string, more ...string) string {
		code, out := runIn(t, dir, nil, append([]string{"train", "run.yaml", "-q", "log.dir=" + name,
			"log.tensors=['*.q_proj.*', '*.norm.weight_grad']", "log.tensor_steps=[1-4]",
			"checkpoint.dir=" + name + "-ckpt", "train.steps=4"}, more...)...)
		require.Zero(t, code, out)
		return filepath.Join(dir, name)
	}
	one, same := train("one"), train("same")
	rate, order := train("rate", "optimizer.lr=0.01"), train("order", "data.seed=7")
	compare := func(a, b string, want int) (c record.Comparison) {
		code, out, _ := streams(t, dir, "", "compare", a, b, "-o", "json")
		require.Equal(t, want, code, out)
		require.NoError(t, json.Unmarshal([]byte(out), &c), out)
		return c
	}
	c := compare(one, same, 0)
	require.Equal(t, [4]int64{4, 0, 0, 0}, [4]int64{c.Steps, c.Samples, c.Loss, c.TensorsAt})
	require.NotEmpty(t, c.Saved)
	require.Nil(t, c.Seen)
	require.EqualValues(t, 4, c.SeenSteps)
	c = compare(one, rate, 1)
	require.Equal(t, int64(0), c.Samples)
	require.Equal(t, int64(2), c.Loss)
	require.NotEmpty(t, c.Tensors)
	require.EqualValues(t, 2, c.Seen.Step)
	require.Equal(t, "model.layers.0.self_attn.q_proj.input", c.Seen.Tensor, "the first product of the step behind the update")
	require.Contains(t, func() (keys []string) {
		for _, k := range c.Keys {
			keys = append(keys, k.Key)
		}
		return
	}(), "optimizer.lr")
	require.Equal(t, int64(1), compare(one, order, 1).Samples)
	for _, folder := range []string{"text", "tok"} { // the same bytes elsewhere are the same samples
		require.NoError(t, os.CopyFS(filepath.Join(dir, "copied", folder), os.DirFS(filepath.Join(dir, folder))))
	}
	moved := []string{"data.paths=[copied/text]", "data.tokenizer=copied/tok"}
	c = compare(one, train("moved", moved...), 0)
	require.Equal(t, [3]int64{4, 0, 0}, [3]int64{c.Steps, c.Samples, c.Loss})
	require.Len(t, slices.DeleteFunc(c.Keys, func(k configs.Change) bool { return !strings.HasPrefix(k.Key, "data.") }), 2)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "copied/text/more.txt"), []byte("package more\n"), 0o644))
	require.Equal(t, int64(1), compare(one, train("more", moved...), 1).Samples)
	code, out, said := streams(t, dir, "", "compare", one, filepath.Join(dir, "none"))
	require.Equal(t, 6, code, out)
	require.Contains(t, said, "no run's records are here")
}
