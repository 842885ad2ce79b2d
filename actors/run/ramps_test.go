package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestRamps: where weights of data.paths change, sources give their shares of the tokens on both sides of the step, the
// same on every plan, and a run that is stopped anywhere and goes on has the losses of one that was not; what has no
// meaning is refused by its key.
func TestRamps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, false)
	for name, text := range map[string]string{"a": "red disc red", "b": "blue blue green disc blue"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(strings.Repeat(fmt.Sprintf("{\"text\": %q}\n", text), 60)), 0o600))
	}
	const turned = "[{path: @/a.jsonl, weight: {0: 3, 5: 1}, name: one}, {path: @/b.jsonl, weight: {0: 1, 5: 3}, name: two}]"
	load := func(log, paths string, more ...string) (*configs.Config, error) {
		return configs.Load(configs.Request{Args: append([]string{"model.file=" + filepath.Join(dir, "model.yaml"),
			"data.paths=" + strings.ReplaceAll(paths, "@", dir), "data.tokenizer=" + dir, "data.seq_len=24", "data.split=[1, 0, 0]",
			"train.global_batch=8", "train.micro_batch=1", "train.steps=8", "train.loss_average=token", "optimizer.lr=1e-3", "log.dir=" + log,
			"checkpoint.dir=" + filepath.Join(log, "saved"), "schedule.kind=constant"}, more...)})
	}
	run := func(paths string, stop int64, more ...string) []Metrics {
		log := t.TempDir()
		for _, at := range []int64{stop, 0} {
			cfg, err := load(log, paths, more...)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			err = Train(ctx, cfg, Options{Step: func(m Metrics) {
				if m.Step == at {
					cancel()
				}
			}})
			require.True(t, err == nil || errors.Is(err, ErrStopped), "%v", err)
			cancel()
		}
		said, err := os.ReadFile(filepath.Join(log, "log.jsonl"))
		require.NoError(t, err)
		require.Contains(t, string(said), "weight: {0: 3, 5: 1}")
		return linesOf(t, log)
	}
	want := run(turned, 0)
	require.Len(t, want, 8)
	before, after := map[string]float64{}, map[string]float64{}
	for i, m := range want {
		of := before
		if i >= 4 {
			of = after
		}
		of["one"], of["two"] = of["one"]+m.Figures["tokens/one"]/18, of["two"]+m.Figures["tokens/two"]/20 // of a row
	}
	require.InDelta(t, 24, before["one"], 1.1, "rows of 32, three in four: those of both sides are not shuffled with each other")
	require.InDelta(t, 8, before["two"], 1.1)
	require.InDelta(t, 8, after["one"], 6, "some of the rows that are shuffled with each other")
	require.InDelta(t, 24, after["two"], 6)
	for _, stop := range []int64{3, 4, 6} {
		got := run(turned, stop)
		require.Len(t, got, 8)
		for i := range want {
			require.Equal(t, want[i].Loss, got[i].Loss, "stopped behind %d, step %d", stop, i+1)
		}
	}
	for _, plan := range []string{"plan.dp=2", "plan.pp=2"} {
		for i, m := range run(turned, 0, plan) {
			require.InEpsilon(t, want[i].Loss, m.Loss, 1e-5, plan)
			require.Equal(t, want[i].Figures["tokens/one"], m.Figures["tokens/one"], plan)
		}
	}
	refusedRamps(t, dir, turned, load)
}

// refusedRamps: what has no meaning is refused by its key, and what is read is written the same.
func refusedRamps(t *testing.T, dir, turned string, load func(log, paths string, more ...string) (*configs.Config, error)) {
	t.Helper()
	for says, bad := range map[string][]string{
		"no meaning for passes":       {turned, "train.epochs=2"},
		"beside others":               {"[{path: @/a.jsonl, weight: {0: 1, 5: 2}}]"},
		"at step 5 every weight is 0": {"[{path: @/a.jsonl, weight: {0: 1, 5: 0}}, {path: @/b.jsonl, weight: {0: 1, 5: 0}}]"},
		"the first of them 0":         {"[{path: @/a.jsonl, weight: {3: 1, 5: 0}}, @/b.jsonl]"},
		"steps that grow":             {"[{path: @/a.jsonl, weight: {0: 1, 5: 0, 4: 1}}, @/b.jsonl]"},
		"linear has no meaning":       {"[{path: @/a.jsonl, linear: true}, @/b.jsonl]"},
		"data.valid":                  {turned, "data.valid=[{path: " + dir + "/a.jsonl, weight: {0: 1, 5: 2}}]"},
	} {
		_, err := load(t.TempDir(), bad[0], bad[1:]...)
		require.ErrorContains(t, err, says)
	}
	cfg, err := load(t.TempDir(), strings.ReplaceAll(turned, "weight: {0: 3, 5: 1}", "weight: {0: 3, 9: 1}, linear: true"))
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll("[{path: @/a.jsonl, weight: {0: 3, 9: 1}, linear: true, name: one}, {path: @/b.jsonl, weight: {0: 1, 5: 3}, name: two}]",
		"@", dir), cfg.Flat()["data.paths"])
}
