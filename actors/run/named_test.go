package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestLossByName: sources with names have a loss and tokens each, which together are the step's, whatever the plan; the
// loss itself is to the bit that without names.
func TestLossByName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, false)
	for name, text := range map[string]string{"a": "red disc red", "b": "blue blue green disc blue"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(strings.Repeat(fmt.Sprintf("{\"text\": %q}\n", text), 60)), 0o600))
	}
	run := func(paths string, more ...string) []Metrics {
		log := t.TempDir()
		cfg, err := configs.Load(configs.Request{Args: append([]string{"model.file=" + filepath.Join(dir, "model.yaml"),
			"data.paths=" + strings.ReplaceAll(paths, "@", dir), "data.tokenizer=" + dir, "data.seq_len=24", "data.split=[1, 0, 0]",
			"train.global_batch=4", "train.micro_batch=1", "train.steps=2", "train.loss_average=token", "optimizer.lr=1e-5", "log.dir=" + log}, more...)})
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{}))
		return linesOf(t, log)
	}
	const named = "[{path: @/a.jsonl, weight: 2, name: one}, {path: @/b.jsonl, weight: 2, name: two}]"
	plain, want := run("[{path: @/a.jsonl, weight: 2}, {path: @/b.jsonl, weight: 2}]"), run(named)
	require.Empty(t, plain[0].Figures)
	seen := map[string]float64{}
	for i, m := range want {
		require.Equal(t, plain[i].Loss, m.Loss)
		f := m.Figures
		require.InDelta(t, m.Loss, (f["loss/one"]*f["tokens/one"]+f["loss/two"]*f["tokens/two"])/(f["tokens/one"]+f["tokens/two"]), 1e-6)
		seen["one"], seen["two"] = seen["one"]+f["tokens/one"], seen["two"]+f["tokens/two"]
	}
	require.Contains(t, want[1].Figures, "loss/one")
	require.Contains(t, want[1].Figures, "loss/two")
	require.Positive(t, min(seen["one"], seen["two"]))
	for _, more := range [][]string{{"plan.pp=2"}, {"train.micro_batch=2"}, {"plan.dp=2"}, {"plan.tp=2", "plan.sequence_parallel=true"}, {"plan.cp=2"}} {
		sameFigures(t, want[1].Figures, run(named, more...)[1].Figures, 1e-4, more)
	}
	one := run("[{path: @/b.jsonl, name: one}]")[0]
	require.InDelta(t, one.Loss, one.Figures["loss/one"], 1e-6)
}
