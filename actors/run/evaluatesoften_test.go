package run

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestEvaluatesOften: evaluations in the first steps of a run see the same batches as later ones, however many there
// are: weights that stay give the same loss.
func TestEvaluatesOften(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, false)
	for _, plan := range [][]string{nil, {"plan.dp=2"}} {
		log := filepath.Join(t.TempDir(), "log")
		cfg, err := configs.Load(configs.Request{Args: append([]string{"model.file=" + filepath.Join(dir, "model.yaml"),
			"data.paths=[" + filepath.Join(dir, "pairs.jsonl") + "]", "data.tokenizer=" + dir, "data.seq_len=48",
			"data.split=[60,40,0]", "objective.kind=dpo", "train.global_batch=2", "train.micro_batch=1", "train.steps=48",
			"optimizer.lr=1e-12", "train.eval_interval=3", "train.eval_steps=4", "log.dir=" + log}, plan...)})
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{}))
		evals := evaluations(filepath.Join(log, "log.jsonl"), 100)
		require.Len(t, evals, 16)
		for _, e := range evals {
			require.Equal(t, evals[0].Y, e.Y)
		}
	}
}
