package run

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestValidSets: a named validation set has the loss that it has as the only one, whatever the plan; the evaluation's
// own is the mean of all, or that of train.eval_set, by which train.patience ends the run.
func TestValidSets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, false)
	text, err := os.ReadFile(filepath.Join(dir, "pairs.jsonl"))
	require.NoError(t, err)
	lines := strings.SplitAfter(strings.TrimSpace(string(text))+"\n", "\n")
	const half = 6 // pairs come again after twelve
	for name, part := range map[string][]string{"a": lines[:half], "b": lines[half : 2*half]} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(strings.Join(part, "")), 0o600))
	}
	load := func(log string, more ...string) (*configs.Config, error) {
		return configs.Load(configs.Request{Args: append([]string{"model.file=" + filepath.Join(dir, "model.yaml"),
			"data.paths=[" + filepath.Join(dir, "pairs.jsonl") + "]", "data.tokenizer=" + dir, "data.seq_len=48",
			"objective.kind=dpo", "train.global_batch=2", "train.micro_batch=1", "train.steps=4", "optimizer.lr=1e-3",
			"train.eval_interval=1", "train.eval_steps=3", "log.dir=" + log}, more...)})
	}
	type evaluation struct {
		Msg  string
		Loss float64
		Sets []SetLoss
	}
	train := func(more ...string) (out []evaluation) {
		log := t.TempDir()
		cfg, err := load(log, more...)
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{}))
		text, err := os.ReadFile(filepath.Join(log, "log.jsonl"))
		require.NoError(t, err)
		for _, line := range strings.Split(string(text), "\n") {
			var e evaluation
			if json.Unmarshal([]byte(line), &e) == nil && e.Msg == "eval" {
				out = append(out, e)
			}
		}
		return out
	}
	a, b := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl")
	both := "data.valid=[{path: " + a + ", name: one}, {path: " + b + ", name: two}]"
	alone := [][]evaluation{train("data.valid=[" + a + "]"), train("data.valid=[" + b + "]")}
	require.Len(t, alone[0], 4)
	require.NotEqual(t, alone[0][3].Loss, alone[1][3].Loss)
	require.Empty(t, alone[0][0].Sets)
	for _, plan := range []string{"plan.dp=1", "plan.dp=2", "plan.pp=2"} {
		of := train(both, plan)
		require.Len(t, of, 4, plan)
		for i, e := range of {
			require.Equal(t, []string{"one", "two"}, []string{e.Sets[0].Name, e.Sets[1].Name})
			for k := range alone {
				require.InDelta(t, alone[k][i].Loss, e.Sets[k].Loss, 1e-6, "%s, step %d", plan, i+1)
			}
			require.InDelta(t, (e.Sets[0].Loss+e.Sets[1].Loss)/2, e.Loss, 1e-12)
		}
	}
	for i, e := range train("data.valid=[{path: " + a + ", name: one}]") {
		require.Equal(t, []SetLoss{{"one", e.Loss}}, e.Sets)
		require.Equal(t, alone[0][i].Loss, e.Loss)
	}
	for _, e := range train(both, "train.eval_set=two") {
		require.Equal(t, e.Sets[1].Loss, e.Loss)
	}
	cfg, err := load(t.TempDir(), both, "train.eval_set=two")
	require.NoError(t, err)
	e, err := Evaluate(context.Background(), cfg, Question{})
	require.NoError(t, err)
	require.Equal(t, e.Sets[1].Loss, e.Loss)
	require.Equal(t, "one", e.Sets[0].Name)
	refuses(t, load, both, a, b)
}

// refuses holds what sets may not be.
func refuses(t *testing.T, load func(log string, more ...string) (*configs.Config, error), both, a, b string) {
	t.Helper()
	for want, bad := range map[string][]string{
		`train.eval_set: data.valid has no set "three"`: {both, "train.eval_set=three"},
		"some paths have the name of a set":             {"data.valid=[{path: " + a + ", name: one}, " + b + "]"},
		"the name":                                      {"data.valid=[{path: " + a + ", name: a/b}]"},
		"data.paths: names of sources are for":          {"data.paths=[{path: " + a + ", name: one}]", "train.eval_interval=0"},
		"data.paths: some paths have a name":            {"data.paths=[{path: " + a + ", name: one}, " + b + "]"},
	} {
		cfg, err := load(t.TempDir(), bad...)
		if err == nil {
			_, err = Open(cfg)
		}
		require.ErrorContains(t, err, want)
	}
}
