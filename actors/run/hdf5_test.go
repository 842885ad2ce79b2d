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

// TestHDF5Run: ACT trains on a file of HDF5, with the same losses in stages and with replicas.
func TestHDF5Run(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	model := strings.Replace(actOf8, "state_size: 2", "state_size: 9", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "act.yaml"), []byte(model), 0o644))
	train := func(more ...string) (losses []float64) {
		out := t.TempDir()
		text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [../../dataset/hdf5/testdata/robomimic.hdf5], seq_len: 4, "+
			"split: [1, 0, 0]}\npolicy: {normalize: mean_std}\ntrain: {steps: 3, global_batch: 4}\noptimizer: {lr: 1.0e-3}\n",
			filepath.Join(dir, "act.yaml"))
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
			"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved")},
			more...)})
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
			losses = append(losses, m.Loss)
		}}))
		return losses
	}
	one := train()
	require.Len(t, one, 3)
	require.InEpsilonSlice(t, one, train("plan.pp=2", "plan.dp=2"), 1e-5)
}
