package run

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestRLDSRun: a policy trains on recordings of RLDS, and on those of LeRobot beside them, with the same
// losses under a plan.
func TestRLDSRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shown(t, dir)
	rlds, err := filepath.Abs("../../dataset/format/recordings/testdata/rlds")
	require.NoError(t, err)
	train := func(more ...string) (losses []float64, err error) {
		text := fmt.Sprintf("model: {file: %q, overrides: {views: 2}}\n"+
			"data: {paths: [{path: %q, weight: 1}, {path: %q, weight: 3}], tokenizer: %q, seq_len: 4, split: [1, 0, 0]}\n"+
			"train: {steps: 3, global_batch: 4}\noptimizer: {lr: 1.0e-3}\n", filepath.Join(dir,
			"model.yaml"), rlds,
			filepath.Join(dir, "set"), filepath.Join(dir, "words"))
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
			"log.dir=" + t.TempDir(), "policy.cameras=[observation.image, observation.images.top]"},
			more...)})
		if err != nil {
			return nil, err
		}
		return losses, Train(context.Background(), cfg,
			Options{Step: func(m Metrics) { losses = append(losses, m.Loss) }})
	}
	one, err := train()
	require.NoError(t, err)
	require.Len(t, one, 3)
	two, err := train("plan.dp=2", "plan.pp=2")
	require.NoError(t, err)
	require.InEpsilonSlice(t, one, two, 1e-5)
	_, err = train("policy.state_key=observation.none")
	require.ErrorContains(t, err, `policy.state_key: the statistics of`)
}
